"""Steps, samples, skips and age are counted right, also where the answers still wait on the device."""

import copy
import math
import random
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD

import vsam
from contract_table import through_a_file
from vsam._step import foreach


class Run:
    """One weight, trained by SAM at the steps that the test chooses, on a device if the base is fused."""

    def __init__(self, is_fused: bool = False) -> None:
        self.weight = nn.Parameter(torch.ones(2))
        base = SGD([self.weight], lr=1e-4, momentum=0.5, fused=is_fused)
        self.optimizer = vsam.SharpnessAware(base, when=Chosen(), between=vsam.Decayed(0.5))

    def step(self, is_sampled: bool, is_bad: bool) -> None:
        assert isinstance(self.optimizer.when, Chosen)
        self.optimizer.when.answer = is_sampled
        values = iter([math.nan if is_bad and not is_sampled else 1.0, math.nan if is_bad else 1.0])

        def closure() -> Tensor:
            loss = self.weight.square().sum() * next(values)
            loss.backward()
            return loss

        self.optimizer.step(closure)

    def counters(self) -> tuple[int | None, ...]:
        entry = self.optimizer.state_dict()["sharpness"]
        return tuple(entry[name] for name in ("num_steps", "num_samples", "num_skipped", "age"))


class Chosen(vsam.When):
    """Says what it is told to."""

    answer = False

    @property
    def rate(self) -> None:
        return None

    def before(self, step: int) -> bool:
        return self.answer

    def describe(self) -> str:
        return "takes the second gradient when told to"


