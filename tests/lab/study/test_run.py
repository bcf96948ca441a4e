"""Running studies: kept cells, failures at the end, rows that say what the folders say."""

import json
import shutil
import statistics

import pytest
import torch

from lab.helpers import CPU, quick_recipe
from vsam.lab.comparison.progress import NullProgress
from vsam.lab.errors import UserError
from vsam.lab.runs.folder import run_path
from vsam.lab.runs.train import Run
from vsam.lab.study.norms import norms_of
from vsam.lab.study.run import run_study
from vsam.lab.study.study import Part, Study

SMALL = ("data.train=32", "epochs=1")


def study(parts, varied=None, **options):
    return Study("own", "ours", lambda scale, seeds, runs: parts, varied, **options)


def part(name, *changes):
    recipes = [quick_recipe(*SMALL, *change).model_copy(update={"name": name}) for change in changes]
    return Part(name, tuple(recipes))


def run(plan, out, **options):
    return run_study(plan, "tiny", 1, out, None, CPU, **options)


def test_rows_say_what_the_folders_say(tmp_path):
    parts = [
        part("one", ("method=sam",), ("method=sam", "seed=1"), ("method=vsam", "vsam.alpha=0.3", "variant=alpha-0.3")),
        part("two", ("method=sgd",)),
    ]
    outcome = run(study(parts, varied="alpha"), tmp_path)
    content = outcome.to_dict()
    assert (content["study"], content["scale"], content["failures"]) == ("own", "tiny", [])
    sam, vsam, sgd = content["rows"]
    assert [row["recipe"] for row in (sam, vsam, sgd)] == ["one", "one", "two"]
    assert [(row["method"], row["alpha"]) for row in (sam, vsam, sgd)] == [("sam", None), ("vsam", 0.3), ("sgd", None)]
    summaries = [json.loads((tmp_path / f"runs/one/sam/seed-{i}/summary.json").read_text()) for i in (0, 1)]
    assert sam["seed_list"] == [0, 1]
    assert sam["accuracies"] == [summary["accuracy"] for summary in summaries]
    assert sam["samples_each"] == [summary["samples"] for summary in summaries]
    assert sam["accuracy"] == pytest.approx(statistics.fmean(sam["accuracies"]))
    assert sam["noise"] == 0.2
    assert [row.label for row in outcome.table(outcome.parts[0])] == ["sam", "vsam alpha=0.3"]
    json.dumps(content, allow_nan=False)


def test_progress_knows_that_runs_differ_in_length(tmp_path):
    class Noting(NullProgress):
        def begin(self, cells):
            self.cells = cells

    parts = [part("one", ("method=sgd",), ("method=sgd", "variant=longer", "epochs=2"))]
    for _ in range(2):  # before and after
        noted = Noting()
        outcome = run(study(parts), tmp_path, progress=noted)
        steps = {row["label"]: row["steps"] for row in outcome.to_dict()["rows"]}
        assert {label.split()[1]: total for label, _, _, total in noted.cells} == steps
        assert steps["sgd-longer"] == 2 * steps["sgd"]


