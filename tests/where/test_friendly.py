"""Friendly takes the running average out of the direction, and its average is kept, skipped and saved with the run."""

import copy

import pytest
import torch

from contract_table import Run, assert_same, through_a_file
from vsam import Always, Friendly, Plain
from vsam.registry import describe


def test_direction_and_average() -> None:
    where, g, m = Friendly(sigma=0.5, decay=0.75), [torch.tensor([4.0, 8.0])], [torch.tensor([2.0, -2.0])]
    assert where.directions(g, m)[0].tolist() == [3.0, 9.0]
    average = where.remember(g, m)
    assert average is not None
    assert average[0].tolist() == [2.5, 0.5]
    assert m[0].tolist() == [2.0, -2.0]
    assert g[0].tolist() == [4.0, 8.0]


def test_nothing_taken_out_is_sam_to_the_bit() -> None:
    assert not Friendly(sigma=0).num_buffers
    assert_same(Run("friendly-sam", "momentum", sigma=0).go().weights(), Run("sam", "momentum").go().weights())


def test_the_average_is_saved_and_a_damaged_one_is_refused() -> None:
    run = Run("friendly-sam").go(last=3)
    state = through_a_file(run.optimizer.state_dict())
    assert len(state["sharpness"]["averages"]) == len(run.weights())
    missing = copy.deepcopy(state)
    del missing["sharpness"]["averages"]
    with pytest.raises(ValueError, match="it needs age, averages"):
        run.optimizer.load_state_dict(missing)
    damaged = copy.deepcopy(state)
    damaged["sharpness"]["averages"][0] = torch.ones(1)
    with pytest.raises(ValueError, match="memory has a tensor of shape"):
        run.optimizer.load_state_dict(damaged)


@pytest.mark.parametrize("fused", [False, True])
def test_a_skipped_step_leaves_the_average_alone(fused: bool) -> None:
    run = Run("friendly-sam", lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, fused=fused)).go(last=3)
    before = run.optimizer.state_dict()["sharpness"]["averages"]
    closure = run.closure(3)

    def bad() -> torch.Tensor:
        loss = closure()
        next(run.model.parameters()).grad.fill_(float("inf"))
        return loss

    with pytest.warns(RuntimeWarning, match="not finite"):
        _ = run.optimizer.step(bad), run.optimizer.num_skipped  # the second looks at what a fused base decided
    assert run.optimizer.num_skipped == 1
    assert_same(run.optimizer.state_dict()["sharpness"]["averages"], before)


@pytest.mark.parametrize("settings", [{"sigma": -1}, {"decay": 1}, {"decay": -0.1}, {"rho": -1}])
def test_settings_that_cannot_be_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(settings))):
        Friendly(**settings)  # type: ignore[arg-type]


def test_a_base_that_fails_leaves_the_average_alone() -> None:
    run = Run("friendly-sam").go(last=3)
    before = copy.deepcopy(run.optimizer.state_dict()["sharpness"])

    def fail(*_: object) -> None:
        raise MemoryError

    handle = run.optimizer.base.register_step_pre_hook(fail)
    with pytest.raises(MemoryError):
        run.step(3)
    handle.remove()
    assert_same(run.optimizer.state_dict()["sharpness"], before)


def test_without_an_average_to_subtract_it_is_described_as_sam() -> None:
    assert "Published as SAM (" in describe(Always(), Friendly(sigma=0), Plain())
    assert "Published as Friendly SAM (" in describe(Always(), Friendly(), Plain())
