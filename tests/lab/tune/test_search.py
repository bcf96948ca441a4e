"""A search in one process: all trials, none on test images, and as if never interrupted."""

import json
import os
import signal
import time
import tomllib

import pytest
import torch
from optuna.distributions import FloatDistribution
from optuna.trial import create_trial

from lab.helpers import CPU, lines
from lab.tune.plans import Watched, open_search, outcome, quick_plan, results, small_data
from vsam.lab.data.validation import hold_out
from vsam.lab.errors import RunError, UserError
from vsam.lab.tune.results import best_first, count_states
from vsam.lab.tune.search import Search, make_pruner

TRIALS = 3


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    """A finished search."""
    folder = tmp_path_factory.mktemp("searched") / "search"
    watched = Watched()
    assert open_search(folder, TRIALS).run(watched) == TRIALS
    return folder, watched


def test_all_trials_are_trained(searched):
    folder, watched = searched
    found = results(open_search(folder, TRIALS))
    assert [result.number for result in found] == list(range(TRIALS))
    assert count_states(found) == "3 trials: 3 complete"
    assert watched.of("begin") == [(0, TRIALS, 4)]
    assert watched.of("start") == [(number, 0) for number in range(TRIALS)]
    assert watched.of("epoch") == [(number, epoch) for number in range(TRIALS) for epoch in (1, 2)]
    assert watched.of("step") == [(step,) for step in (1, 2, 3, 4)] * TRIALS
    assert watched.of("end") == [(number, number + 1) for number in range(TRIALS)]


def test_a_trial_is_a_run_on_the_held_out_images(searched):
    folder, _ = searched
    for result in results(open_search(folder, TRIALS)):
        path = folder / "trials" / f"{result.number:03}" / "seed-0"
        summary = json.loads((path / "summary.json").read_text())
        assert summary["data"] == "fashion-mini-validation"
        assert result.accuracy == summary["accuracy"] == lines(path / "metrics.jsonl")[-1]["test_accuracy"]
        assert result.accuracy % 10 == 0, "there are ten held-out images"
        assert (result.samples, result.steps, result.epochs) == (summary["samples"], 4, 2)
        assert result.settings["rho"] == pytest.approx(tomllib.loads((path / "config.toml").read_text())["rho"])
    assert len({result.settings["rho"] for result in results(open_search(folder, TRIALS))}) == TRIALS


@pytest.mark.slow
def test_the_test_images_do_not_matter(tmp_path):
    plan = quick_plan()
    dataset = small_data(plan)
    found = []
    for labels in (dataset.test_labels, torch.zeros_like(dataset.test_labels)):
        dataset.test_labels.copy_(labels)
        search = Search(plan, tmp_path / str(len(found)), hold_out(dataset), CPU, 1)
        search.run(Watched())
        found.append(outcome(results(search)[0]))
    assert found[0] == found[1]


def test_checkpoints_are_cleared_away_and_results_kept(searched):
    folder, _ = searched
    assert list(folder.rglob("checkpoint.pt")) == []
    assert len(list(folder.rglob("summary.json"))) == TRIALS


def test_a_finished_search_changes_nothing(searched):
    folder, _ = searched
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    watched = Watched()
    assert open_search(folder, TRIALS).run(watched) == 0
    assert watched.events == [("begin", TRIALS, TRIALS, 4)]
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


@pytest.mark.slow
def test_more_trials_can_be_asked_for(tmp_path):
    open_search(tmp_path, 1).run(Watched())
    watched = Watched()
    assert open_search(tmp_path, 3).run(watched) == 2
    assert [number for number, _ in watched.of("start")] == [1, 2]
    assert open_search(tmp_path, 2).run(Watched()) == 0


@pytest.mark.slow
def test_interrupted_at_every_moment_it_tries_and_finds_the_same(searched, tmp_path):
    folder, _ = searched
    moments = iter([("start", 0, 0), ("step", 1), ("epoch", 0, 1), ("step", 4), ("epoch", 0, 2), ("start", 1, 0)])
    moment = next(moments)

    def stop(event):
        if event == moment:
            raise KeyboardInterrupt

    while moment:
        with pytest.raises(KeyboardInterrupt):
            open_search(tmp_path / "search", TRIALS).run(Watched(stop))
        moment = next(moments, None)
    open_search(tmp_path / "search", TRIALS).run(Watched())
    ours, theirs = (results(open_search(path, TRIALS)) for path in (tmp_path / "search", folder))
    assert [outcome(result) for result in ours] == [outcome(result) for result in theirs]