def test_finished_cells_are_kept(tmp_path):
    parts = [part("one", ("method=sgd",))]
    run(study(parts), tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    again = run(study([*parts, part("two", ("method=sgd",))]), tmp_path)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert [found.name for found in again.parts] == ["one", "two"]


def test_a_finished_study_is_drawn_again_without_its_data(tmp_path, monkeypatch):
    parts = [part("one", ("method=sgd",), ("method=sam",))]
    before = run(study(parts), tmp_path).to_dict()
    for module in ("comparison.compare", "study.run"):
        monkeypatch.setattr(f"vsam.lab.{module}.load_data", lambda *_: pytest.fail("data were asked for"))
    assert run(study(parts), tmp_path).to_dict() == before


def test_a_cell_that_fails_is_listed_and_stops_nothing(tmp_path):
    parts = [part("one", ("method=sgd", "lr=1e30"), ("method=sam",)), part("two", ("method=sgd",))]
    outcome = run(study(parts), tmp_path)
    assert [[row.label for row in found.rows] for found in outcome.parts] == [["sam"], ["sgd"]]
    (failure,) = outcome.failures
    assert failure.startswith("one: sgd, seed 0: The loss is nan")


def test_other_settings_in_a_later_part_are_found_before_anything_is_trained(tmp_path):
    run(study([part("two", ("method=sgd",))]), tmp_path)
    parts = [part("one", ("method=sgd",)), part("two", ("method=sgd", "lr=0.2"))]
    with pytest.raises(UserError, match=r"two/sgd/seed-0 was started with other settings \(lr "):
        run(study(parts), tmp_path)
    assert not (tmp_path / "runs/one").exists()


def test_a_damaged_cell_is_listed_and_stops_nothing(tmp_path):
    parts = [
        part("one", ("method=sgd",), ("method=sam",)),
        part("two", ("method=sgd",)),
        part("three", ("method=sgd",)),
    ]
    run(study(parts), tmp_path)
    for name in ("one/sgd", "three/sgd"):
        (tmp_path / f"runs/{name}/seed-0/config.toml").write_text("epochs = ")
    shutil.rmtree(tmp_path / "runs/one/sam")
    shutil.rmtree(tmp_path / "runs/two")
    outcome = run(study(parts), tmp_path)
    assert [[row["label"], row["recipe"]] for row in outcome.to_dict()["rows"]] == [["sam", "one"], ["sgd", "two"]]
    assert [failure.partition(": ")[0] for failure in outcome.failures] == ["one", "three"]
    for failure in outcome.failures:
        assert "sgd, seed 0: " in failure
        assert "config.toml is not valid TOML" in failure
    only_two = run(study(parts), tmp_path, only=["two"])
    assert only_two.failures == []
    assert [row["recipe"] for row in only_two.to_dict()["rows"]] == ["one", "two"]


def test_memory_that_runs_out_stops_one_cell_only(tmp_path, monkeypatch):
    train = Run.train_epoch

    def fail(self, *arguments):
        if self.recipe.method == "sam":
            raise torch.OutOfMemoryError("no memory left")
        return train(self, *arguments)

    monkeypatch.setattr(Run, "train_epoch", fail)
    outcome = run(study([part("one", ("method=sam",), ("method=sgd",))]), tmp_path)
    assert outcome.failures == ["one: sam, seed 0: no memory left"]
    assert [row.label for row in outcome.parts[0].rows] == ["sgd"]


@pytest.mark.slow
def test_nothing_starts_from_a_run_that_is_not_finished(tmp_path):
    begin = part("begin", ("method=sgd", "lr=1e30"), ("method=sgd", "seed=1"))
    sources = [run_path(tmp_path / "runs", recipe) for recipe in begin.recipes]
    then = part("then", *((f"quantize.checkpoint={source}/checkpoint.pt",) for source in sources))
    seeds = [recipe.model_copy(update={"seed": i}) for i, recipe in enumerate(then.recipes)]
    outcome = run(study([begin, Part("then", tuple(seeds))]), tmp_path)
    assert outcome.failures[1] == f"then: vsam, seed 0: not run, because {sources[0]} is not finished."
    assert len(outcome.failures) == 2
    assert [cell.seed for cell in outcome.parts[1].runs] == [1]


SPOILT = {
    "has no checkpoint.pt": lambda source: (source / "checkpoint.pt").unlink(),
    "checkpoint.pt is damaged": lambda source: (source / "checkpoint.pt").write_bytes(b"broken"),
    "config.toml is not valid TOML": lambda source: (source / "config.toml").write_text("epochs = "),
}


@pytest.mark.slow
@pytest.mark.parametrize("words", SPOILT)
def test_nothing_starts_from_a_checkpoint_that_cannot_be_read(tmp_path, words):
    begin = part("begin", ("method=sgd",), ("method=sgd", "seed=1"))
    sources = [run_path(tmp_path / "runs", recipe) for recipe in begin.recipes]
    then = [(f"quantize.checkpoint={source}/checkpoint.pt", f"seed={i}") for i, source in enumerate(sources)]
    run(study([begin]), tmp_path)
    SPOILT[words](sources[0])
    outcome = run(study([begin, part("then", *then)]), tmp_path, only=["then"])
    (failure,) = outcome.failures
    assert failure.startswith(f"then: vsam, seed 0: not run, because {sources[0]}")
    assert words in failure
    assert f"Delete {sources[0]} " in failure
    assert [cell.seed for cell in outcome.parts[1].runs] == [1]


def change_summary(path, **changes):
    summary = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({name: value for name, value in summary.items() if value is not None}))


