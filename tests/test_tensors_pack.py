"""A pack holds the values of a list in few buffers; places set a list back to an earlier copy, bit for bit."""

import math

import pytest
import torch
from torch import Tensor

from vsam.tensors import Layout, Pack, Places

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


def test_a_pack_gives_its_values_back(values: list[Tensor]) -> None:
    pack = Pack(values)
    assert are_same_bits(pack.views(values), values)
    assert are_same_bits(pack.views([torch.zeros_like(value) for value in values]), values)


def test_small_tensors_of_a_type_share_a_buffer_and_large_ones_stay() -> None:
    values = LISTS["mixed"]()
    pack = Pack(values)
    assert sorted(map(len, pack.layout.joined)) == [2, 2]  # bfloat16 and float32
    assert len(pack.buffers) == 2 + 3  # double, half and the large one
    views = pack.views(values)
    assert views[6].data_ptr() == values[6].data_ptr()
    assert views[0].untyped_storage().data_ptr() == views[2].untyped_storage().data_ptr()
    assert views[0].data_ptr() != values[0].data_ptr()


@pytest.mark.parametrize(
    ("name", "is_one"), [("small", True), ("just below large", True), ("one", False), ("small and large", False)]
)
def test_a_layout_knows_whether_one_buffer_is_enough(name: str, is_one: bool) -> None:
    values = LISTS[name]()
    layout = Layout(values)
    assert layout.is_one_buffer is is_one
    assert (len(Pack(values).buffers) == 1 and len(values) > 1) is is_one
    assert layout.num_tensors == len(values)


def test_a_layout_knows_in_which_precision_a_norm_is_taken() -> None:
    assert Layout(randoms(((2,), F), ((2,), B))).dtype == F
    assert Layout(randoms(((2,), F), ((2,), D))).dtype == D
    assert [Layout(randoms(((2,), F), ((2,), dtype))).may_overflow for dtype in (F, D, B, H)] == [False] * 3 + [True]


@pytest.mark.parametrize("kinds", [(F, F), (D, D), (B, F), (B, B), (H, D), (H, H)])
@pytest.mark.parametrize("size", [3, 40_000])
def test_norms_are_taken_in_single_precision_at_least(kinds: tuple[torch.dtype, ...], size: int) -> None:
    """Also if the layout is that of weights in another type."""
    values = [torch.full((size,), 60_000.0).to(kind) for kind in kinds]
    expected = torch.cat([value.double() for value in values]).norm().item()
    for layout in (None, Layout(values), Layout([torch.zeros(size) for _ in values])):
        pack = Pack(values, layout)
        for norm in (pack.norm(), pack.norm_of([0, 1])):
            assert norm.dtype == (D if D in kinds else F)
            assert float(norm) == pytest.approx(expected, rel=1e-4)


def test_a_layout_serves_another_list_of_the_same_kinds(values: list[Tensor]) -> None:
    layout = Layout(values)
    others = [value + 1 for value in values]
    assert are_same_bits(Pack(others, layout).views(values), others)
    assert Pack(others, layout).layout is layout


def test_the_norm_of_a_pack(values: list[Tensor]) -> None:
    result = Pack(values).norm()
    assert result.shape == ()
    assert float(result) == pytest.approx(exact_norm(values), rel=1e-5)


