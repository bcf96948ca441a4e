"""Records in `last` and for listeners: rate, age and norms. Listeners stay with their optimizer."""

import copy
import pickle

import pytest

import vsam
from contract_table import ALWAYS, LENGTH, Run, every_method


@every_method
def test_rate_is_that_of_the_rule_in_force(method: str) -> None:
    run = Run(method, "momentum").go()
    for i, record in enumerate(run.records):
        if method in ALWAYS:
            expected = 1.0
        elif method in ("sam-5", "looksam-5"):
            expected = 1 / 5
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
