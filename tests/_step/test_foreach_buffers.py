"""Flat buffers hold the values of a list, and a backup restores a list to an earlier copy, bit for bit."""

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from vsam._step import foreach
from vsam._step.foreach import BufferLayout, FlatBuffers

LARGE = 32_768
"""From this many elements on, a tensor is left where it is."""

ODD_BITS = [0x7FC00001, 0x7FA00000, -0x80000000, 0x7F800000, -0x800000, 1, -0x7FFFFFFF, 0x3F800000]
"""NaNs with a payload, −0.0, ±inf, denormals of both signs, 1."""


def randoms(*kinds: tuple[tuple[int, ...], torch.dtype], seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator).to(dtype) for shape, dtype in kinds]


F, D, B, H = torch.float32, torch.float64, torch.bfloat16, torch.float16


def strided() -> list[Tensor]:
    (whole,) = randoms(((12, 9), F))
    return [whole[:4].T, whole[4:8, ::2], whole[8:, 3], torch.randn(3).expand(5, 3)]


LISTS = {
    "small": lambda: randoms(((3, 4), F), ((5,), F), ((), F)),
    "one": lambda: randoms(((3, 4), F)),
    "one large": lambda: randoms(((256, 128), F)),
    "small and large": lambda: randoms(((3, 4), F), ((LARGE,), F), ((5,), F), ((256, 129), F), ((2,), F)),
    "just below large": lambda: randoms(((LARGE - 1,), F), ((5,), F)),
    "mixed": lambda: randoms(((3, 4), B), ((5,), F), ((2, 2), B), ((7,), D), ((3,), F), ((4,), H), ((LARGE,), B)),
    "each of another type": lambda: randoms(((3, 4), B), ((5,), F), ((7,), D)),
    "channels last": lambda: [
        t.to(memory_format=torch.channels_last) for t in randoms(((2, 3, 4, 4), F), ((3, 2, 4, 5), F))
    ],
    "large channels last": lambda: [
        randoms(((8, 16, 16, 16), F))[0].to(memory_format=torch.channels_last),
        *randoms(((3,), F), ((4,), F)),
    ],
    "not contiguous": strided,
    "nothing in some": lambda: randoms(((0, 3), F), ((4,), F), ((3, 0), F), ((0,), D)),
    "nothing in all": lambda: randoms(((0,), F), ((0, 2), F)),
    "empty": list,
}


@pytest.fixture(params=LISTS)
def values(request: pytest.FixtureRequest) -> list[Tensor]:
    return LISTS[request.param]()