def test_a_summary_without_its_environment_is_no_obstacle(tmp_path):
    parts = [part("one", ("method=sgd",), ("method=sam",))]
    environments = run(study(parts), tmp_path).to_dict()["environments"]
    assert len(environments) == 1
    change_summary(tmp_path / "runs/one/sgd/seed-0/summary.json", environment=None)
    assert run(study(parts), tmp_path).to_dict()["environments"] == environments


def test_a_summary_that_no_run_can_have_is_written_anew(tmp_path):
    parts = [part("one", ("method=sgd",))]
    rows = run(study(parts), tmp_path).to_dict()["rows"]
    change_summary(tmp_path / "runs/one/sgd/seed-0/summary.json", steps=0)
    assert run(study(parts), tmp_path).to_dict()["rows"] == rows


@pytest.mark.slow
def test_a_seed_with_few_common_turns_has_a_speed(tmp_path):
    changes = [(f"method={method}", "epochs=5", f"seed={seed}") for seed in (0, 1) for method in ("sam", "sgd")]
    outcome = run(study([part("one", *changes)]), tmp_path)
    _, sgd = outcome.to_dict()["rows"]
    assert sgd["speed_quartiles"] is None
    assert all(speed > 0 for speed in sgd["speed_to_sam_each"])
    for path in (tmp_path / "runs/one/sgd").rglob("metrics.jsonl"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        path.write_text("".join(json.dumps({**line, "turn": None}) + "\n" for line in lines))
    _, apart = run(study([part("one", *changes)]), tmp_path).to_dict()["rows"]
    assert apart["speed_to_sam_each"] == [None, None]


def test_only_some_parts_are_trained_but_all_that_are_there_are_told(tmp_path):
    parts = [part(name, ("method=sgd",)) for name in ("one", "two", "three")]
    assert [found.name for found in run(study(parts), tmp_path, only=["two"]).parts] == ["two"]
    assert [found.name for found in run(study(parts), tmp_path, only=["one"]).parts] == ["one", "two"]
    assert not run_path(tmp_path / "runs", parts[2].recipes[0]).exists()


def test_the_columns_of_a_study_are_in_its_rows(tmp_path):
    (row,) = run(study([part("one", ("method=sam",))], columns=norms_of), tmp_path).to_dict()["rows"]
    assert len(row["psf_norms"][0]) == 2
    assert all(norm > 0 for norm in row["psf_norms"][0])


class Watcher:
    def __init__(self):
        self.cells, self.steps, self.epochs = None, [], []

    def begin(self, cells):
        assert self.cells is None
        self.cells = cells

    def advance(self, method, seed, step):
        self.steps.append((method, seed, step))

    def epoch(self, method, seed, metrics):
        self.epochs.append((method, seed, metrics["epoch"]))


def test_the_progress_knows_all_parts_from_the_beginning(tmp_path):
    parts = [part("one", ("method=sgd",)), part("two", ("method=sgd",))]
    run(study(parts[:1]), tmp_path)
    watcher = Watcher()
    run(study(parts), tmp_path, progress=watcher)
    assert watcher.cells == [("one sgd", 0, 2, 2), ("two sgd", 0, 0, 2)]
    assert watcher.steps == [("two sgd", 0, 1), ("two sgd", 0, 2)]
    assert watcher.epochs == [("two sgd", 0, 0)]
