"""Warnings point at the line of whoever called the library, past torch's wrappers."""

import inspect
import math
import warnings
from collections.abc import Callable

import pytest
import torch
from torch import nn

import vsam
from vsam import tensors
from vsam.caller import calling_package


class _Training:
    """One weight whose gradient is never finite."""

    def __init__(self, **options: bool) -> None:
        self.weight = nn.Parameter(torch.ones(2))
        self.optimizer = vsam.SAM(torch.optim.SGD([self.weight], lr=0.1, **options))
        self.scaler = vsam.amp.GradScaler("cpu", init_scale=1.0)

    def closure(self, value: float = math.nan) -> torch.Tensor:
        loss = (self.weight * value).sum()
        self.scaler.scale(loss).backward()
        return loss


def _step(run: _Training) -> None:
    run.optimizer.step(run.closure)


def _loop(run: _Training) -> None:
    run.closure()
    run.optimizer.perturb()
    run.closure()
    run.optimizer.step()


def _scaled(run: _Training) -> None:
    run.scaler.step(run.optimizer, run.closure)


def _scheduled(run: _Training) -> None:
    torch.optim.lr_scheduler.ExponentialLR(run.optimizer, 0.9)  # wraps `step`
    run.optimizer.step(run.closure)


def _asked_later(run: _Training) -> None:
    run.optimizer.step(lambda: run.closure(1.0))
    run.optimizer.step(run.closure)
    assert run.optimizer.num_skipped == 1  # where a fused base skipped by itself, it is found out here


@pytest.mark.parametrize(
    ("train", "line", "options"),
    [
        (_step, "run.optimizer.step(run.closure)", {}),
        (_loop, "run.optimizer.step()", {}),
        (_scheduled, "run.optimizer.step(run.closure)", {}),
        (_asked_later, "run.optimizer.num_skipped", {"fused": True}),
    ],
)
def test_a_skipped_step_is_reported_where_it_was_called(
    train: Callable[[_Training], None], line: str, options: dict[str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensors, "HOST", "nowhere")  # where a fused base skips by itself
    run = _Training(**options)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        train(run)
    (warning,) = caught
    assert warning.filename == __file__
    first = inspect.getsourcelines(train)[1]
    assert line in inspect.getsource(train).splitlines()[warning.lineno - first]


def test_a_step_that_a_scaler_makes_up_for_is_not_reported() -> None:
    run = _Training()
    _scaled(run)  # a warning would be an error here
    assert run.optimizer.num_skipped == 1
    run.scaler.update()
    assert run.scaler.get_scale() == 0.5


def test_a_step_without_a_gradient_is_reported_once_where_it_was_called() -> None:
    run = _Training()
    with pytest.warns(RuntimeWarning, match="No parameter has a gradient") as caught:
        run.optimizer.step(lambda: torch.tensor(1.0))
    run.optimizer.step(lambda: torch.tensor(1.0))  # a second warning would be an error here
    (warning,) = caught
    assert warning.filename == __file__
    assert run.optimizer.last is None


def test_masks_that_cannot_be_repeated_are_reported_where_perturb_was_called() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5))
    optimizer = vsam.SAM(torch.optim.SGD(model.parameters(), lr=0.1), model=model)
    model[0](torch.ones(1, 2)).sum().backward()  # past the model's own hook
    with pytest.warns(RuntimeWarning, match="No forward pass of model was seen") as caught:
        optimizer.perturb()
    assert caught[0].filename == __file__


def test_the_outermost_known_package_is_the_one_that_called() -> None:
    program = "found = calling_package({'inner', 'outer'})"
    inner = {"__name__": "inner.module", "calling_package": calling_package, "program": program}
    outer = {"__name__": "outer", "inner": inner}
    exec("exec(inner['program'], inner)", outer)
    assert inner["found"] == "outer"
    exec(program, inner)
    assert inner["found"] == "inner"
    assert calling_package({"nobody"}) is None
