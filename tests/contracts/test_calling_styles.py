"""`step(closure)` and `perturb()` / `step()` are the same to the bit."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from contract_table import (
    LENGTH,
    ORDINARY,
    Run,
    assert_same,
    every_early_looping_method,
    every_looping_method,
    set_generators,
)


@every_looping_method
@pytest.mark.parametrize("base", ORDINARY)
def test_both_styles_are_the_same(method: str, base: str) -> None:
    closure, loop = Run(method, base).go(), Run(method, base)
    for number in range(LENGTH):
        loop.step_without_closure(number)
    assert_same(loop.everything(), closure.everything())
    assert loop.records == [replace(record, loss=None, rise=None) for record in closure.records]
    assert loop.num_passes == closure.num_passes


@every_looping_method
def test_styles_may_take_turns(method: str) -> None:
    closure, mixed = Run(method, "momentum").go(), Run(method, "momentum")
    for number in range(LENGTH):
        (mixed.step if number % 3 else mixed.step_without_closure)(number)
    assert_same(mixed.everything(), closure.everything())


@every_looping_method
def test_gradients_are_cleared_and_statistics_frozen_in_between(method: str) -> None:
    run = Run(method)
    for number in range(3):
        run.optimizer.zero_grad()
        run.loss(number).backward()
        if run.optimizer.perturb():
            assert all(p.grad is None for p in run.model.parameters())
            statistics = [buffer.clone() for buffer in run.model.buffers()]
            run.loss(number).backward()
            run.optimizer.step()
            assert_same(list(run.model.buffers()), statistics)
        else:
            run.optimizer.step()
        assert run.model[2].track_running_stats


INTERRUPTIONS: dict[str, Callable[[Run], object]] = {
    "zero_grad": lambda run: run.optimizer.zero_grad(),
    "state_dict": lambda run: run.optimizer.state_dict(),
    "load_state_dict": lambda run: run.optimizer.load_state_dict(run.optimizer.state_dict()),
}


@every_looping_method
@pytest.mark.parametrize("interruption", INTERRUPTIONS)
def test_giving_up_puts_everything_back(method: str, interruption: str) -> None:
    """The step is then tried again, and the run is the one that was never interrupted."""
    expected = Run(method, "momentum").go(last=16).everything()
    run, num_interrupted = Run(method, "momentum"), 0
    for number in range(16):
        before, weights = run.everything(), run.weights()
        run.optimizer.zero_grad()
        run.loss(number).backward()
        if run.optimizer.perturb():
            num_interrupted += 1
            assert any(not torch.equal(p, w) for p, w in zip(run.model.parameters(), weights, strict=True))
            INTERRUPTIONS[interruption](run)
            assert_same(run.weights(), weights)
            assert run.model[2].track_running_stats
            assert_same(run.optimizer.state_dict(), before["optimizer"])
            with pytest.raises(RuntimeError, match="without a closure"):
                run.optimizer.step()
        # The first pass was the loop's own: its statistics and draws are the loop's to take back.
        run.model.load_state_dict(before["model"])
        set_generators(before["generators"])
        run.step(number)
    assert num_interrupted >= 3
    assert_same(run.everything(), expected)


@every_early_looping_method
def test_perturbing_twice_is_an_error_and_zero_grad_begins_from_the_weights(method: str) -> None:
    """The second time, the gradients are those at the perturbed weights."""
    run = Run(method, rho=0.25)
    weights = run.weights()
    for _ in range(3):
        run.loss(0).backward()
        run.optimizer.perturb()
        moved = sum(float((p - w).square().sum()) for p, w in zip(run.weights(), weights, strict=True)) ** 0.5
        assert method == "asam" or moved == pytest.approx(0.25, rel=1e-4)
        run.loss(0).backward()
        with pytest.raises(RuntimeError, match="without step"):
            run.optimizer.perturb()
        run.optimizer.zero_grad()
        assert_same(run.weights(), weights)


@every_looping_method
def test_a_closure_after_perturb_begins_from_the_weights(method: str) -> None:
    run = Run(method)
    weights, seen = run.weights(), []
    run.loss(0).backward()
    run.optimizer.perturb()
    run.optimizer.step(run.closure(0, before=lambda: seen.append(run.weights())))
    assert_same(seen[0], weights)


@every_looping_method
def test_step_alone_says_what_a_closure_is(method: str) -> None:
    run = Run(method)
    run.loss(0).backward()
    before = run.everything()
    with pytest.raises(RuntimeError) as caught:
        run.optimizer.step()
    message = str(caught.value)
    for part in ("closure", "def closure():", "loss.backward()", "return loss", "optimizer.step(closure)", "perturb()"):
        assert part in message
    assert_same(run.everything(), before)


def test_step_twice_after_one_perturb_is_refused() -> None:
    run = Run("sam")
    run.step_without_closure(0)
    with pytest.raises(RuntimeError, match="without a closure"):
        run.optimizer.step()


def test_what_is_not_a_function_is_refused() -> None:
    run = Run("sam")
    with pytest.raises(ValueError, match="closure must be a function, got Tensor"):
        run.optimizer.step(run.loss(0))  # type: ignore[arg-type]


def test_perturb_and_step_without_a_gradient_do_nothing_and_say_so_once() -> None:
    run = Run("vsam")
    before = run.everything()
    with pytest.warns(RuntimeWarning, match="No parameter has a gradient"):
        assert not run.optimizer.perturb()
    run.optimizer.step()
    assert not run.optimizer.perturb()
    run.optimizer.step()
    assert_same(run.everything(), before)
    run.step(0)


def test_a_missing_second_backward_is_refused_and_the_weights_are_back() -> None:
    run = Run("sam")
    weights = run.weights()
    run.loss(0).backward()
    assert run.optimizer.perturb()
    with pytest.raises(RuntimeError, match="No parameter has a gradient"):
        run.optimizer.step()
    assert_same(run.weights(), weights)
