"""Records in `last` and for listeners: rate, age, norms and rise. Listeners stay with their optimizer."""

import copy
import math
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import vsam
from contract_table import ALWAYS, LENGTH, Run, every_looping_method, every_method


@every_method
def test_rate_is_that_of_the_rule_in_force(method: str) -> None:
    run = Run(method, "momentum").go()
    for i, record in enumerate(run.records):
        if method in ALWAYS:
            expected = 1.0
        elif method in ("sam-5", "looksam-5"):
            expected = 1 / 5
        elif method == "sam-late":
            expected = 0.5
        elif method == "budget":
            expected = 0.4
        elif method == "ae-sam":
            expected = sum(run.samples[: i + 1]) / (i + 1)
        else:
            assert record.s is not None
            expected = 1.0 if record.step <= 12 else record.s / 6
        assert record.rate == pytest.approx(expected, abs=1e-15)


def test_rate_stays_while_the_halt_holds() -> None:
    """A window that is full is no change of the rule."""
    run = Run("vsam", max_rate=0.5).go()
    assert run.optimizer.when.highest == 3  # type: ignore[attr-defined]
    windows = [run.samples[first : first + 6] for first in range(12, LENGTH, 6)]
    assert max(map(sum, windows)) <= 3
    assert all(record.rate == record.s / 6 for record in run.records[12:] if record.s is not None)


@every_method
def test_age_counts_the_steps_since_the_last_sample(method: str) -> None:
    run, age = Run(method).go(), None
    for record in run.records:
        age = 0 if record.sampled else None if age is None else age + 1
        assert record.age == age


def test_age_is_none_before_the_first_sample() -> None:
    run = Run("vsam", rho=0.05)
    run.optimizer.when.start = 0  # type: ignore[attr-defined]
    run.optimizer.when.s = 1e-9  # type: ignore[attr-defined]
    assert [record.age for record in run.go(last=3).records] == [None, None, None]


@every_method
def test_norms_are_told_where_somebody_listens(method: str) -> None:
    run, heard = Run(method), []
    run.optimizer.subscribe(heard.append)
    run.go()
    assert heard == run.records
    for record in heard:
        assert record.grad_norm > 0
        assert (record.psf_norm is not None) == record.sampled
        assert record.psf_norm is None or record.psf_norm > 0


@every_method
def test_norms_are_left_out_where_nobody_needs_them(method: str) -> None:
    for record in Run(method).go().records:
        if method in ("sam-5", "budget", "vsam", "vsam-a", "vsam-released") and not record.sampled:
            assert record.grad_norm is None
        if method == "ae-sam":
            assert record.grad_norm is not None
        # The released variant of this table watches all tensors, so it knows the norm.
        assert (record.psf_norm is not None) == (record.sampled and method == "vsam-released")


@every_method
def test_listening_changes_nothing(method: str) -> None:
    silent, loud = Run(method, "momentum").go(), Run(method, "momentum")
    loud.optimizer.subscribe(lambda record: None)
    loud.go()
    assert [w.tolist() for w in silent.weights()] == [w.tolist() for w in loud.weights()]
    assert silent.samples == loud.samples


def test_norms_are_over_all_parameters() -> None:
    run = Run("vsam")  # its rule watches three tensors only
    run.optimizer.subscribe(lambda record: None)
    gradients = []
    closure = run.closure(0)

    def keep() -> object:
        loss = closure()
        gradients.append([p.grad.clone() for p in run.model.parameters() if p.grad is not None])
        return loss

    run.optimizer.step(keep)
    first, second = gradients
    record = run.optimizer.last
    assert record is not None
    assert record.grad_norm == pytest.approx(sum(float(g.square().sum()) for g in first) ** 0.5, rel=1e-5)
    psf = sum(float((s - g).square().sum()) for s, g in zip(second, first, strict=True)) ** 0.5
    assert record.psf_norm == pytest.approx(psf, rel=1e-5)


@every_method
def test_rise_is_that_of_the_losses_of_both_passes(method: str) -> None:
    run = Run(method, "momentum")
    losses, means = run.losses, []

    def kept(number: int, keep: Tensor | None = None) -> Tensor:
        values = losses(number, keep)
        if keep is None:  # ESAM's second gradient is of some samples only
            means.append(values.mean().item())
        return values

    run.losses = kept  # type: ignore[method-assign]
    for number in range(LENGTH):
        means.clear()
        run.step(number)
        expected = means[1] / means[0] - 1 if run.records[-1].sampled else None
        assert run.records[-1].rise == (None if expected is None else pytest.approx(expected, abs=1e-12))
    assert any(record.rise for record in run.records)


@every_looping_method
def test_rise_is_unknown_without_a_closure(method: str) -> None:
    run = Run(method)
    for number in range(LENGTH):
        run.step_without_closure(number)
    assert {record.rise for record in run.records} == {None}


