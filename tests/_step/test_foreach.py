"""Each function over lists equals the loop that it stands for, whatever the mixture of types and layouts."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from vsam._step import foreach

Lists = Callable[[int], list[Tensor]]


def _make(seed: int, *kinds: tuple[tuple[int, ...], torch.dtype]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator).to(dtype) for shape, dtype in kinds]


def _channels_last(seed: int) -> list[Tensor]:
    made = _make(seed, ((2, 3, 4, 4), torch.float32), ((3, 2, 4, 5), torch.float32))
    return [tensor.to(memory_format=torch.channels_last) for tensor in made]


LISTS: dict[str, Lists] = {
    "single": lambda seed: _make(seed, ((3, 4), torch.float32), ((5,), torch.float32), ((), torch.float32)),
    "double": lambda seed: _make(seed, ((3, 4), torch.float64), ((0,), torch.float64), ((7,), torch.float64)),
    "bfloat16": lambda seed: _make(seed, ((3, 4), torch.bfloat16), ((70,), torch.bfloat16)),
    "mixed": lambda seed: _make(seed, ((3, 4), torch.bfloat16), ((5,), torch.float32), ((2, 2), torch.bfloat16)),
    "wide": lambda seed: _make(seed, ((3, 4), torch.float32), ((5,), torch.float64)),
    "channels last": _channels_last,
    "channels last against contiguous": lambda seed: [t if seed % 2 else t.contiguous() for t in _channels_last(seed)],
    "strided views": lambda seed: [t[:, ::2] for t in _make(seed, ((3, 4), torch.float32), ((5, 7), torch.float32))],
    "large": lambda seed: _make(seed, ((190, 190), torch.float32), ((5,), torch.float32), ((32_768,), torch.float32)),
    "half": lambda seed: _make(seed, ((3, 4), torch.float16), ((5,), torch.float16), ((4100,), torch.float16)),
    "nothing in it": lambda seed: _make(seed, ((0, 3), torch.float32), ((3, 0), torch.float32)),
    "empty": lambda seed: [],
}


@pytest.fixture(params=LISTS)
def lists(request: pytest.FixtureRequest) -> Lists:
    return LISTS[request.param]


def check(results: list[Tensor], expected: list[Tensor]) -> None:
    assert len(results) == len(expected)
    for result, value in zip(results, expected, strict=True):
        torch.testing.assert_close(result, value)  # types included


def wide(values: list[Tensor]) -> torch.dtype:
    return torch.float64 if any(value.dtype == torch.float64 for value in values) else torch.float32


def test_copies(lists: Lists) -> None:
    values = lists(0)
    results = foreach.copies(values)
    for result, value in zip(results, values, strict=True):
        assert torch.equal(result, value)
        assert result.stride() == torch.empty_like(value).stride()  # the value's own, unless that has gaps
        assert result.dtype == value.dtype
        assert value.numel() == 0 or result.data_ptr() != value.data_ptr()


def test_copy_is_exact_and_in_place(lists: Lists) -> None:
    targets, sources = lists(0), lists(1)
    places = [target.data_ptr() for target in targets]
    foreach.copy_(targets, sources)
    assert all(torch.equal(t, s) for t, s in zip(targets, sources, strict=True))
    assert [target.data_ptr() for target in targets] == places


def test_copy_keeps_every_bit() -> None:
    bits = torch.tensor([0x7FC00001, -0x80000000, 0x7F800000, 1, 0x3F800000], dtype=torch.int32)
    target = torch.zeros(5)
    foreach.copy_([target], [bits.view(torch.float32)])
    assert torch.equal(target.view(torch.int32), bits)


@pytest.mark.parametrize("weight", [1.0, -0.5])
def test_add(lists: Lists, weight: float) -> None:
    targets, others = lists(0), lists(1)
    expected = [t + weight * o for t, o in zip(targets, others, strict=True)]
    foreach.add_(targets, others, weight)
    check(targets, expected)


def test_multiply_by_a_list(lists: Lists) -> None:
    targets, factors = lists(0), lists(1)
    expected = [t * f for t, f in zip(targets, factors, strict=True)]
    foreach.multiply_(targets, factors)
    check(targets, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_multiply_by_one_factor(lists: Lists, dtype: torch.dtype) -> None:
    targets = lists(0)
    expected = [(t.double() * 0.37).to(t.dtype) for t in targets]
    foreach.multiply_(targets, torch.tensor(0.37, dtype=dtype))
    for result, value in zip(targets, expected, strict=True):
        torch.testing.assert_close(result, value, rtol=max(1e-6, torch.finfo(result.dtype).eps), atol=1e-6)


def test_subtract_from(lists: Lists) -> None:
    targets, others = lists(0), lists(1)
    expected = [o - t for t, o in zip(targets, others, strict=True)]
    foreach.subtract_from_(targets, others)
    check(targets, expected)
    check(others, lists(1))


def test_absolute(lists: Lists) -> None:
    values = lists(0)
    expected = [value.abs() + 0.25 for value in values]
    foreach.absolute_(values, 0.25)
    check(values, expected)


def test_norm(lists: Lists) -> None:
    values = lists(0)
    expected = math.sqrt(sum(float(value.double().square().sum()) for value in values))
    result = foreach.norm(values)
    assert result.shape == ()
    assert result.dtype == wide(values)
    assert float(result) == pytest.approx(expected, rel=1e-12 if wide(values) == torch.float64 and values else 1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shapes", [[(10000,)], [(3000,), (3000,)], [(10000,), (10,), (20,)]])
def test_a_norm_of_low_precision_is_taken_in_single(dtype: torch.dtype, shapes: list[tuple[int, ...]]) -> None:
    values = [torch.full(shape, 0.1).to(dtype) for shape in shapes]
    expected = float(torch.stack([value.float().norm() for value in values]).norm())
    assert float(foreach.norm(values)) == pytest.approx(expected, rel=1e-6 if len(values) == 1 else 1e-5)
    large = [torch.full(shape, 60000.0).to(dtype) for shape in shapes]  # the square is more than half precision holds
    expected = math.sqrt(sum(float(value.double().square().sum()) for value in large))
    assert float(foreach.norm(large)) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("name", [name for name in LISTS if name not in ("empty", "nothing in it")])
def test_a_norm_shows_every_value_that_is_not_finite(name: str, bad: float) -> None:
    for position in range(len(LISTS[name](0))):
        values = LISTS[name](0)
        if values[position].numel():
            values[position][(0,) * values[position].ndim] = bad
            assert not math.isfinite(float(foreach.norm(values)))


def test_lerp(lists: Lists) -> None:
    targets, ends = lists(0), lists(1)
    expected = [(t.double() - 0.3 * (e.double() - t.double())) for t, e in zip(targets, ends, strict=True)]
    foreach.lerp_(targets, ends, torch.tensor(-0.3))
    for result, value in zip(targets, expected, strict=True):
        eps = torch.finfo(result.dtype).eps
        torch.testing.assert_close(result.double(), value, rtol=4 * eps, atol=max(4 * eps, 1e-7))


def test_dot(lists: Lists) -> None:
    left, right = lists(0), lists(1)
    expected = sum(float((a.double() * b.double()).sum()) for a, b in zip(left, right, strict=True))
    result = foreach.dot(left, right)
    assert result.dtype == wide(left)
    assert float(result) == pytest.approx(expected, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("value", "expected"),
    [(0.0, 0), (1.0, 0), (1e-40, 0), (3e38, 0), (math.inf, 1), (-math.inf, 1), (math.nan, 1)],
)
def test_is_not_finite(value: float, expected: int, dtype: torch.dtype) -> None:
    norm = torch.tensor(value, dtype=dtype)
    result = foreach.is_not_finite(norm)
    assert result.dtype == torch.float32
    assert result.shape == ()
    assert float(result) == expected
    torch.testing.assert_close(norm, torch.tensor(value, dtype=dtype), equal_nan=True)  # left alone


def test_zero_unless(lists: Lists) -> None:
    kept, cleared = lists(0), lists(0)
    foreach.zero_unless_(torch.tensor(True), kept)
    check(kept, lists(0))
    for target in cleared:
        target.fill_(math.nan)
    foreach.zero_unless_(torch.tensor(False), cleared)
    check(cleared, [torch.zeros_like(t) for t in cleared])


@pytest.mark.parametrize("condition", [True, False])
def test_keep_if(lists: Lists, condition: bool) -> None:
    targets = lists(0)
    others: list[Tensor | None] = [None if i == 1 else value for i, value in enumerate(lists(1))]
    kept = [target.clone() for target in targets]
    if not condition:
        for target in targets:
            target.fill_(math.nan)
    foreach.keep_if_(torch.tensor(condition), targets, others)
    replaced = [torch.zeros_like(t) if o is None else o for t, o in zip(targets, others, strict=True)]
    check(targets, kept if condition else replaced)


@pytest.mark.parametrize("host", ["cpu", "nowhere"])
@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("position", range(3))
def test_every_norm_has_to_be_finite(position: int, bad: float, host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreach, "HOST", host)
    norms = [torch.tensor(1.0), torch.tensor(3e38), torch.tensor(0.0, dtype=torch.float64)]
    assert foreach.are_finite(norms)
    assert float(foreach.found_inf(norms)) == 0
    norms[position] = torch.tensor(bad)
    assert not foreach.are_finite(norms)
    assert float(foreach.found_inf(norms)) == 1
