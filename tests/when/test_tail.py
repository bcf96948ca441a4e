"""Tail samples the last share of a run, and goes on beyond it."""

import pytest

from vsam import Tail


@pytest.mark.parametrize(("share", "total", "first"), [(0.1, 100, 91), (0.25, 10, 9), (0.3, 10, 8), (1.0, 5, 1)])
def test_samples_the_last_steps(share: float, total: int, first: int) -> None:
    when = Tail(share, total)
    assert [step for step in range(1, total + 1) if when.before(step)] == list(range(first, total + 1))
    assert when.num_tail == total + 1 - first == round(share * total)
    assert when.before(total + 1)
    assert when.rate == when.expected_rate == share


def test_says_what_it_does() -> None:
    assert "last 25 of 100 steps" in Tail(0.25, 100).describe()


@pytest.mark.parametrize("share", [0, -0.1, 1.1, "0.2", float("nan")])
def test_a_share_that_cannot_be_is_refused(share: object) -> None:
    with pytest.raises(ValueError, match="share must"):
        Tail(share, 100)  # type: ignore[arg-type]


def test_a_tail_without_a_step_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no step would be sampled. Give at least 0.01"):
        Tail(0.004, 100)
    with pytest.raises(ValueError, match="total_steps must be at least 1"):
        Tail(0.5, 0)
