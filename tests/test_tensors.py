"""Each function over lists equals the loop that it stands for, whatever the mixture of types and layouts."""

import inspect
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from vsam import tensors

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


def test_everything_public_is_listed() -> None:
    functions = {name for name, _ in inspect.getmembers(tensors, inspect.isfunction) if not name.startswith("_")}
    assert set(tensors.__all__) == functions


def test_copies(lists: Lists) -> None:
    values = lists(0)
    results = tensors.copies(values)
    for result, value in zip(results, values, strict=True):
        assert torch.equal(result, value)
        assert result.stride() == value.stride()
        assert result.dtype == value.dtype
        assert value.numel() == 0 or result.data_ptr() != value.data_ptr()


def test_copy_is_exact_and_in_place(lists: Lists) -> None:
    targets, sources = lists(0), lists(1)
    places = [target.data_ptr() for target in targets]
    tensors.copy_(targets, sources)
    assert all(torch.equal(t, s) for t, s in zip(targets, sources, strict=True))
    assert [target.data_ptr() for target in targets] == places


def test_copy_keeps_every_bit() -> None:
    bits = torch.tensor([0x7FC00001, -0x80000000, 0x7F800000, 1, 0x3F800000], dtype=torch.int32)
    target = torch.zeros(5)
    tensors.copy_([target], [bits.view(torch.float32)])
    assert torch.equal(target.view(torch.int32), bits)


@pytest.mark.parametrize("weight", [1.0, -0.5])
def test_add(lists: Lists, weight: float) -> None:
    targets, others = lists(0), lists(1)
    expected = [t + weight * o for t, o in zip(targets, others, strict=True)]
    tensors.add_(targets, others, weight)
    check(targets, expected)


def test_multiply_by_a_list(lists: Lists) -> None:
    targets, factors = lists(0), lists(1)
    expected = [t * f for t, f in zip(targets, factors, strict=True)]
    tensors.multiply_(targets, factors)
    check(targets, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_multiply_by_one_factor(lists: Lists, dtype: torch.dtype) -> None:
    targets = lists(0)
    expected = [(t.double() * 0.37).to(t.dtype) for t in targets]
    tensors.multiply_(targets, torch.tensor(0.37, dtype=dtype))
    for result, value in zip(targets, expected, strict=True):
        torch.testing.assert_close(result, value, rtol=max(1e-6, torch.finfo(result.dtype).eps), atol=1e-6)


def test_negate(lists: Lists) -> None:
    targets = lists(0)
    expected = [-t for t in targets]
    tensors.negate_(targets)
    check(targets, expected)


def test_absolute_is_new(lists: Lists) -> None:
    values = lists(0)
    before = [value.clone() for value in values]
    check(tensors.absolute(values, 0.25), [value.abs() + 0.25 for value in values])
    check(values, before)


def test_norms(lists: Lists) -> None:
    values = lists(0)
    expected = [value.to(wide(values)).square().sum().sqrt() for value in values]
    results = tensors.norms(values)
    assert all(result.shape == () and result.dtype == wide(values) for result in results)
    check(results, expected)


def test_norms_of_low_precision_are_taken_in_single() -> None:
    value = torch.full((10000,), 0.1).bfloat16()
    assert float(tensors.norms([value])[0]) == pytest.approx(float(value.float().norm()), rel=1e-6)


def test_total(lists: Lists) -> None:
    values = lists(0)
    expected = math.sqrt(sum(float(value.double().square().sum()) for value in values))
    assert float(tensors.total(tensors.norms(values))) == pytest.approx(expected, rel=1e-6)


def test_lerp(lists: Lists) -> None:
    targets, ends = lists(0), lists(1)
    expected = [(t.double() - 0.3 * (e.double() - t.double())) for t, e in zip(targets, ends, strict=True)]
    tensors.lerp_(targets, ends, torch.tensor(-0.3))
    for result, value in zip(targets, expected, strict=True):
        eps = torch.finfo(result.dtype).eps
        torch.testing.assert_close(result.double(), value, rtol=4 * eps, atol=max(4 * eps, 1e-7))


def test_dot(lists: Lists) -> None:
    left, right = lists(0), lists(1)
    expected = sum(float((a.double() * b.double()).sum()) for a, b in zip(left, right, strict=True))
    result = tensors.dot(left, right)
    assert result.dtype == wide(left)
    assert float(result) == pytest.approx(expected, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
def test_all_finite(bad: float) -> None:
    good, wrong = [torch.tensor(1.0), torch.tensor(2.0)], torch.tensor(bad)
    assert tensors.all_finite(good)
    assert tensors.all_finite([])
    assert not tensors.all_finite([*good, wrong])
    assert not tensors.all_finite([wrong, -wrong])


def test_zero_unless(lists: Lists) -> None:
    kept, cleared = lists(0), lists(0)
    tensors.zero_unless_(torch.tensor(True), kept)
    check(kept, lists(0))
    for target in cleared:
        target.fill_(math.nan)
    tensors.zero_unless_(torch.tensor(False), cleared)
    check(cleared, [torch.zeros_like(t) for t in cleared])


def test_own_copies_only_a_part_of_something_larger() -> None:
    whole = torch.randn(3, 4)
    assert tensors.own(whole).data_ptr() == whole.data_ptr()
    assert tensors.own(whole.T).data_ptr() == whole.data_ptr()
    for part in (whole[1:], whole[:, 2], torch.zeros(1).expand(5)):
        copy = tensors.own(part)
        assert torch.equal(copy, part)
        assert copy.data_ptr() != part.data_ptr()


@pytest.mark.parametrize("condition", [True, False])
def test_select(lists: Lists, condition: bool) -> None:
    targets = lists(0)
    others: list[Tensor | None] = [None if i == 1 else value for i, value in enumerate(lists(1))]
    kept = [target.clone() for target in targets]
    if not condition:
        for target in targets:
            target.fill_(math.nan)
    tensors.select_(torch.tensor(condition), targets, others)
    replaced = [torch.zeros_like(t) if o is None else o for t, o in zip(targets, others, strict=True)]
    check(targets, kept if condition else replaced)
