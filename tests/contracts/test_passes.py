"""The closure runs exactly 1 + sampled times, and `step` returns the first pass's loss."""

import pytest
import torch

import vsam
from contract_table import (
    ALWAYS,
    EXEMPTIONS,
    LENGTH,
    METHODS,
    Run,
    argument,
    every_case,
    every_method,
    every_method_that,
)


@every_case
def test_closure_runs_once_and_once_more_at_a_sample(method: str, base: str) -> None:
    run = Run(method, base)
    for number in range(LENGTH):
        before = run.num_passes
        run.step(number)
        assert run.num_passes - before == 1 + run.records[-1].sampled
    assert run.optimizer.num_samples == sum(run.samples)
    assert [record.step for record in run.records] == list(range(1, LENGTH + 1))
    assert run.optimizer.num_skipped == 0
    assert not any(record.skipped for record in run.records)


@every_method_that("is called 1 + sampled times")
def test_every_call_is_a_pass_with_gradient(method: str) -> None:
    run = Run(method).go()
    assert run.num_calls == run.num_passes


@pytest.mark.parametrize(("gamma", "num_calls"), [(0.5, 3), (0.25, 3), (1.0, 2)])
def test_choosing_samples_is_one_call_more(gamma: float, num_calls: int) -> None:
    """The exemption is that wide and no wider: where all samples are kept, the promise holds."""
    run = Run("esam", gamma=gamma)
    for number in range(3):
        run.step(number)
        assert (run.num_calls, run.num_passes) == ((number + 1) * num_calls, (number + 1) * 2)


def test_exemptions_are_three_and_of_two_methods() -> None:
    assert [list(methods) for methods in EXEMPTIONS.values()] == [["esam"], ["esam"], ["sam-late"]]


@every_method
def test_the_table_tries_what_it_claims(method: str) -> None:
    """A table on which a method never skips, or its rule never acts, would prove nothing."""
    run = Run(method, "momentum").go()
    assert any(run.samples)
    assert all(run.samples) == (method in ALWAYS)
    if method.startswith("vsam"):
        targets = {record.s for record in run.records}
        assert len(targets) > 1
        assert run.records[-1].change_var is not None


@every_method
def test_step_returns_the_loss_of_the_first_pass(method: str) -> None:
    run = Run(method)
    for number in range(LENGTH):
        means: list[torch.Tensor] = []

        def losses(keep=None, number=number, means=means) -> torch.Tensor:
            values = run.losses(number, keep)
            means.append(values.detach().mean())
            return values

        returned = run.optimizer.step(argument(method, losses))
        assert torch.equal(returned, means[0])
        last = run.optimizer.last
        assert last is not None
        assert torch.equal(last.loss, means[0])
        assert not last.loss.requires_grad


def test_each_fixed_rule_samples_its_steps() -> None:
    five = [number % 5 == 0 for number in range(LENGTH)]
    assert Run("sam-5").go().samples == five
    assert Run("looksam-5").go().samples == five
    for method in ("vsam", "vsam-released", "vsam-a"):
        assert all(Run(method).go(last=12).samples)


@pytest.mark.parametrize("value", [1.5, None, {"loss": 2.0}])
def test_closure_may_return_anything(value: object) -> None:
    run = Run("sam")
    backward = run.closure(0)
    assert run.optimizer.step(lambda: (backward(), value)[1]) is value
    assert run.optimizer.last is not None
    assert run.optimizer.last.loss == value


@every_method
def test_closure_may_clear_the_gradients_itself(method: str) -> None:
    plain, clearing = Run(method).go(), Run(method)
    for number in range(LENGTH):
        clearing.optimizer.step(clearing.closure(number, before=clearing.optimizer.zero_grad))
    for left, right in zip(plain.weights(), clearing.weights(), strict=True):
        assert torch.equal(left, right)


def test_every_method_is_in_the_table() -> None:
    built = {type(METHODS[name](torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=1))) for name in METHODS}
    built.add(vsam.MSAM)  # refuses bases without momentum: test_displaced.py holds it to the promises
    assert built == {kind for kind in vars(vsam).values() if type(kind) is type(vsam.SAM) and _is_named(kind)}


def _is_named(kind: type) -> bool:
    return issubclass(kind, vsam.SharpnessAware) and kind is not vsam.SharpnessAware
