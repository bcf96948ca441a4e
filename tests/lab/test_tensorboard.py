"""TensorBoard logs: a point per step and per epoch, also where a run was resumed."""

import sys
from contextlib import closing

import pytest

from lab.helpers import CPU, lines, open_run, quick_recipe
from vsam.lab.compare import compare
from vsam.lab.errors import UserError
from vsam.lab.tensorboard import observer

pytest.importorskip("tensorboard", reason="TensorBoard is not installed")


def scalars(path):
    """The points of every curve as (step, value)."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(path / "tensorboard"), size_guidance={"scalars": 0}).Reload()
    return {tag: [(event.step, event.value) for event in found.Scalars(tag)] for tag in found.Tags()["scalars"]}


def test_rate_norms_and_samples_are_there_for_every_step_also_after_a_stop(tmp_path):
    for _ in range(2):
        with closing(open_run(tmp_path / "run", "method=vsam")) as run:
            observer(True)(run)
            run.train_epoch()
            steps = run.total_steps
    found = scalars(tmp_path / "run")
    for name in ("loss", "lr", "rate", "grad_norm", "samples"):
        assert [step for step, _ in found[f"step/{name}"]] == list(range(1, steps + 1)), name
    written = lines(tmp_path / "run" / "steps.jsonl")
    assert [step for step, _ in found["step/psf_norm"]] == [line["step"] for line in written]
    assert [value for _, value in found["step/psf_norm"]] == pytest.approx([line["psf_norm"] for line in written])
    assert found["step/samples"][-1][1] == len(written)
    metrics = lines(tmp_path / "run" / "metrics.jsonl")
    assert [value for _, value in found["test_accuracy"]] == pytest.approx([line["test_accuracy"] for line in metrics])


def test_a_comparison_logs_each_of_its_runs_and_leaves_finished_ones_alone(tmp_path):
    recipes = [quick_recipe("data.train=32", "epochs=1", f"method={name}") for name in ("sgd", "sam")]
    compare(recipes[:1], tmp_path, None, CPU)
    compare(recipes, tmp_path, None, CPU, observe=observer(True))
    (logged,) = tmp_path.rglob("tensorboard")
    assert logged.parent.parent.name == "sam"


def test_without_the_package_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(UserError, match="pip install"):
        observer(True)
