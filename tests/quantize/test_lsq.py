"""The quantizer: its values, its gradients in closed form and against the surrogate, and its guard."""

import math

import pytest
import torch

from vsam.quantize import lsq
from vsam.quantize.lsq import SMALLEST_STEP

RANGES = {"signed 4": (-8, 7), "unsigned 4": (0, 15), "signed 8": (-128, 127), "signed 2": (-2, 1)}


@pytest.fixture(params=RANGES)
def bounds(request):
    return RANGES[request.param]


@pytest.fixture
def values():
    generator = torch.Generator().manual_seed(0)
    return (4 * torch.randn(200, dtype=torch.float64, generator=generator)).requires_grad_()


def scalar(value, dtype=torch.float64):
    return torch.tensor(value, dtype=dtype, requires_grad=True)


def closed_form(value, step, low, high):
    """Value and both slopes of one number, from the definition."""
    ratio = value / step
    if ratio < low:
        return step * low, 0.0, low
    if ratio > high:
        return step * high, 0.0, high
    return step * round(ratio), 1.0, round(ratio) - ratio


def test_values_and_gradients_equal_the_closed_form(values, bounds):
    size, scale = 6 / bounds[1], 0.25
    step = scalar(size)
    weights = torch.linspace(-1, 2, 200, dtype=torch.float64)
    quantized = lsq(values, step, *bounds, scale)
    (weights * quantized).sum().backward()
    expected = [closed_form(value, size, *bounds) for value in values.tolist()]
    assert {slope for _, slope, _ in expected} == {0.0, 1.0}
    assert quantized.tolist() == pytest.approx([value for value, _, _ in expected], abs=1e-14)
    assert values.grad.tolist() == [w * slope for w, (_, slope, _) in zip(weights.tolist(), expected, strict=True)]
    of_step = sum(w * slope for w, (_, _, slope) in zip(weights.tolist(), expected, strict=True))
    assert step.grad.item() == pytest.approx(scale * of_step, rel=1e-12)