def bits(tensor: Tensor) -> Tensor:
    kinds = {2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.detach().contiguous().view(-1).view(kinds[tensor.element_size()])


def are_same_bits(left: list[Tensor], right: list[Tensor]) -> bool:
    pairs = list(zip(left, right, strict=True))
    return all(a.dtype == b.dtype and a.shape == b.shape and torch.equal(bits(a), bits(b)) for a, b in pairs)


def exact_norm(values: list[Tensor]) -> float:
    return math.sqrt(sum(float(value.double().square().sum()) for value in values))


def test_buffers_give_their_values_back(values: list[Tensor]) -> None:
    flat = FlatBuffers(values)
    assert are_same_bits(flat.views(values), values)
    assert are_same_bits(flat.views([torch.zeros_like(value) for value in values]), values)


def test_small_tensors_of_a_type_share_a_buffer_and_large_ones_stay() -> None:
    values = LISTS["mixed"]()
    flat = FlatBuffers(values)
    assert sorted(map(len, flat.layout.joined)) == [2, 2]  # bfloat16 and float32
    assert len(flat.buffers) == 2 + 3  # double, half and the large one
    views = flat.views(values)
    assert views[6].data_ptr() == values[6].data_ptr()
    assert views[0].untyped_storage().data_ptr() == views[2].untyped_storage().data_ptr()
    assert views[0].data_ptr() != values[0].data_ptr()


def test_a_layout_knows_in_which_precision_a_norm_is_taken() -> None:
    assert BufferLayout(randoms(((2,), F), ((2,), B))).dtype == F
    assert BufferLayout(randoms(((2,), F), ((2,), D))).dtype == D
    assert [BufferLayout(randoms(((2,), F), ((2,), dtype))).may_overflow for dtype in (F, D, B, H)] == [False] * 3 + [
        True
    ]


@pytest.mark.parametrize("kinds", [(F, F), (D, D), (B, F), (B, B), (H, D), (H, H)])
@pytest.mark.parametrize("size", [3, 40_000])
def test_norms_are_taken_in_single_precision_at_least(kinds: tuple[torch.dtype, ...], size: int) -> None:
    """Also if the layout is that of weights in another type."""
    values = [torch.full((size,), 60_000.0).to(kind) for kind in kinds]
    expected = torch.cat([value.double() for value in values]).norm().item()
    for layout in (None, BufferLayout(values), BufferLayout([torch.zeros(size) for _ in values])):
        flat = FlatBuffers(values, layout)
        for norm in (flat.norm(), flat.norm_of([0, 1])):
            assert norm.dtype == (D if D in kinds else F)
            assert float(norm) == pytest.approx(expected, rel=1e-4)


def test_a_layout_serves_another_list_of_the_same_kinds(values: list[Tensor]) -> None:
    layout = BufferLayout(values)
    others = [value + 1 for value in values]
    assert are_same_bits(FlatBuffers(others, layout).views(values), others)
    assert FlatBuffers(others, layout).layout is layout


def test_the_norm_of_all(values: list[Tensor]) -> None:
    result = FlatBuffers(values).norm()
    assert result.shape == ()
    assert float(result) == pytest.approx(exact_norm(values), rel=1e-5)


def test_the_norm_of_some(values: list[Tensor]) -> None:
    flat, count = FlatBuffers(values), len(values)
    for positions in ([0], [count - 1], list(range(count)), list(range(count // 2, count)), [count - 1, 0]):
        if values and len(set(positions)) == len(positions):
            expected = exact_norm([values[i] for i in positions])
            assert float(flat.norm_of(positions)) == pytest.approx(expected, rel=1e-5)


def test_nobody_else_can_write_to_buffers_that_own_their_values(values: list[Tensor]) -> None:
    before = [value.clone() for value in values]
    flat = FlatBuffers(values)
    assert flat.detach_owned() is flat
    for value in values:
        (value if 0 not in value.stride() else value[:1]).fill_(7.0)
    assert are_same_bits(flat.views(values), before)
    for buffer in flat.buffers:
        buffer.fill_(3.0)
    assert all(bool((value == 7.0).all()) for value in values)


def test_buffers_that_own_their_values_are_out_of_the_graph() -> None:
    values = [torch.ones(LARGE, requires_grad=True) * 2, torch.ones(3)]
    assert not any(buffer.requires_grad for buffer in FlatBuffers(values).detach_owned().buffers)


def test_every_bit_goes_through_the_buffers() -> None:
    odd = torch.tensor(ODD_BITS, dtype=torch.int32).view(torch.float32)
    values = [odd, odd.view(2, 4).T, odd.repeat(LARGE), odd[:1]]
    assert are_same_bits(FlatBuffers(values).detach_owned().views(values), values)


def _backup(values: list[Tensor]) -> Callable[[], None]:
    return partial(foreach.copy_, values, foreach.copies(values))


def test_a_backup_restores_in_place(values: list[Tensor]) -> None:
    values = [value.clone() for value in values]  # an expanded tensor is nobody's weight
    before, storage = [value.clone() for value in values], [value.data_ptr() for value in values]
    for turn in range(3):
        restore = _backup(values)
        for value in values:
            value.mul_(-2).add_(turn)
        assert not any(torch.equal(value, kept) for value, kept in zip(values, before, strict=True) if value.numel())
        restore()
        assert are_same_bits(values, before)
        assert [value.data_ptr() for value in values] == storage


def test_a_backup_restores_strided_views_and_touches_nothing_beside_them() -> None:
    whole = randoms(((12, 9), F))[0]
    before = whole.clone()
    views = [whole[:4].T, whole[4:8, ::2], whole[8:, 3], whole[9, :2]]
    restore = _backup(views)
    whole.fill_(7.0)
    restore()
    expected = torch.full_like(whole, 7.0)
    for now, then in zip([expected[:4].T, expected[4:8, ::2], expected[8:, 3], expected[9, :2]], views, strict=True):
        now.copy_(then)
    assert torch.equal(whole, expected)
    assert torch.equal(whole[:4], before[:4])
    assert torch.equal(whole[4:8, ::2], before[4:8, ::2])


def test_restoring_may_be_done_twice(values: list[Tensor]) -> None:
    values = [value.clone() for value in values]
    before = [value.clone() for value in values]
    restore = _backup(values)
    for _ in range(2):
        for value in values:
            value.fill_(7.0)
        restore()
        assert are_same_bits(values, before)


def test_every_bit_is_restored() -> None:
    odd = torch.tensor(ODD_BITS, dtype=torch.int32).view(torch.float32)
    values = [odd.clone(), odd.view(2, 4).clone().T, odd.repeat(LARGE), odd[2].clone()]
    for chosen in (values, values[:1] + values[3:], [odd.double(), odd.double()[:2]], [odd.bfloat16(), odd.bfloat16()]):
        before = [value.clone() for value in chosen]
        restore = _backup(chosen)
        for value in chosen:
            value.fill_(7.0)
        restore()
        assert are_same_bits(chosen, before)


@pytest.mark.parametrize("shape", [(2, 3, 4, 4), (8, 8, 16, 16)], ids=["small", "large"])
def test_storage_may_be_replaced_between_two_copies(shape: tuple[int, ...]) -> None:
    first, second = (torch.nn.Parameter(tensor) for tensor in randoms((shape, F), ((3, 2, 1, 1), F)))
    replacements = [
        lambda tensor: tensor.clone(),
        lambda tensor: tensor.to(memory_format=torch.channels_last),
        lambda tensor: tensor.contiguous().clone(),
        lambda tensor: torch.cat([tensor, tensor])[tensor.shape[0] :],
    ]
    for replace in replacements:
        with torch.no_grad():
            old = first.detach()
            first.data = replace(first.detach()).add_(1)
            before, storage, untouched = first.detach().clone(), first.data_ptr(), old.clone()
            restore = _backup([first, second])
            first.fill_(7.0)
            second.add_(1)
            restore()
            assert are_same_bits([first], [before])
            assert first.data_ptr() == storage
            assert old.data_ptr() == storage or torch.equal(old, untouched)


def test_restoring_is_a_write_that_autograd_sees() -> None:
    """A graph that was kept across it must not use the other weights in silence."""
    weights = [torch.nn.Parameter(tensor) for tensor in randoms(((3,), F), ((4,), F), ((LARGE,), F))]
    restore = _backup(weights)  # type: ignore[arg-type]
    losses = [weight.square().sum() for weight in weights]
    with torch.no_grad():
        restore()
    for loss in losses:
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()
