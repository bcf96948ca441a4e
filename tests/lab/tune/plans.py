"""Searches of seconds."""

from dataclasses import replace
from pathlib import Path

from lab.helpers import CPU
from vsam.lab.data import Dataset
from vsam.lab.data.validation import hold_out
from vsam.lab.runs.train import load_data
from vsam.lab.tune.plan import Plan, make_plan
from vsam.lab.tune.search import Search

# Two steps an epoch, two epochs; ten held-out images, so that a trial is over in a moment.
QUICK_CHANGES = ("data.train=50", "data.test=20", "batch=20", "vsam.start=1", "vsam.window=10")
QUICK = ("--tiny", *(part for change in QUICK_CHANGES for part in ("--set", change)))


def quick_plan(*changes: str, **options: object) -> Plan:
    return make_plan("fashion-mini", tiny=True, changes=(*QUICK_CHANGES, *changes), **options)  # type: ignore[arg-type]


def open_search(folder: Path, trials: int, plan: Plan | None = None, **options: object) -> Search:
    plan = plan or quick_plan()
    return Search(plan, folder, hold_out(small_data(plan)), CPU, trials, **options)  # type: ignore[arg-type]


def small_data(plan: Plan) -> Dataset:
    """The plan's images at a quarter of their side."""
    dataset = load_data(plan.recipe, None, CPU)
    train, test = (images[:, :, ::4, ::4].contiguous() for images in (dataset.train_images, dataset.test_images))
    return replace(dataset, train_images=train, test_images=test)


def results(search: Search):
    with search.results() as found:
        return found


def outcome(result):
    """What of a trial must not depend on kills."""
    return (result.number, result.state, result.settings, result.accuracy, result.epochs, result.loss, result.samples)


class Watched:
    """Remembers what a search told, and may stop it."""

    def __init__(self, stop=lambda event: None):
        self.events, self._stop = [], stop

    def _note(self, *event):
        self.events.append(event)
        self._stop(event)

    def begin(self, done, trials, steps):
        self._note("begin", done, trials, steps)

    def start(self, number, values, step):
        self._note("start", number, step)

    def advance(self, step):
        self._note("step", step)

    def epoch(self, number, epoch, accuracy):
        self._note("epoch", number, epoch)

    def end(self, result, done):
        self._note("end", result.number, done)

    def of(self, kind):
        return [event[1:] for event in self.events if event[0] == kind]
