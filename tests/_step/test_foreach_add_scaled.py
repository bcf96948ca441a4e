"""`add_scaled_` is `w ← w + c · d` or nothing, by the fused kernel where that is right and without it elsewhere."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from vsam._step import foreach

F, D, B, H = torch.float32, torch.float64, torch.bfloat16, torch.float16
SHAPES = [(3, 4), (5,), (), (2, 3, 4, 4), (0, 3), (70, 70)]

Pair = tuple[list[Tensor], list[Tensor]]


def randoms(seed: int, *dtypes: torch.dtype) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    made = [torch.randn(shape, generator=generator, dtype=D) for shape in SHAPES]
    return [tensor.to(dtypes[i % len(dtypes)]) for i, tensor in enumerate(made)]


def channels_last(values: list[Tensor]) -> list[Tensor]:
    return [value.to(memory_format=torch.channels_last) if value.ndim == 4 else value for value in values]


def strided(values: list[Tensor]) -> list[Tensor]:
    """The same values with gaps between them."""
    spread = [torch.stack([value, torch.full_like(value, math.nan)], -1)[..., 0] for value in values]
    assert not any(s.is_contiguous() for s in spread if s.numel() > 1)
    return spread


def transposed(values: list[Tensor]) -> list[Tensor]:
    """The same values in the opposite order of storage."""
    orders = [tuple(reversed(range(value.ndim))) for value in values]
    pairs = zip(values, orders, strict=True)
    return [value.permute(order).contiguous().permute(order) for value, order in pairs]


def expanded() -> Pair:
    targets = randoms(0, F)
    return targets, [torch.full((1,) * target.ndim, 0.5 + i).expand_as(target) for i, target in enumerate(targets)]


def shared() -> Pair:
    targets = [tensor for tensor in randoms(0, F) if tensor.ndim == 1] + [torch.ones(5)]
    gradient = torch.arange(5.0)
    return targets, [gradient, gradient]


FUSED: dict[str, Callable[[], Pair]] = {
    "single": lambda: (randoms(0, F), randoms(1, F)),
    "double": lambda: (randoms(0, D), randoms(1, D)),
    "one": lambda: (randoms(0, F)[:1], randoms(1, F)[:1]),
    "no dimensions": lambda: (randoms(0, F)[2:3], randoms(1, F)[2:3]),
    "no elements": lambda: (randoms(0, F)[4:5], randoms(1, F)[4:5]),
    "a shared gradient": shared,
}
NOT_FUSED: dict[str, Callable[[], Pair]] = {
    "bfloat16": lambda: (randoms(0, B), randoms(1, B)),
    "half": lambda: (randoms(0, H), randoms(1, H)),
    "mixed": lambda: (randoms(0, B, F, D), randoms(1, B, F, D)),
    "single, then double": lambda: (randoms(0, F, D), randoms(1, F, D)),
    "gradients of a lower type": lambda: (randoms(0, F), randoms(1, B)),
    "one gradient of a lower type": lambda: (randoms(0, F), [*randoms(1, F)[:-1], randoms(1, B)[-1]]),
    "gradients of a higher type": lambda: (randoms(0, F), randoms(1, D)),
    "channels last against contiguous": lambda: (channels_last(randoms(0, F)), randoms(1, F)),
    "contiguous against channels last": lambda: (randoms(0, F), channels_last(randoms(1, F))),
    "channels last": lambda: (channels_last(randoms(0, F)), channels_last(randoms(1, F))),
    "strided weights": lambda: (strided(randoms(0, F)), randoms(1, F)),
    "strided gradients": lambda: (randoms(0, F), strided(randoms(1, F))),
    "transposed weights": lambda: (transposed(randoms(0, F)), randoms(1, F)),
    "transposed gradients": lambda: (randoms(0, D), transposed(randoms(1, D))),
    "expanded gradients": expanded,
}
ALL = FUSED | NOT_FUSED


@pytest.fixture(params=ALL)
def pair(request: pytest.FixtureRequest) -> Pair:
    return ALL[request.param]()


@pytest.mark.parametrize("position", [0, 1])
def test_lists_may_span_devices(position: int) -> None:
    """One kernel cannot span devices."""
    targets, others = FUSED["single"]()
    expected = [t.double() + 0.37 * o.double() for t, o in zip(targets, others, strict=True)]
    targets[position], others[position] = targets[position].to("meta"), others[position].to("meta")
    foreach.add_scaled_(targets, others, torch.tensor(0.37), torch.tensor(0.0))
    for i, (target, value) in enumerate(zip(targets, expected, strict=True)):
        if i != position:
            torch.testing.assert_close(target.double(), value, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("weight", [0.37, -2.0, 0.0, 1e-3])
@pytest.mark.parametrize("dtype", [F, D])
def test_the_formula(pair: Pair, weight: float, dtype: torch.dtype) -> None:
    targets, others = pair
    storage, kept = [target.data_ptr() for target in targets], [other.clone() for other in others]
    expected = [t.double() + weight * o.double() for t, o in zip(targets, others, strict=True)]
    types = [target.dtype for target in targets]
    foreach.add_scaled_(targets, others, torch.tensor(weight, dtype=dtype), torch.tensor(0.0))
    assert [target.dtype for target in targets] == types
    assert [target.data_ptr() for target in targets] == storage
    for target, other, value in zip(targets, others, expected, strict=True):
        eps = max(torch.finfo(target.dtype).eps, torch.finfo(other.dtype).eps, torch.finfo(dtype).eps)
        torch.testing.assert_close(target.double(), value, rtol=2 * eps, atol=2 * eps)
    assert all(torch.equal(other, value) for other, value in zip(others, kept, strict=True))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1.0])
@pytest.mark.parametrize("weight", [0.37, math.nan, math.inf])
def test_nothing_happens_where_it_must_not(pair: Pair, bad: float, weight: float) -> None:
    targets, others = pair
    if not any(0 in other.stride() for other in others):
        for other in others:
            other.fill_(bad)
    before = [target.clone() for target in targets]
    foreach.add_scaled_(targets, others, torch.tensor(weight), torch.tensor(1.0))
    assert all(torch.equal(target, value) for target, value in zip(targets, before, strict=True))


def test_what_is_not_finite_goes_through_where_it_may(pair: Pair) -> None:
    targets, others = pair
    foreach.add_scaled_(targets, others, torch.tensor(math.nan), torch.tensor(0.0))
    assert all(bool(target.isnan().all()) for target in targets)


def test_a_strided_weights_neighbours_are_left_alone() -> None:
    whole = torch.zeros(4, 6)
    foreach.add_scaled_([whole[:, ::2]], [torch.ones(4, 3)], torch.tensor(2.0), torch.tensor(0.0))
    assert torch.equal(whole[:, ::2], torch.full((4, 3), 2.0))
    assert not whole[:, 1::2].any()


def test_half_precision_takes_a_factor_that_it_cannot_hold() -> None:
    targets = [torch.zeros(3, dtype=H), torch.zeros(2, dtype=H)]
    others = [torch.full((3,), 1e-6).half(), torch.zeros(2).half()]
    foreach.add_scaled_(targets, others, torch.tensor(1e6), torch.tensor(0.0))
    torch.testing.assert_close(targets[0], (others[0].double() * 1e6).half())
    assert not targets[1].any()


def test_parameters_that_need_a_gradient_are_moved_without_a_graph() -> None:
    for dtype in (F, B):
        weights = [torch.nn.Parameter(tensor) for tensor in randoms(0, dtype)]
        with torch.no_grad():
            foreach.add_scaled_(weights, randoms(1, dtype), torch.tensor(0.5), torch.tensor(0.0))  # type: ignore[arg-type]
        assert all(weight.grad_fn is None and weight._version > 0 for weight in weights if weight.numel())


def test_no_tensors_are_no_mistake() -> None:
    foreach.add_scaled_([], [], torch.tensor(1.0), torch.tensor(0.0))
