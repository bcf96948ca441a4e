"""Memory beyond the base alone."""

import pytest

from vsam.lab.bench.memory import HUGE, Memory, Size, beyond, check_room, is_measurable, measure_memory
from vsam.lab.errors import RunError, UserError


def test_beyond_the_base() -> None:
    base = {"parameter_bytes": 8.0, "kept": 3.0, "peak": 3.0}
    found = beyond("vsam", {"parameter_bytes": 8.0, "kept": 4.0, "peak": 6.0}, base)
    assert found == Memory("vsam", kept=1.0, extra=2.0, parameter_bytes=8)
    assert found.promise == (1, 2)
    assert found.is_within_promise


@pytest.mark.parametrize(
    ("kept", "extra", "holds"), [(0.0, 1.0, True), (0.01, 1.02, True), (0.0, 2.0, False), (1.0, 0.0, False)]
)
def test_promises(kept: float, extra: float, holds: bool) -> None:
    assert Memory("sam", kept, extra, 8).is_within_promise is holds


def test_nothing_is_promised_for_others() -> None:
    assert Memory("peer-sam", 0.0, 3.0, 8).is_within_promise is None


def test_five_hundred_million_weights() -> None:
    assert HUGE.num_bytes == 4 * 500_000_000


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(UserError, match="--huge needs"):
        check_room(Size(10**9, 10**6, 1))


@pytest.mark.slow
def test_a_process_that_fails_says_why() -> None:
    with pytest.raises(RunError, match="Measuring the memory of nothing failed: "):
        measure_memory("nothing", "sgd", Size(2, 2, 1))


@pytest.mark.slow
@pytest.mark.skipif(not is_measurable(), reason="needs /proc")
def test_sam_takes_one_copy_of_the_weights() -> None:
    size = Size(3072, 3072, 3)
    alone, sam = measure_memory("sgd", "sgd", size), measure_memory("sam", "sgd", size)
    assert alone["kept"] == pytest.approx(3, abs=0.1)  # weights, gradients, momentum
    found = beyond("sam", sam, alone)
    assert found.kept == pytest.approx(0, abs=0.1)
    assert found.extra == pytest.approx(1, abs=0.1)
