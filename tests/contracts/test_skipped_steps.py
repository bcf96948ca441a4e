"""A gradient that is not finite: the step is skipped, nothing is touched, it is counted, and said once."""

import itertools
import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

from contract_table import (
    LENGTH,
    ORDINARY,
    Base,
    Run,
    assert_same,
    every_early_ordinary_case,
    every_method,
)
from vsam._step import foreach

FUSED: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "fused sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1, fused=True),
    "fused momentum": lambda parameters: torch.optim.SGD(
        parameters, lr=0.05, momentum=0.9, weight_decay=1e-3, fused=True
    ),
    "fused adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.01, fused=True),
}
RULE = ("psf_norms", "ratios", "variances", "mean", "variance")
# The tests that poison gradients ask for the warning where it matters and are silent about it elsewhere.
pytestmark = pytest.mark.filterwarnings("ignore:A gradient was not finite:RuntimeWarning")


@pytest.fixture(autouse=True, params=["cpu", "nowhere"], ids=["host", "device"])
def _where_numbers_are(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the host a fused base is asked first, on a device it decides by itself."""
    monkeypatch.setattr(foreach, "HOST", request.param)


def _poisoned_step(
    run: Run, number: int, at_pass: int, value: float, place: int = 0, before: Callable[[], object] | None = None
) -> None:
    """A step with one number of one gradient replaced in one of the passes, 0 for none of them."""
    passes = itertools.count(1)

    def poison(gradient: torch.Tensor) -> torch.Tensor:
        gradient = gradient.clone()
        if next(passes) == at_pass:
            gradient.view(-1)[-1] = value
        return gradient

    handle = list(run.model.parameters())[place].register_hook(poison)
    run.optimizer.step(run.closure(number, before))
    handle.remove()


def _without_counters(everything: dict[str, Any]) -> dict[str, Any]:
    """Return weights, base state, memory and rule, which a skipped step must not change. Draws and counters advance."""
    sharpness = dict(everything["optimizer"]["sharpness"])
    rule = [{k: v for k, v in state.items() if k in RULE} for state in sharpness["states"]]
    weights = {
        name: value for name, value in everything["model"].items() if "running" not in name and "num" not in name
    }
    state, groups = everything["optimizer"]["state"], everything["optimizer"]["param_groups"]
    return {"weights": weights, "state": state, "groups": groups, "memory": sharpness["memory"], "rule": rule}


@every_early_ordinary_case
@pytest.mark.parametrize("at_pass", [1, 2])
def test_nothing_is_touched(method: str, base: str, at_pass: int) -> None:
    run, num_skipped = Run(method, base), 0
    values = [math.inf, -math.inf, math.nan]
    for number in range(14):
        before, samples = run.everything(), run.optimizer.num_samples
        ages = run.optimizer.last.age if run.optimizer.last else None
        passes = run.num_passes
        _poisoned_step(run, number, at_pass, values[number % 3], place=number % 6)
        record = run.optimizer.last
        assert record is not None
        if at_pass == 2 and not record.sampled:
            assert not record.skipped
            continue
        num_skipped += 1
        assert record.skipped
        assert record.psf_norm is None
        assert record.step == number + 1
        assert record.age == (None if ages is None else ages + 1)
        assert run.optimizer.num_skipped == num_skipped
        assert run.optimizer.num_samples == samples + record.sampled
        assert run.num_passes == passes + 1 + record.sampled
        after = run.everything()
        assert_same(_without_counters(after), _without_counters(before))
        if number % 2:  # so that the next poisoned step finds state and memory
            run.step(number)
            run.optimizer._records.num_steps -= 1
    assert num_skipped >= 3


@every_method
def test_said_once(method: str) -> None:
    run = Run(method)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for number in range(6):
            _poisoned_step(run, number, 1, math.nan)
    assert [type(warning.message) for warning in caught] == [RuntimeWarning]
    assert "not finite" in str(caught[0].message)
    assert run.optimizer.num_skipped == 6
    run.go(first=6)
    assert run.optimizer.num_skipped == 6
    assert all(bool(w.isfinite().all()) for w in run.weights())


def _with_skips(method: str, base: Base) -> Run:
    """Skips in both passes, in the start phase and behind it."""
    run = Run(method, base)
    for number in range(LENGTH):
        at_pass = {3: 1, 10: 2, 12: 2, 15: 2, 17: 1, 20: 2}.get(number, 0)
        _poisoned_step(run, number, at_pass, math.inf)
        assert run.optimizer.last is not None
        run.records.append(run.optimizer.last)
    return run


@every_method
@pytest.mark.parametrize("base", ["sgd", "momentum"])  # Adam would blow up the rounding noise of the first bias
def test_fused_base_equals_the_ordinary_one(method: str, base: str) -> None:
    ordinary, fused = _with_skips(method, base), _with_skips(method, FUSED[f"fused {base}"])
    assert fused.samples == ordinary.samples
    assert [r.skipped for r in fused.records] == [r.skipped for r in ordinary.records]
    assert fused.optimizer.num_skipped == ordinary.optimizer.num_skipped > 0
    for one, other in zip(fused.weights(), ordinary.weights(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_fused_base_tells_the_same_age() -> None:
    ordinary, fused = _with_skips("sam-5", "sgd"), _with_skips("sam-5", FUSED["fused sgd"])
    assert [r.age for r in fused.records] == [r.age for r in ordinary.records]


@every_method
@pytest.mark.parametrize("base", ["fused momentum", "fused adamw"])
@pytest.mark.parametrize("at_pass", [1, 2])
def test_fused_base_leaves_weights_and_state_alone(method: str, base: str, at_pass: int) -> None:
    run, num_skipped = Run(method, FUSED[base]).go(last=2), 0
    for number in range(2, 14):
        before = run.everything()
        _poisoned_step(run, number, at_pass, math.nan)
        record = run.optimizer.last
        assert record is not None
        num_skipped += record.skipped
        if record.skipped:
            after = run.everything()
            for name in ("weights", "state", "groups", "rule"):
                assert_same(_without_counters(after)[name], _without_counters(before)[name], name)
    assert run.optimizer.num_skipped == num_skipped > 0


@pytest.mark.parametrize("method", ["looksam-5", "vsam", "vsam-released"])
def test_fused_base_keeps_the_age_and_the_memory(method: str) -> None:
    """After a skipped sample the old memory goes on at the age that it has."""
    run = Run(method, FUSED["fused momentum"]).go(last=14)
    memory, age = list(run.optimizer._memory.values), run.optimizer.last.age
    run.optimizer.when.before = lambda step: True  # type: ignore[attr-defined, method-assign]
    _poisoned_step(run, 20, 2, math.nan)
    assert run.optimizer.last is not None
    assert run.optimizer.last.skipped
    assert run.optimizer.last.age == age + 1
    assert_same(run.optimizer._memory.values, memory)


def test_fused_skips_are_reported_without_being_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreach, "HOST", "nowhere")
    run = Run("sam-5", FUSED["fused sgd"]).go(last=2)
    _poisoned_step(run, 0, 1, math.nan)
    with pytest.warns(RuntimeWarning, match="not finite"):
        run.go_on(100)


def test_the_law_sees_the_same_samples_with_a_fused_base() -> None:
    """A start phase longer than what is kept waiting, with some overflows, as at the begin of mixed precision."""
    targets = []
    for base in (ORDINARY["momentum"], FUSED["fused momentum"]):
        run = Run("vsam", base)
        run.optimizer.when.start = 24  # type: ignore[attr-defined]
        for number in range(36):
            _poisoned_step(run, number, 1 if number in (16, 18, 20, 22) else 0, math.inf)
        targets.append(run.optimizer.when.s)  # type: ignore[attr-defined]
    assert targets[0] != 2
    assert targets[1] == pytest.approx(targets[0], rel=1e-3)


def test_saving_between_skips_of_a_fused_base_changes_nothing() -> None:
    """Values that wait on the device are fetched when the state is saved, without any effect on the run."""
    runs = []
    for saves in (False, True):
        run = Run("vsam", FUSED["fused momentum"])
        for number in range(LENGTH):
            _poisoned_step(run, number, 1 if number in (8, 10, 12) else 0, math.inf)
            if saves:
                run.optimizer.state_dict()
        runs.append(run.everything())
    assert_same(runs[1], runs[0])


def test_listeners_hear_of_skipped_steps() -> None:
    run, heard = Run("vsam"), []
    run.optimizer.subscribe(heard.append)
    _poisoned_step(run, 0, 2, math.nan)
    run.step(1)
    assert [(record.skipped, record.sampled, record.age) for record in heard] == [(True, True, None), (False, True, 0)]


def test_an_overflow_in_the_first_gradient_does_not_move_the_weights_anywhere_bad() -> None:
    """The second pass runs at finite weights, whatever the first gradient was."""
    run, seen = Run("sam"), []
    _poisoned_step(run, 0, 1, math.nan, before=lambda: seen.append(run.weights()))
    assert len(seen) == 2
    assert all(bool(w.isfinite().all()) for w in seen[1])


@pytest.mark.parametrize("base", FUSED)
def test_first_step_of_a_fused_base_may_be_skipped(base: str) -> None:
    run = Run("sam", FUSED[base])
    weights = run.weights()
    _poisoned_step(run, 0, 1, math.inf)
    assert_same(run.weights(), weights)
    run.go(last=3)
    assert all(bool(w.isfinite().all()) for w in run.weights())
    assert run.optimizer.num_skipped == 1


@every_method
@pytest.mark.parametrize("base", ["momentum", FUSED["fused momentum"]], ids=["momentum", "fused"])
def test_a_device_gives_what_the_host_gives(method: str, base: Base, monkeypatch: pytest.MonkeyPatch) -> None:
    """There, numbers are not looked at before they must be."""
    runs = []
    for host in ("cpu", "nowhere"):
        monkeypatch.setattr(foreach, "HOST", host)
        runs.append(Run(method, base))
        for number in range(18):
            _poisoned_step(runs[-1], number, (0, 1, 0, 2, 0)[number % 5], math.nan)
    ours, expected = (run.optimizer.state_dict()["sharpness"] for run in runs)
    assert ours["num_skipped"] == expected["num_skipped"] > 3
    torch.testing.assert_close(ours["memory"], expected["memory"])
    torch.testing.assert_close(runs[0].weights(), runs[1].weights())
