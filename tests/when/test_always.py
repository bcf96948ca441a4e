"""Always says yes."""

from vsam import Always


def test_samples_at_every_step() -> None:
    when = Always()
    assert all(when.before(step) for step in range(1, 100))
    assert when.rate == 1
