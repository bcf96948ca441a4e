"""A search in one process: all trials, none on test images, and as if never interrupted."""

import json
import time
from contextlib import closing
from dataclasses import replace

import pytest
import torch
from optuna.distributions import FloatDistribution
from optuna.samplers import RandomSampler
from optuna.trial import create_trial

from lab.helpers import CPU, lines, quick_recipe
from vsam.lab.data.validation import hold_out
from vsam.lab.errors import DamagedError, RunError, UserError
from vsam.lab.progress import NullProgress
from vsam.lab.train import load_data
from vsam.lab.tune.outcome import best_first, count_states, rows_of, to_json
from vsam.lab.tune.search import Search, make_pruner
from vsam.lab.tune.space import choose_space

TRIALS = 3
# Two steps an epoch, two epochs; ten held-out images, so that a trial is over in a moment.
CHANGES = ("data.train=50", "data.test=20", "batch=20", "vsam.start=1", "vsam.window=10")


class Stop(NullProgress):
    """Calls a function before a step of a trial, and remembers the steps."""

    def __init__(self, moment=None, act=None):
        self.steps, self._moment, self._act = [], moment, act

    def advance(self, label, seed, step):
        self.steps.append((label, seed, step))
        if (label, step) == self._moment:
            self._act()


def interrupt():
    raise KeyboardInterrupt


def open_search(folder, *changes, search=None, seeds=1, labels=None, **options):
    recipe = quick_recipe(*CHANGES, *changes)
    space = choose_space(search, lambda more: quick_recipe(*CHANGES, *changes, *more))
    data = load_data(recipe, None, CPU)
    small = [images[:, :, ::4, ::4].contiguous() for images in (data.train_images, data.test_images)]
    test_labels = data.test_labels if labels is None else labels
    data = replace(data, train_images=small[0], test_images=small[1], test_labels=test_labels)
    return closing(Search(recipe, space, seeds, folder, hold_out(data), CPU, **options))


def run(folder, *changes, trials=TRIALS, progress=None, deadline=None, **options):
    """The rows after the search has run."""
    with open_search(folder, *changes, **options) as search:
        search.run(trials, progress or NullProgress(), deadline)
        return rows_of(search)


def outcomes(rows):
    """Return the fields of trials that must not depend on kills."""
    return [{name: value for name, value in row.items() if name not in ("seconds", "device")} for row in rows]


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    folder = tmp_path_factory.mktemp("searched") / "search"
    return folder, run(folder)


def test_all_trials_are_trained_and_the_recipes_own_settings_come_first(searched):
    folder, rows = searched
    assert count_states(rows) == "3 trials: 3 complete"
    assert rows[0]["settings"] == {"rho": 0.2, "vsam.alpha": 0.2, "vsam.gamma": 0.7}
    assert len({row["settings"]["rho"] for row in rows}) == TRIALS
    with open_search(folder) as search:
        record = json.loads(to_json(search, "vsam tune", rows))
    assert record["best"] == best_first(rows)[0]["number"]


def test_a_trial_is_a_run_on_the_held_out_images(searched):
    folder, rows = searched
    for row in rows:
        path = folder / "trials" / f"{row['number']:03}" / "seed-0"
        summary = json.loads((path / "summary.json").read_text())
        assert (summary["data"], summary["role"]) == ("fashion-mini-validation", "trial")
        assert row["accuracy"] == summary["accuracy"] == lines(path / "metrics.jsonl")[-1]["test_accuracy"]
        assert (row["samples"], row["steps"], row["epochs"]) == (summary["samples"], 4, 2)
    assert list(folder.rglob("checkpoint.pt")) == []


def test_a_finished_search_changes_nothing_and_more_trials_can_be_asked_for(searched, tmp_path):
    folder, rows = searched
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    progress = Stop()
    assert run(folder, progress=progress) == rows
    assert progress.steps == []
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    run(tmp_path, trials=1)
    assert outcomes(run(tmp_path)) == outcomes(rows)


@pytest.mark.slow
@pytest.mark.parametrize("moment", [("trial 0", 1), ("trial 0", 2), ("trial 1", 3), ("trial 2", 4)])
def test_interrupted_at_any_moment_it_tries_and_finds_the_same(searched, tmp_path, moment):
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "search", "checkpoint_seconds=1e-6", progress=Stop(moment, interrupt))
    rows = run(tmp_path / "search", "checkpoint_seconds=1e-6")
    assert outcomes(rows) == outcomes(searched[1])


@pytest.mark.parametrize("place", [1, 2])
def test_stopped_between_two_settings_of_a_trial_it_draws_the_same_ones(searched, tmp_path, monkeypatch, place):
    draw, count = RandomSampler.sample_independent, 0

    def stop(*arguments):
        nonlocal count
        count += 1
        if count > place:  # the settings before are in the database
            raise KeyboardInterrupt
        return draw(*arguments)

    monkeypatch.setattr(RandomSampler, "sample_independent", stop)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "search")
    monkeypatch.undo()
    assert outcomes(run(tmp_path / "search")) == outcomes(searched[1])


def test_the_deadline_ends_it_after_an_epoch_and_it_resumes_there(tmp_path):
    rows = run(tmp_path, deadline=time.monotonic() - 1)
    assert [row["state"] for row in rows] == ["waiting"] * len(rows)
    progress = Stop(("trial 0", 2), interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, progress=progress)
    assert run(tmp_path, trials=1)[0]["state"] == "complete"


def test_the_test_images_do_not_matter(searched, tmp_path):
    rows = run(tmp_path, trials=1, labels=torch.zeros(20, dtype=torch.long))
    assert outcomes(rows) == outcomes(searched[1])[:1]