def test_gradients_equal_finite_differences_of_the_surrogate(values, bounds):
    """The surrogate: rounding adds a constant, found at the point where the gradient is taken."""
    low, high = bounds
    step, scale = scalar(0.3), 0.7
    ratio = (values / step).detach().clamp(low, high)
    rounding = ratio.round() - ratio

    def surrogate(v, s):
        return ((s * ((v / s).clamp(low, high) + rounding)) ** 2).sum()

    quantized = lsq(values, step, low, high, scale)
    assert quantized.detach().tolist() == pytest.approx((step * (ratio + rounding)).tolist(), abs=1e-14)
    (quantized**2).sum().backward()
    with torch.no_grad():
        h = 1e-6
        of_step = (surrogate(values, step + h) - surrogate(values, step - h)) / (2 * h)
        moved = torch.eye(200, dtype=torch.float64) * h
        of_values = torch.stack([(surrogate(values + e, step) - surrogate(values - e, step)) / (2 * h) for e in moved])
    torch.testing.assert_close(step.grad, scale * of_step, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(values.grad, of_values, rtol=1e-5, atol=1e-5)


def test_second_derivatives_are_those_of_the_surrogate(values):
    step = scalar(0.3)
    quantized = lsq(values, step, -8, 7)
    (of_step,) = torch.autograd.grad((quantized**2).sum(), step, create_graph=True)
    (curvature,) = torch.autograd.grad(of_step, step)
    slopes = torch.tensor([closed_form(value, 0.3, -8, 7)[2] for value in values.tolist()], dtype=torch.float64)
    torch.testing.assert_close(curvature, 2 * (slopes**2).sum())


def test_it_works_under_function_transforms(values):
    step = scalar(0.3)
    lsq(values, step, -8, 7, 0.5).pow(2).sum().backward()
    rows = values.detach().view(10, 20)
    of_step = torch.func.grad(lambda row, s: lsq(row, s, -8, 7, 0.5).pow(2).sum(), argnums=1)
    by_row = torch.func.vmap(of_step, in_dims=(0, None))(rows, step.detach())
    torch.testing.assert_close(by_row.sum(), step.grad)


def test_the_ends_of_the_range_are_inside():
    values, step = torch.tensor([-4.0, 3.5, 0.0], requires_grad=True), scalar(0.5, torch.float32)
    lsq(values, step, -8, 7).sum().backward()
    assert values.grad.tolist() == [1, 1, 1]
    assert step.grad.item() == 0


def test_halves_round_to_even_and_results_are_whole_multiples(values, bounds):
    low, high = bounds
    quotients = lsq(values, scalar(0.3), low, high) / 0.3
    torch.testing.assert_close(quotients, quotients.round(), rtol=0, atol=1e-12)
    assert quotients.min() >= low - 1e-9
    assert quotients.max() <= high + 1e-9
    halves = torch.tensor([0.5, 1.5, 2.5])
    assert lsq(halves, torch.tensor(1.0), -8, 7).tolist() == [0, 2, 2]


@pytest.mark.parametrize("pushed", [0.0, -0.0, -0.3, 1e-30, -1e-30])
def test_a_step_pushed_to_zero_or_below_stays_positive_in_force(values, pushed):
    step = scalar(pushed)
    quantized = lsq(values, step, -8, 7)
    in_force = max(abs(pushed), SMALLEST_STEP)
    assert quantized.tolist() == [closed_form(value, in_force, -8, 7)[0] for value in values.tolist()]
    quantized.abs().sum().backward()
    assert values.grad.isfinite().all()
    assert step.grad.isfinite()
    sign = -1 if pushed < 0 else 1
    slopes = (math.copysign(1, q) * closed_form(v, in_force, -8, 7)[2] * (q != 0) for v, q in pairs(values, quantized))
    assert step.grad.item() == pytest.approx(sign * sum(slopes), rel=1e-9)


def pairs(values, quantized):
    return zip(values.tolist(), quantized.tolist(), strict=True)


@pytest.mark.parametrize("pushed", [0.0, -0.02])
def test_gradient_descent_finds_back_from_a_pushed_step(values, pushed):
    """Least squares between values and their quantized ones: the step in force must recover a good size."""
    step = scalar(pushed)
    optimizer = torch.optim.SGD([step], lr=0.02)

    def error():
        return ((lsq(values.detach(), step, -8, 7) - values.detach()) ** 2).mean()

    start = error().item()
    for _ in range(300):
        optimizer.zero_grad()
        error().backward()
        optimizer.step()
    assert error().item() < 0.3 < start


def test_thirty_two_bits_are_almost_the_identity_and_do_not_overflow():
    values = torch.linspace(-3, 3, 10_001, requires_grad=True)
    step = torch.tensor(2 * 1.5 / math.sqrt(2**31 - 1), requires_grad=True)
    quantized = lsq(values, step, -(2**31), 2**31 - 1)
    torch.testing.assert_close(quantized, values, rtol=1e-6, atol=1e-4)
    quantized.sum().backward()
    assert (values.grad == 1).all()
    assert step.grad.isfinite()
    huge = lsq(torch.tensor([-1e30, 1e30]), torch.tensor(1.0), -(2**31), 2**31 - 1)
    assert huge.tolist() == [-(2.0**31), 2.0**31]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_low_precision_values_are_quantized_in_float32(dtype):
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(5000, generator=generator).to(dtype).requires_grad_()
    exact_values = values.detach().double().requires_grad_()
    step, exact_step = scalar(0.13, torch.float32), scalar(torch.tensor(0.13).item())
    quantized, exact = lsq(values, step, -8, 7), lsq(exact_values, exact_step, -8, 7)
    assert quantized.dtype == dtype
    assert torch.equal(quantized, exact.to(dtype))
    quantized.sum().backward()
    exact.sum().backward()
    assert step.grad.dtype == torch.float32
    assert step.grad.item() == pytest.approx(exact_step.grad.item(), rel=1e-4)
    assert torch.equal(values.grad.double(), exact_values.grad)


def test_a_low_precision_step_has_a_positive_floor_too():
    step = torch.tensor(0.0, dtype=torch.float16, requires_grad=True)
    quantized = lsq(torch.tensor([0.0, 1.0], dtype=torch.float16), step, -8, 7)
    assert quantized.isfinite().all()
    quantized.sum().backward()
    assert step.grad.item() == 7


def test_a_step_may_differ_by_channel():
    values = torch.randn(3, 5, generator=torch.Generator().manual_seed(0)).double()
    step = torch.tensor([[0.1], [0.2], [0.4]], dtype=torch.float64, requires_grad=True)
    quantized = lsq(values, step, -8, 7)
    quantized.sum().backward()
    for channel in range(3):
        single = scalar(step[channel].item())
        row = lsq(values[channel], single, -8, 7)
        row.sum().backward()
        assert torch.equal(quantized[channel], row)
        assert step.grad[channel].item() == pytest.approx(single.grad.item())


def test_what_cannot_be_quantized_is_refused():
    with pytest.raises(ValueError, match="low must be below high, got 7 and 7"):
        lsq(torch.ones(2), torch.tensor(1.0), 7, 7)
    with pytest.raises(ValueError, match=r"must be floating point, got torch\.int64"):
        lsq(torch.ones(2, dtype=torch.int64), torch.tensor(1.0), 0, 7)
