"""After an exception in a closure everything is as before the step, and the run goes on as if it had not happened."""

import itertools

import pytest
import torch

from contract_table import (
    LENGTH,
    Run,
    assert_same,
    every_looping_method,
    every_method,
    every_ordinary_case,
)


class _Failure(Exception):
    pass


def _failing_step(run: Run, number: int, at_pass: int, error: BaseException) -> None:
    """A step that fails at the given pass behind its forward (odd steps) or late in its backward (even ones)."""
    passes = itertools.count(1)

    def fail(*_: object) -> None:
        if next(passes) == at_pass:
            raise error

    if number % 2:
        run.optimizer.step(run.closure(number, after=fail))
        return
    handle = run.model[1].weight.register_hook(fail)
    try:
        run.optimizer.step(run.closure(number))
    finally:
        handle.remove()


@every_ordinary_case
@pytest.mark.parametrize("at_pass", [1, 2])
def test_nothing_has_happened(method: str, base: str, at_pass: int) -> None:
    undisturbed, run = Run(method, base).go(last=16).everything(), Run(method, base)
    num_failures = 0
    for number in range(16):
        before, last = run.everything(), run.optimizer.last
        try:
            _failing_step(run, number, at_pass, _Failure())
        except _Failure:
            num_failures += 1
            assert_same(run.everything(), before)
            assert run.optimizer.last is last
            run.step(number)
    assert num_failures >= 3
    assert_same(run.everything(), undisturbed)


@every_method
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, MemoryError])
def test_whatever_the_exception(method: str, error: type[BaseException]) -> None:
    run = Run(method).go(last=3)
    for number in range(3, 8):
        before = run.everything()
        for at_pass in (1, 2):
            try:
                _failing_step(run, number, at_pass, error())
            except error:
                assert_same(run.everything(), before)
                assert all(layer.track_running_stats for layer in run.model if hasattr(layer, "track_running_stats"))
            else:
                before = run.everything()


@every_looping_method
def test_a_closure_without_backward_does_nothing_and_says_so_once(method: str) -> None:
    """torch's optimizers do the same. A callback may leave out the backward pass for a while."""
    run = Run(method).go(last=14)  # by then vSAM draws
    before = run.everything()["optimizer"], run.weights()
    with pytest.warns(RuntimeWarning, match=r"(?s)No parameter has a gradient.*loss\.backward\(\)"):
        loss = run.optimizer.step(lambda: run.loss(2))
    assert loss.requires_grad
    run.optimizer.step(lambda: run.loss(2))
    assert_same((run.everything()["optimizer"], run.weights()), before)


@every_looping_method
def test_a_loop_without_a_closure_goes_on_after_a_failed_one(method: str) -> None:
    undisturbed, run = Run(method).go(last=LENGTH), Run(method)
    for number in range(LENGTH):
        before = run.everything()
        with pytest.raises(_Failure):
            _failing_step(run, number, 1, _Failure())
        assert_same(run.everything(), before)
        run.step_without_closure(number)
    assert_same(run.everything(), undisturbed.everything())


def test_a_closure_that_switches_to_training_mode_itself() -> None:
    """As after an evaluation: the statistics that its failed pass wrote are taken back too."""
    run = Run("sam").go(last=2)
    run.model.eval()
    before = run.everything()

    def closure() -> torch.Tensor:
        run.model.train()
        run.loss(2)
        raise _Failure

    with pytest.raises(_Failure):
        run.optimizer.step(closure)
    assert_same(run.everything(), before)


def test_a_gradient_hook_that_fails() -> None:
    """Backward itself may fail half way, with some gradients there and others not."""
    run = Run("vsam").go(last=2)
    before, calls = run.everything(), []

    def fail(gradient: torch.Tensor) -> None:
        calls.append(gradient)
        if len(calls) == 2:
            raise _Failure

    handle = run.model[1].weight.register_hook(fail)
    with pytest.raises(_Failure):
        run.step(2)
    handle.remove()
    assert len(calls) == 2
    assert_same(run.everything(), before)