@pytest.fixture(autouse=True)
def _on_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a fused base decide by itself whether it skips a step."""
    monkeypatch.setattr(foreach, "HOST", "nowhere")


QUIET = pytest.mark.filterwarnings("ignore:A gradient was not finite")


@QUIET
@pytest.mark.parametrize("is_fused", [False, True])
def test_it_counts(is_fused: bool) -> None:
    run, seen = Run(is_fused), []
    assert run.counters() == (0, 0, 0, None)
    for is_sampled, is_bad in [(False, False), (True, True), (True, False), (False, False), (True, True)]:
        run.step(is_sampled, is_bad)
        seen.append(run.counters())
    assert seen == [(1, 0, 0, None), (2, 1, 1, None), (3, 2, 1, 0), (4, 2, 1, 1), (5, 3, 2, 2)]


@QUIET
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("asked", [0.0, 0.1, 1.0], ids=["at the end", "now and then", "always"])
def test_answers_that_wait_count_as_those_that_are_known(seed: int, asked: float) -> None:
    draws, known, waiting = random.Random(seed), Run(), Run(is_fused=True)
    for _ in range(150):
        is_sampled, is_bad, waits = draws.random() < 0.3, draws.random() < 0.2, draws.random() < 0.9
        known.step(is_sampled, is_bad)
        unsubscribe = (lambda: None) if waits else waiting.optimizer.subscribe(lambda record: None)
        waiting.step(is_sampled, is_bad)
        unsubscribe()
        if draws.random() < asked:
            assert waiting.counters() == known.counters()
        elif draws.random() < asked:
            assert waiting.optimizer.last.age == known.optimizer.last.age  # type: ignore[union-attr]
    assert waiting.counters() == known.counters()
    torch.testing.assert_close(waiting.weight, known.weight)


def test_the_first_skip_is_reported_at_once_and_no_other() -> None:
    run = Run()
    with pytest.warns(RuntimeWarning, match="skipped"):
        run.step(False, True)
    for is_sampled in (False, True):
        run.step(is_sampled, True)  # a second warning would be an error
    assert run.optimizer.num_skipped == 3


@pytest.mark.parametrize("ask", ["num_skipped", "last"])
def test_a_skip_that_waits_is_reported_when_somebody_asks(ask: str) -> None:
    run = Run(is_fused=True)
    run.step(False, False)
    run.step(True, True)
    with pytest.warns(RuntimeWarning, match="skipped"):
        getattr(run.optimizer, ask)
    assert run.optimizer.num_skipped == 1


def test_a_skip_does_not_wait_for_ever() -> None:
    run = Run(is_fused=True)
    run.step(False, False)
    run.step(False, True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(100):
            run.step(False, False)
    assert ["skipped" in str(warning.message) for warning in caught] == [True]


@QUIET
@pytest.mark.parametrize("is_sampled", [False, True])
def test_a_step_that_fails_leaves_the_counters_and_what_waits_alone(is_sampled: bool) -> None:
    run, twin = Run(is_fused=True), Run(is_fused=True)
    for each in (run, twin):
        for sampled, bad in [(True, False), (False, False), (False, True), (True, True)]:
            each.step(sampled, bad)

    def fail(*_: object) -> None:
        raise MemoryError

    hook = run.optimizer.base.register_step_pre_hook(fail)
    for is_bad in (False, True):
        with pytest.raises(MemoryError):
            run.step(is_sampled, is_bad)
    hook.remove()
    for each in (run, twin):
        each.step(False, True)
    assert run.counters() == twin.counters() == (5, 2, 3, 4)


@QUIET
def test_the_counters_go_through_a_file_and_go_on() -> None:
    run, again = Run(is_fused=True), Run(is_fused=True)
    for number in range(10):
        run.step(number == 4, number == 7)
    state = through_a_file(run.optimizer.state_dict())
    assert run.counters() == (10, 1, 1, 5)
    again.optimizer.load_state_dict(state)
    assert again.counters() == run.counters()
    again.step(False, False)
    assert again.counters() == (11, 1, 1, 6)
    assert again.optimizer.cost == 1 + 1 / 11


def rising(rho: float, before: int = 0, dips: int = 0, resumed: int = 0) -> list[str]:
    """The warnings of 220 steps in a valley, 1 + |w|, of which the first `before` are not sampled.

    `dips` samples in the middle do not rise.
    """
    weight = nn.Parameter(torch.ones(1))
    base = SGD([weight], lr=0.0, fused=True)
    optimizer = vsam.SharpnessAware(base, when=Chosen(), where=vsam.GlobalNorm(rho))
    num_samples = 0

    def closure() -> Tensor:
        loss = 1 + weight.abs().sum()
        loss.backward()
        return loss if not 40 < num_samples <= 40 + dips else 0 * loss + 1

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for number in range(220):
            optimizer.when.answer = number >= before  # type: ignore[attr-defined]
            num_samples += number >= before
            optimizer.step(closure)
            if number == resumed - 1:
                optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
            assert not caught or optimizer.num_samples >= 100
    return [str(warning.message) for warning in caught]


def test_a_rho_that_more_than_doubles_the_loss_is_said_once() -> None:
    (said,) = rising(rho=3.0)
    assert "too large" in said
    assert "150%" in said
    assert "vsam.sharpness.radius(" in said


@pytest.mark.parametrize(
    "settings",
    [
        {"rho": 1.9},
        {"rho": 3.0, "dips": 40},  # the mean of one half of the samples is low
        {"rho": 3.0, "before": 101},  # samples start where the loss may be near zero
        {"rho": 3.0, "resumed": 5},
    ],
    ids=str,
)
def test_nothing_is_said_of_other_rises(settings: dict[str, Any]) -> None:
    assert rising(**settings) == []


def test_nothing_is_said_of_losses_that_are_above_zero_by_chance() -> None:
    weight = nn.Parameter(torch.zeros(1))
    optimizer = vsam.SAM(SGD([weight], lr=0.0))
    offsets = iter([-0.1, 0.1 + 1e-6] * 50)

    def step() -> None:
        offset = next(offsets)

        def closure() -> Tensor:
            loss = weight.sum() + offset
            loss.backward()
            return loss

        optimizer.step(closure)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(100):
            step()
    assert optimizer.num_samples == 100


def test_a_few_plain_steps_before_the_first_sample_do_not_matter() -> None:
    assert len(rising(rho=3.0, before=50)) == 1


GOOD: dict[str, Any] = {"num_steps": 5, "num_samples": 3, "num_skipped": 2, "age": 4}
NO_COUNTS = [-1, True, 1.0, 2.5, math.nan, math.inf, "3", [3], torch.tensor(3)]
REFUSED = [
    *((name, value) for name in ("num_steps", "num_samples", "num_skipped") for value in [*NO_COUNTS, None]),
    *(("age", value) for value in NO_COUNTS),
    ("num_samples", 6),
    ("num_skipped", 6),
    ("age", 5),
    ("age", 6),
]
LOADED = [
    GOOD,
    {**GOOD, "age": None},
    {**GOOD, "age": 0},
    {**GOOD, "num_samples": 5, "num_skipped": 5},
    {"num_steps": 0, "num_samples": 0, "num_skipped": 0, "age": None},
]


def load(run: Run, counters: dict[str, Any]) -> None:
    state = run.optimizer.state_dict()
    state["sharpness"].update(counters)
    run.optimizer.load_state_dict(state)


@pytest.mark.parametrize(("name", "value"), REFUSED)
def test_counters_that_cannot_be_are_refused_by_name(name: str, value: Any) -> None:
    run = Run()
    run.step(True, False)
    before = copy.deepcopy(run.counters())
    with pytest.raises(ValueError, match=f"{name} must "):
        load(run, {**GOOD, name: value})
    assert run.counters() == before


def test_there_is_no_age_before_the_first_step() -> None:
    with pytest.raises(ValueError, match="age must "):
        load(Run(), {"num_steps": 0, "num_samples": 0, "num_skipped": 0, "age": 0})


@pytest.mark.parametrize("counters", LOADED)
def test_counters_that_can_be_are_loaded(counters: dict[str, Any]) -> None:
    run = Run()
    load(run, counters)
    assert run.counters() == tuple(counters.values())
