"""Warnings point at the user's line, examples run, and the loops of other packages are recognised."""

import inspect
import math
import pickle
import re
import textwrap
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD

import vsam
from vsam._step import foreach, misuse
from vsam._step.misuse import ACCUMULATION_EXAMPLE, CLOSURE_EXAMPLE, LOOP_EXAMPLE, Advice


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
    monkeypatch.setattr(foreach, "HOST", "nowhere")  # where a fused base skips by itself
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


def make_sam() -> vsam.SAM:
    return vsam.SAM(SGD([nn.Parameter(torch.ones(2))], lr=0.1))


def test_the_example_of_a_closure_is_four_lines_that_run() -> None:
    model = nn.Linear(2, 1)
    around: dict[str, Any] = {
        "model": model,
        "criterion": nn.MSELoss(),
        "inputs": torch.ones(3, 2),
        "targets": torch.ones(3, 1),
        "optimizer": vsam.SAM(SGD(model.parameters(), lr=0.1)),
    }
    exec(textwrap.dedent(CLOSURE_EXAMPLE), around)
    assert around["optimizer"].num_samples == 1
    assert len(CLOSURE_EXAMPLE.strip().splitlines()) == 4 + 1  # and the call


def test_the_example_of_accumulation_runs_and_sums_up_the_micro_batches() -> None:
    torch.manual_seed(0)
    models = [nn.Linear(2, 1) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    batch, targets = torch.randn(6, 2), torch.randn(6, 1)
    parts = [*zip(batch.split(2), targets.split(2), strict=True)]
    for model, micro_batches in zip(models, ([(batch, targets)], parts), strict=True):
        around: dict[str, Any] = {
            "model": model,
            "criterion": nn.MSELoss(),
            "micro_batches": micro_batches,
            "optimizer": vsam.SAM(SGD(model.parameters(), lr=0.1), rho=0.5),
        }
        exec(textwrap.dedent(ACCUMULATION_EXAMPLE), around)
        assert around["optimizer"].num_samples == 1
    torch.testing.assert_close(models[0].weight, models[1].weight)


def test_a_step_on_nothing_shows_the_example() -> None:
    optimizer = make_sam()
    with pytest.raises(RuntimeError, match="without a closure") as caught:
        optimizer.step()
    assert CLOSURE_EXAMPLE in str(caught.value)
    for call in (lambda: make_sam().step(lambda: torch.tensor(1.0)), make_sam().perturb):
        with pytest.warns(RuntimeWarning, match="No parameter has a gradient") as warned:
            call()
        assert CLOSURE_EXAMPLE in str(warned[0].message)
    with pytest.raises(ValueError, match="closure must be a function") as refused:
        optimizer.step(torch.tensor(1.0))  # type: ignore[arg-type]
    assert CLOSURE_EXAMPLE in str(refused.value)


def test_the_example_of_a_loop_without_a_closure_runs() -> None:
    model = nn.Linear(2, 1)
    optimizer = vsam.SAM(SGD(model.parameters(), lr=0.1), model=model)
    around = {"model": model, "criterion": nn.MSELoss(), "inputs": torch.ones(3, 2), "targets": torch.ones(3, 1)}
    exec(textwrap.dedent(LOOP_EXAMPLE), {**around, "optimizer": optimizer})
    assert optimizer.num_samples == 1


@pytest.mark.parametrize("name", ["first_step", "second_step"])
def test_the_usual_names_of_the_two_steps_show_our_loop(name: str) -> None:
    optimizer = make_sam()
    assert not hasattr(optimizer, name)
    with pytest.raises(AttributeError, match=name) as caught:
        getattr(optimizer, name)(zero_grad=True)
    assert LOOP_EXAMPLE in str(caught.value)
    assert (Path(__file__).parents[2] / re.search(r"docs/\S+\.md", str(caught.value))[0]).is_file()
    assert not hasattr(pickle.loads(pickle.dumps(optimizer)), name)


class Loop:
    """Another package whose loop is registered with its advice."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str = "elsewhere", **settings: Any) -> None:
        monkeypatch.setattr(misuse, "_ADVICE", dict(misuse._registered()))
        misuse.register_advice(name, Advice(f"Write it as {name} does.", **settings))
        self.module = ModuleType(f"{name}.loops")
        exec("def run(function, *given, **named): return function(*given, **named)", vars(self.module))
        exec("def wrapped(closure): return closure()", vars(self.module))

    def run(self, function: Any, *given: Any, **named: Any) -> Any:
        return self.module.run(function, *given, **named)


def test_a_registered_loop_gets_its_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop(monkeypatch)
    with pytest.raises(RuntimeError, match="as elsewhere does"):
        loop.run(make_sam().step)
    with pytest.raises(RuntimeError, match="Pass it a closure"):
        make_sam().step()
    with pytest.raises(ValueError, match="Write:"):  # it constructs nothing: the mistake is the user's
        loop.run(vsam.SAM, SGD)


def test_a_package_that_constructs_optimizers_gets_its_advice_there(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop(monkeypatch, constructs=True)
    for wrong in (SGD, [SGD], None):
        with pytest.raises(ValueError, match="as elsewhere does"):
            loop.run(vsam.SAM, wrong)
    with pytest.raises(ValueError, match="as elsewhere does"):
        loop.run(vsam.SharpnessAware, base=SGD)


def test_the_outermost_loop_is_the_one_that_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    inner = Loop(monkeypatch, "inner")
    outer = Loop(monkeypatch, "outer")
    misuse.register_advice("inner", Advice("Write it as inner does."))
    with pytest.raises(RuntimeError, match="as outer does"):
        outer.run(inner.run, make_sam().step)


def test_a_registered_package_adapts_its_own_partial_closures_only(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def adapt(closure: partial[Any], optimizer: Any) -> Any:
        seen.append((closure, optimizer))
        return closure.args[0]

    loop, optimizer = Loop(monkeypatch, adapt=adapt), make_sam()
    weight = optimizer.param_groups[0]["params"][0]

    def closure(factor: float = 1.0) -> torch.Tensor:
        loss = factor * weight.sum()
        loss.backward()
        return loss

    theirs = partial(loop.module.wrapped, closure)
    optimizer.step(theirs)
    assert seen == [(theirs, optimizer)]
    optimizer.step(partial(closure, 2.0))
    optimizer.step(closure)
    assert len(seen) == 1
    assert optimizer.num_samples == 3


def test_a_registered_package_checks_the_first_step_if_it_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    Loop(monkeypatch, "pytest", check_first_step=calls.append)
    misuse.register_advice("never_imported", Advice("", check_first_step=lambda optimizer: calls.append("never")))
    optimizer = make_sam()
    for _ in range(3):
        optimizer.step(lambda: optimizer.param_groups[0]["params"][0].sum().backward())
    assert calls == [optimizer]