def test_the_norm_of_some(values: list[Tensor]) -> None:
    pack, count = Pack(values), len(values)
    for positions in ([0], [count - 1], list(range(count)), list(range(count // 2, count)), [count - 1, 0]):
        if values and len(set(positions)) == len(positions):
            expected = exact_norm([values[i] for i in positions])
            assert float(pack.norm_of(positions)) == pytest.approx(expected, rel=1e-5)


def test_nobody_else_can_write_to_a_pack_that_owns_its_values(values: list[Tensor]) -> None:
    before = [value.clone() for value in values]
    pack = Pack(values)
    assert pack.detach_owned() is pack
    for value in values:
        (value if 0 not in value.stride() else value[:1]).fill_(7.0)
    assert are_same_bits(pack.views(values), before)
    for buffer in pack.buffers:
        buffer.fill_(3.0)
    assert all(bool((value == 7.0).all()) for value in values)


def test_a_pack_that_owns_its_values_is_out_of_the_graph() -> None:
    values = [torch.ones(LARGE, requires_grad=True) * 2, torch.ones(3)]
    assert not any(buffer.requires_grad for buffer in Pack(values).detach_owned().buffers)


def test_every_bit_goes_through_a_pack() -> None:
    odd = torch.tensor(ODD_BITS, dtype=torch.int32).view(torch.float32)
    values = [odd, odd.view(2, 4).T, odd.repeat(LARGE), odd[:1]]
    assert are_same_bits(Pack(values).detach_owned().views(values), values)


def test_places_set_back_in_place(values: list[Tensor]) -> None:
    values = [value.clone() for value in values]  # an expanded tensor is nobody's weight
    before, storage = [value.clone() for value in values], [value.data_ptr() for value in values]
    places = Places(values)
    for turn in range(3):
        restore = places.keep()
        for value in values:
            value.mul_(-2).add_(turn)
        assert not any(torch.equal(value, kept) for value, kept in zip(values, before, strict=True) if value.numel())
        restore()
        assert are_same_bits(values, before)
        assert [value.data_ptr() for value in values] == storage


def test_places_set_strided_views_back_and_touch_nothing_beside_them() -> None:
    whole = randoms(((12, 9), F))[0]
    before = whole.clone()
    views = [whole[:4].T, whole[4:8, ::2], whole[8:, 3], whole[9, :2]]
    restore = Places(views).keep()
    whole.fill_(7.0)
    restore()
    expected = torch.full_like(whole, 7.0)
    for now, then in zip([expected[:4].T, expected[4:8, ::2], expected[8:, 3], expected[9, :2]], views, strict=True):
        now.copy_(then)
    assert torch.equal(whole, expected)
    assert torch.equal(whole[:4], before[:4])
    assert torch.equal(whole[4:8, ::2], before[4:8, ::2])


def test_setting_back_may_be_done_twice(values: list[Tensor]) -> None:
    values = [value.clone() for value in values]
    before = [value.clone() for value in values]
    restore = Places(values).keep()
    for _ in range(2):
        for value in values:
            value.fill_(7.0)
        restore()
        assert are_same_bits(values, before)


def test_every_bit_is_set_back() -> None:
    odd = torch.tensor(ODD_BITS, dtype=torch.int32).view(torch.float32)
    values = [odd.clone(), odd.view(2, 4).clone().T, odd.repeat(LARGE), odd[2].clone()]
    for chosen in (values, values[:1] + values[3:], [odd.double(), odd.double()[:2]], [odd.bfloat16(), odd.bfloat16()]):
        before = [value.clone() for value in chosen]
        restore = Places(chosen).keep()
        for value in chosen:
            value.fill_(7.0)
        restore()
        assert are_same_bits(chosen, before)


@pytest.mark.parametrize("shape", [(2, 3, 4, 4), (8, 8, 16, 16)], ids=["small", "large"])
def test_storage_may_be_replaced_between_two_copies(shape: tuple[int, ...]) -> None:
    first, second = (torch.nn.Parameter(tensor) for tensor in randoms((shape, F), ((3, 2, 1, 1), F)))
    places = Places([first, second])
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
            restore = places.keep()
            first.fill_(7.0)
            second.add_(1)
            restore()
            assert are_same_bits([first], [before])
            assert first.data_ptr() == storage
            assert old.data_ptr() == storage or torch.equal(old, untouched)


def test_setting_back_is_a_write_that_autograd_sees() -> None:
    """A graph that was kept across it must not use the other weights in silence."""
    weights = [torch.nn.Parameter(tensor) for tensor in randoms(((3,), F), ((4,), F), ((LARGE,), F))]
    restore = Places(weights).keep()  # type: ignore[arg-type]
    losses = [weight.square().sum() for weight in weights]
    with torch.no_grad():
        restore()
    for loss in losses:
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()