def test_a_trial_of_several_seeds_is_their_mean(tmp_path):
    (row,) = run(tmp_path, "seed=3", seeds=2, trials=1)
    runs = [json.loads((tmp_path / f"trials/000/seed-{seed}/summary.json").read_text()) for seed in (3, 4)]
    assert row["accuracy"] == sum(one["accuracy"] for one in runs) / 2
    assert row["samples"] == sum(one["samples"] for one in runs) / 2


@pytest.mark.filterwarnings("ignore:A gradient was not finite")
def test_trials_that_diverge_are_listed_and_the_others_continue(tmp_path):
    """Weights of 1e30 after a step are the end of any network."""
    rows = run(tmp_path, search="lr=0.1:1e30:log", trials=5)
    assert {row["state"] for row in rows} == {"complete", "failed"}
    assert all("step" in row["error"] for row in rows if row["state"] == "failed")
    assert rows[0]["state"] == "complete", "the recipe's own lr is tried first"


def fail(error, cause=None):
    def act():
        raise error from cause

    return act


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("no memory left"), MemoryError()])
def test_settings_that_need_too_much_memory_fail_and_the_search_continues(tmp_path, error):
    rows = run(tmp_path, trials=2, progress=Stop(("trial 0", 2), fail(error)))
    assert count_states(rows) == "2 trials: 1 complete, 1 failed"


def test_a_full_disk_is_nobodys_failure(tmp_path):
    error = fail(RunError("disk full"), OSError(28, "No space left on device"))
    with pytest.raises(RunError, match="disk full"):
        run(tmp_path, progress=Stop(("trial 0", 2), error))
    assert count_states(run(tmp_path, trials=2)) == "2 trials: 2 complete"


def test_a_damaged_checkpoint_stops_the_search_and_is_never_scored(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, progress=Stop(("trial 0", 3), interrupt))
    path = tmp_path / "trials/000/seed-0/checkpoint.pt"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(DamagedError, match="delete it"):
        run(tmp_path)
    path.unlink()
    assert count_states(run(tmp_path, trials=1)) == "1 trial: 1 complete"


@pytest.mark.slow
@pytest.mark.parametrize(("others", "state", "epochs"), [(101.0, "pruned", 4), (-1.0, "complete", 6)])
def test_a_trial_that_lags_behind_is_pruned_late_and_never_early(tmp_path, others, state, epochs):
    with open_search(tmp_path, "epochs=6", search="rho=0.3:0.5") as search:
        for _ in range(5):
            values = dict.fromkeys(range(1, 7), others)
            settings = {"params": {"rho": 0.3}, "distributions": {"rho": FloatDistribution(0.3, 0.5)}}
            search.study.add_trial(create_trial(value=others, intermediate_values=values, **settings))
        search.run(6, NullProgress())
        row = rows_of(search)[5]
    assert (row["state"], row["epochs"], row["steps"]) == (state, epochs, 2 * epochs)


@pytest.mark.parametrize(("epochs", "first"), [(1, 1), (2, 2), (3, 2), (30, 20), (40, 27), (200, 134)])
def test_the_first_epoch_that_may_be_pruned(epochs, first):
    assert make_pruner(epochs)._n_warmup_steps == first


@pytest.mark.parametrize(
    ("changes", "options", "difference"),
    [
        (["lr=0.2"], {}, "lr 0.1 instead of 0.2"),
        (["vsam.slices=2"], {}, "vsam.slices 5 instead of 2"),
        ([], {"search": "rho=0.1:0.2"}, "instead of rho=0.1:0.2"),
        ([], {"seeds": 2}, "seeds 1 instead of 2"),
    ],
)
def test_another_search_in_the_folder_is_refused(searched, changes, options, difference):
    with pytest.raises(UserError, match=f"has another search.*{difference}"):
        run(searched[0], *changes, **options)


def test_a_second_process_in_the_folder_is_refused(tmp_path):
    with open_search(tmp_path), pytest.raises(UserError, match="in use by another process"):
        run(tmp_path)


def test_folders_share_a_database_and_train_no_trial_twice(searched, tmp_path):
    storage = {"storage": f"sqlite:///{tmp_path}/shared.db"}
    with open_search(tmp_path / "one", **storage) as first:
        with pytest.raises(KeyboardInterrupt):
            first.run(TRIALS, Stop(("trial 0", 1), interrupt))
        run(tmp_path / "two", trials=2, **storage)
        first.run(TRIALS, NullProgress())
        assert outcomes(rows_of(first)) == outcomes(searched[1])


def test_a_trial_that_another_machine_took_over_is_left_to_it(searched, tmp_path, monkeypatch):
    """As if this machine had been asleep for hours in the middle of a trial."""
    storage = {"storage": f"sqlite:///{tmp_path}/shared.db"}

    def take_over():
        with monkeypatch.context() as patch:
            patch.setattr("vsam.lab.tune.search._SILENCE", -1)
            assert run(tmp_path / "two", trials=1, **storage)[0]["state"] == "complete"

    progress = Stop(("trial 0", 1), take_over)
    assert outcomes(run(tmp_path / "one", progress=progress, **storage)) == outcomes(searched[1])
    assert ("trial 0", 0, 3) not in progress.steps


@pytest.mark.parametrize("url", ["nosuch://me:hunter2@host/name", "hunter2", "sqlite:////nowhere/hunter2.db"])
def test_a_database_that_cannot_be_used_is_an_error_without_its_password(tmp_path, url):
    with pytest.raises((UserError, RunError), match="storage") as raised:
        run(tmp_path, storage=url)
    assert "hunter2" not in str(raised.value)
