"""Bernoulli draws from its own generator, with the probability that it is given."""

import random

import pytest

from vsam import Bernoulli


def test_draws_as_its_seed_says() -> None:
    when, draws = Bernoulli(0.3, seed=5), random.Random(5)
    expected = [draws.random() < 0.3 for _ in range(1000)]
    assert [when.before(step) for step in range(1, 1001)] == expected
    assert 250 < sum(expected) < 350
    assert when.rate == when.expected_rate == 0.3


def test_continues_from_its_state() -> None:
    when, other = Bernoulli(0.5, seed=1), Bernoulli(0.5, seed=2)
    for step in range(1, 20):
        when.before(step)
    other.load_state_dict(when.state_dict())
    assert [other.before(s) for s in range(50)] == [when.before(s) for s in range(50)]


def test_a_certain_one_is_always() -> None:
    when = Bernoulli(1)
    assert all(when.before(step) for step in range(1, 100))


@pytest.mark.parametrize("rate", [0, -0.1, 1.1, "often"])
def test_a_rate_that_cannot_be_is_refused(rate: object) -> None:
    with pytest.raises(ValueError, match="rate must"):
        Bernoulli(rate)  # type: ignore[arg-type]


def test_a_damaged_state_is_refused() -> None:
    with pytest.raises(ValueError, match="generator"):
        Bernoulli(0.5).load_state_dict({})