def test_rise_is_unknown_if_no_pass_is_at_the_weights_or_only_one_of_a_part() -> None:
    for make in (lambda base: vsam.MSAM(base), lambda base: vsam.SAM(base, share=0.5)):
        weight = nn.Parameter(torch.ones(3))
        optimizer = make(torch.optim.SGD([weight], lr=0.1, momentum=0.9))

        def closure(share: float = 1.0, weight: Tensor = weight) -> Tensor:
            loss = weight.square().sum()
            loss.backward()
            return loss

        for _ in range(3):
            optimizer.step(closure)
        assert optimizer.last is not None
        assert optimizer.last.displaced
        assert optimizer.last.rise is None


def rise_of(*returned: Any, scale: float = 0.0) -> float | None:
    """The rise of a step whose passes return these, and whose user changes the first of them afterwards."""
    weight, values = nn.Parameter(torch.ones(2)), iter(returned)
    optimizer = vsam.SAM(torch.optim.SGD([weight], lr=0.1))

    def closure() -> Any:
        weight.square().sum().backward()
        return next(values)

    loss = optimizer.step(closure)
    if isinstance(loss, Tensor):
        loss.mul_(scale)
    assert optimizer.last is not None
    return optimizer.last.rise


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_rise_takes_single_numbers_of_any_kind(dtype: torch.dtype) -> None:
    """They are copied in time, so that what happens to the returned loss later does not matter."""
    assert rise_of(torch.tensor(2.0, dtype=dtype), torch.tensor([3.0], dtype=dtype)) == 0.5
    assert rise_of(2.0, 3) == rise_of(torch.tensor(2.0, dtype=dtype), torch.tensor(3.0)) == 0.5


BUFFER = torch.tensor([2.0, 3.0])


@pytest.mark.parametrize(
    "losses",
    [
        (None, None),
        (2.0, None),
        (0.0, 1.0),
        (-2.0, -1.0),
        (2.0, math.inf),
        (math.inf, 2.0),
        (2.0, math.nan),
        (torch.tensor(math.nan), torch.tensor(2.0)),
        (5e-324, 1e300),
        (torch.ones(2), torch.ones(2)),
        ({"loss": torch.tensor(2.0)}, {"loss": torch.tensor(3.0)}),
        (BUFFER, BUFFER),
        (BUFFER[0], BUFFER[0]),
    ],
    ids=repr,
)
def test_rise_is_unknown_if_it_is_no_number_or_the_losses_are_none(losses: tuple[Any, Any]) -> None:
    assert rise_of(*losses, scale=1.0) is None


def test_rise_of_micro_batches_is_that_of_their_sum_and_a_scaler_changes_nothing() -> None:
    rises = []
    for scaler in (None, vsam.amp.GradScaler("cpu", init_scale=64.0)):
        run = Run("sam")

        def closure(run: Run = run, scaler: Any = scaler) -> Tensor:
            total = torch.zeros(())
            for number in range(3):
                loss = run.loss(number) / 3
                (loss if scaler is None else scaler.scale(loss)).backward()
                total += loss.detach()
            return total

        run.optimizer.step(closure) if scaler is None else scaler.step(run.optimizer, closure)
        assert run.optimizer.last is not None
        rises.append(run.optimizer.last.rise)
    assert rises[0] is not None
    assert rises[0] > 0
    assert rises[1] == pytest.approx(rises[0], rel=1e-4)


def test_subscription_ends() -> None:
    run, heard, others = Run("sam"), [], []
    end = run.optimizer.subscribe(heard.append)
    run.optimizer.subscribe(others.append)
    run.step(0)
    end()
    end()
    run.step(1)
    assert len(heard) == 1
    assert len(others) == 2


def test_listener_may_end_its_own_subscription() -> None:
    run, heard = Run("sam"), []
    end = run.optimizer.subscribe(lambda record: (heard.append(record), end()))
    run.optimizer.subscribe(heard.append)
    run.go(last=2)
    assert [record.step for record in heard] == [1, 1, 2]


def test_same_listener_may_subscribe_twice() -> None:
    run, heard = Run("sam"), []
    first = run.optimizer.subscribe(heard.append)
    run.optimizer.subscribe(heard.append)
    first()
    first()
    run.step(0)
    assert len(heard) == 1


@every_method
def test_listeners_are_not_copied_pickled_or_saved(method: str) -> None:
    run = Run(method)
    run.optimizer.subscribe(lambda record: None)  # a lambda cannot be pickled: it must not be tried
    run.step(0)
    heard: list[vsam.StepRecord] = []
    run.optimizer.subscribe(heard.append)
    for twin in (copy.deepcopy(run.optimizer), pickle.loads(pickle.dumps(run.optimizer))):
        other = Run(method)
        other.model, other.optimizer = twin.model, twin
        other.step(1)
    assert not heard
    assert "listeners" not in repr(run.optimizer.state_dict())


def test_last_is_none_before_a_step_and_cannot_be_changed() -> None:
    run = Run("sam")
    assert run.optimizer.last is None
    run.step(0)
    assert isinstance(run.optimizer.last, vsam.StepRecord)
    assert run.optimizer.last is run.optimizer.last
    with pytest.raises(AttributeError):
        run.optimizer.last.age = 3  # type: ignore[misc, union-attr]
