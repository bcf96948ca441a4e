"""Steps, samples, skips and age are counted right, also where their answers still wait on the device."""

import io
import math
import random
import warnings
from typing import Any

import pytest
import torch

from vsam.history import History

SKIPPED, DONE = torch.tensor(True), torch.tensor(False)


@pytest.fixture(autouse=True)
def _no_reports() -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "A gradient was not finite")
        yield


def counters(history: History) -> tuple[int, int, int, int | None]:
    return history.num_steps, history.num_samples, history.num_skipped, history.age


def test_it_starts_with_nothing() -> None:
    assert counters(History()) == (0, 0, 0, None)


def test_it_counts() -> None:
    history, seen = History(), []
    for was_sampled, was_skipped in [(False, False), (True, True), (True, False), (False, False), (True, True)]:
        history.add(was_sampled, was_skipped)
        seen.append(counters(history))
    assert seen == [(1, 0, 0, None), (2, 1, 1, None), (3, 2, 1, 0), (4, 2, 1, 1), (5, 3, 2, 2)]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("asked", [0.0, 0.1, 1.0], ids=["at the end", "now and then", "always"])
def test_answers_that_wait_count_as_those_that_are_known(seed: int, asked: float) -> None:
    draws, known, waiting = random.Random(seed), History(), History()
    for _ in range(350):
        was_sampled, was_skipped, waits = draws.random() < 0.3, draws.random() < 0.2, draws.random() < 0.9
        known.add(was_sampled, was_skipped)
        waiting.add(was_sampled, torch.tensor(was_skipped) if waits else was_skipped)
        if draws.random() < asked:
            assert counters(waiting) == counters(known)
        elif draws.random() < asked:
            assert waiting.age == known.age
    assert counters(waiting) == counters(known)
    assert waiting.state_dict() == known.state_dict()


def test_plain_steps_that_wait_do_not_have_to_be_fetched_to_know_the_age() -> None:
    history = History()
    history.add(True, False)
    for age in (1, 2, 3):
        history.add(False, DONE)
        assert history.age == age
    assert len(history._waiting) == 3
    history.add(True, SKIPPED)
    assert history.age == 4
    assert not history._waiting


def test_answers_do_not_wait_for_ever() -> None:
    history, longest = History(), 0
    for _ in range(1000):
        history.add(False, DONE)
        longest = max(longest, len(history._waiting))
    assert longest < 100


def test_the_first_skip_is_reported_at_once_and_no_other() -> None:
    history = History()
    with pytest.warns(RuntimeWarning, match="the step was skipped"):
        history.add(False, True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        history.add(False, True)
        history.add(False, SKIPPED)
        assert history.num_skipped == 3


def test_a_skip_that_waits_is_reported_when_somebody_asks() -> None:
    history = History()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        history.add(False, SKIPPED)
    with pytest.warns(RuntimeWarning, match="the step was skipped"):
        assert history.num_skipped == 1


def test_a_skip_that_a_scaler_makes_up_for_is_not_reported() -> None:
    history = History()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        history.add(True, True, is_scaled=True)
        history.add(True, SKIPPED, is_scaled=True)
        assert history.num_skipped == 2


def test_everything_can_be_set_back_with_what_waits_also_twice() -> None:
    history = History()
    history.add(True, DONE)
    history.add(False, SKIPPED)
    restore, expected = history.restorer(), (2, 1, 1, 1)
    history.add(True, False)
    history.add(True, DONE)
    restore()
    assert [flag.item() for _, flag in history._waiting] == [False, True]
    restore()
    assert counters(history) == expected


def test_what_the_restorer_holds_is_not_changed_by_going_on() -> None:
    history = History()
    restore = history.restorer()
    history.add(False, SKIPPED)
    restore()
    assert counters(history) == (0, 0, 0, None)


def test_the_state_goes_through_a_file() -> None:
    history = History()
    for step in range(10):
        history.add(step == 4, torch.tensor(step == 7))
    file = io.BytesIO()
    torch.save(history.state_dict(), file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    assert state == {"num_steps": 10, "num_samples": 1, "num_skipped": 1, "age": 5}
    assert tuple(state) == History.fields
    again = History.from_state_dict(state)
    assert again.state_dict() == state
    again.add(False, False)
    assert counters(again) == (11, 1, 1, 6)


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


@pytest.mark.parametrize(("name", "value"), REFUSED)
def test_counters_that_cannot_be_are_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"^{name} must "):
        History.from_state_dict({**GOOD, name: value})


def test_there_is_no_age_before_the_first_step() -> None:
    with pytest.raises(ValueError, match="age must be below num_steps=0, got 0"):
        History.from_state_dict({"num_steps": 0, "num_samples": 0, "num_skipped": 0, "age": 0})


@pytest.mark.parametrize(
    "state",
    [
        GOOD,
        {**GOOD, "age": None},
        {**GOOD, "age": 0},
        {**GOOD, "num_samples": 5, "num_skipped": 5},
        {"num_steps": 0, "num_samples": 0, "num_skipped": 0, "age": None},
    ],
)
def test_counters_that_can_be_are_taken(state: dict[str, Any]) -> None:
    assert History.from_state_dict(state).state_dict() == state