@pytest.fixture
def interruptible():
    """Ctrl-C as in a terminal; what runs in the background of a shell ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_waits_for_a_moment_when_nothing_is_half_done(tmp_path):
    search = open_search(tmp_path, 1)

    def press(event):
        if event == ("epoch", 0, 1):
            os.kill(os.getpid(), signal.SIGINT)

    watched = Watched(press)
    with pytest.raises(KeyboardInterrupt):
        search.run(watched)
    assert watched.events[-2:] == [("epoch", 0, 1), ("step", 3)]
    assert results(search)[0].state == "waiting"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("interruptible")
def test_a_second_ctrl_c_does_not_wait(tmp_path):
    def press(event):
        if event[0] == "epoch":
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    watched = Watched(press)
    with pytest.raises(KeyboardInterrupt):
        open_search(tmp_path, 1).run(watched)
    assert watched.events[-1] == ("epoch", 0, 1)


def test_the_deadline_ends_it_after_an_epoch_and_it_goes_on_there(tmp_path):
    search = open_search(tmp_path, 2, deadline=time.monotonic() + 3600)

    def stop(event):
        if event == ("epoch", 1, 1):
            search._deadline = time.monotonic() - 1

    assert search.run(Watched(stop)) == 2
    assert count_states(results(search)) == "2 trials: 1 complete, 1 waiting"
    watched = Watched()
    assert open_search(tmp_path, 2).run(watched) == 1
    assert watched.of("start") == [(1, 2)]
    assert watched.of("epoch") == [(1, 2)]


def test_a_trial_of_several_seeds_is_their_mean(tmp_path):
    search = open_search(tmp_path, 1, quick_plan("seed=3", seeds=2))
    watched = Watched()
    search.run(watched)
    (result,) = results(search)
    runs = [json.loads((tmp_path / f"trials/000/seed-{seed}/summary.json").read_text()) for seed in (3, 4)]
    assert result.accuracy == sum(run["accuracy"] for run in runs) / 2
    assert result.samples == sum(run["samples"] for run in runs) / 2
    assert result.seconds == pytest.approx(sum(run["seconds"] for run in runs), rel=0.2)
    assert watched.of("begin") == [(0, 1, 8)]
    assert watched.of("step") == [(step,) for step in range(1, 9)]
    assert watched.of("epoch") == [(0, 1), (0, 2)]


@pytest.mark.filterwarnings("ignore:A gradient was not finite")
def test_trials_that_diverge_are_listed_and_the_others_go_on(tmp_path):
    """Weights of 1e30 after a step are the end of any network."""
    plan = quick_plan(search="lr=0.1:1e30:log")
    search = open_search(tmp_path, 5, plan)
    search.run(Watched())
    found = results(search)
    failed = [result for result in found if result.state == "failed"]
    assert {"complete", "failed"} == {result.state for result in found}
    assert all("step" in result.error for result in failed)
    assert all(result.error is None for result in best_first(found))
    assert found[0].state == "complete", "the recipe's own lr is tried first"


def _spoil_metrics(run):
    lines = (run / "metrics.jsonl").read_text().splitlines()
    (run / "metrics.jsonl").write_text(f"{lines[0]}\n" if len(lines) > 1 else "")


def _spoil_checkpoint(run):
    content = bytearray((run / "checkpoint.pt").read_bytes())
    content[len(content) // 2] ^= 1
    (run / "checkpoint.pt").write_bytes(content)


@pytest.mark.parametrize(
    ("moment", "spoil"),
    [
        (("epoch", 0, 1), _spoil_metrics),
        (("epoch", 0, 1), _spoil_checkpoint),
        (("epoch", 0, 1), lambda run: (run / "config.toml").write_text("epochs = ")),
        (("epoch", 0, 2), _spoil_metrics),
    ],
    ids=["metrics", "checkpoint", "config", "metrics of the whole run"],
)
def test_a_damaged_trial_is_repeated_and_never_scored_wrongly(searched, tmp_path, caplog, moment, spoil):
    def stop(event):
        if event == moment:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        open_search(tmp_path / "search", 1).run(Watched(stop))
    spoil(tmp_path / "search/trials/000/seed-0")
    open_search(tmp_path / "search", 1).run(Watched())
    assert "Trial 0 is restarted" in caplog.text
    folder, _ = searched
    ours, theirs = results(open_search(tmp_path / "search", 1))[0], results(open_search(folder, TRIALS))[0]
    assert outcome(ours) == outcome(theirs)


def test_a_full_disk_is_nobodys_failure(tmp_path, monkeypatch):
    search = open_search(tmp_path, 2)

    def stop(event):
        if event == ("epoch", 0, 1):
            raise RunError("disk full") from OSError(28, "No space left on device")

    with pytest.raises(RunError, match="disk full"):
        search.run(Watched(stop))
    assert results(search)[0].state == "waiting"
    assert open_search(tmp_path, 2).run(Watched()) == 2
    assert count_states(results(search)) == "2 trials: 2 complete"


@pytest.mark.slow
@pytest.mark.parametrize("error", [torch.OutOfMemoryError("no memory left"), MemoryError()])
def test_settings_that_need_too_much_memory_fail_and_the_search_goes_on(tmp_path, error):
    def stop(event):
        if event == ("epoch", 0, 1):
            raise error

    search = open_search(tmp_path, 2)
    assert search.run(Watched(stop)) == 2
    assert count_states(results(search)) == "2 trials: 1 complete, 1 failed"
    assert results(search)[0].error == (str(error) or "MemoryError")


@pytest.mark.slow
@pytest.mark.parametrize(("others", "state", "epochs"), [(101.0, "pruned", 4), (-1.0, "complete", 6)])
def test_a_trial_that_lags_behind_is_pruned_late_and_never_early(tmp_path, others, state, epochs):
    search = open_search(tmp_path, 6, quick_plan("epochs=6", search="rho=0.1:0.5"))
    for _ in range(5):
        values = dict.fromkeys(range(1, 7), others)
        settings = {"params": {"rho": 0.3}, "distributions": {"rho": FloatDistribution(0.1, 0.5)}}
        search._queue.study.add_trial(create_trial(value=others, intermediate_values=values, **settings))
    search.run(Watched())
    result = results(search)[5]
    assert (result.state, result.epochs) == (state, epochs)
    assert result.accuracy is not None
    assert result.steps == 2 * epochs


@pytest.mark.parametrize(("epochs", "first"), [(1, 1), (2, 2), (3, 2), (30, 20), (40, 27), (200, 134)])
def test_the_first_epoch_that_may_be_pruned(epochs, first):
    assert make_pruner(epochs)._n_warmup_steps == first


@pytest.mark.parametrize(
    ("plan", "trials", "parts"),
    [
        ({"changes": ("lr=0.2",)}, 1, ["lr 0.1 instead of 0.2"]),
        ({"changes": ("vsam.slices=2",)}, 1, ["vsam.slices 5 instead of 2"]),
        ({"changes": (), "search": "rho=0.1:0.2"}, 1, ["search", "instead of rho=0.1:0.2"]),
        ({"changes": (), "seeds": 2}, 1, ["seeds 1 instead of 2"]),
        ({"changes": (), "method": "sam"}, 1, ["method", "vsam", "sam"]),
    ],
)
def test_another_search_in_the_folder_is_refused(searched, plan, trials, parts):
    folder, _ = searched
    changes = plan.pop("changes")
    with pytest.raises(UserError, match="has another search") as raised:
        open_search(folder, trials, quick_plan(*changes, **plan))
    for part in parts:
        assert part in str(raised.value)


def test_a_folder_whose_results_are_elsewhere_is_refused_without_them(tmp_path):
    open_search(tmp_path / "search", 1, storage=f"sqlite:///{tmp_path}/study.db")
    with pytest.raises(UserError, match='storage "elsewhere" instead of "in this folder"'):
        open_search(tmp_path / "search", 1)
    assert not (tmp_path / "search" / "study.db").exists()


@pytest.mark.parametrize("content", ["", "[]", "{}", "null"])
def test_a_folder_with_a_spoilt_note_is_refused(tmp_path, content):
    (tmp_path / "search.json").write_text(content)
    with pytest.raises(UserError, match=r"search\.json cannot be read"):
        open_search(tmp_path, 1)
