"""Every samples at step 1 and then at every k-th."""

import pytest

from vsam import Every


@pytest.mark.parametrize("k", [1, 2, 5, 10])
def test_samples_at_1_and_then_at_every_kth(k: int) -> None:
    when = Every(k)
    assert [step for step in range(1, 101) if when.before(step)] == list(range(1, 101, k))
    assert when.rate == 1 / k


@pytest.mark.parametrize(("k", "expected"), [(5, 15640), (10, 7820)])
def test_takes_as_many_samples_as_the_paper_counts(k: int, expected: int) -> None:
    when = Every(k)
    assert sum(when.before(step) for step in range(1, 78200 + 1)) == expected


def test_deciding_twice_about_one_step_gives_the_same_answer() -> None:
    when = Every(3)
    assert [when.before(step) for step in (4, 4, 5, 5)] == [True, True, False, False]
