"""`vsam.amp.GradScaler` runs both passes. torch's own raises an error that shows the fix."""

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

import vsam
from contract_table import LENGTH, LOOPING, METHODS, Base, Run, assert_same, every_early_style, every_method
from vsam.amp import GradScaler

pytestmark = pytest.mark.filterwarnings("ignore:A gradient was not finite:RuntimeWarning")
SCALE = 1024.0


class _Scaled(Run):
    """A run whose losses are scaled, with one gradient poisoned where the test asks for it."""

    def __init__(self, method: str, base: Base = "momentum", scaler: torch.amp.GradScaler | None = None) -> None:
        super().__init__(method, base)
        self.scaler = scaler or GradScaler("cpu", init_scale=SCALE)
        self.poisoned_pass = 0

        self.model[5].bias.register_hook(self._poison)

    def _poison(self, gradient: Tensor) -> Tensor:
        self.poisoned_pass -= 1
        return gradient if self.poisoned_pass else torch.full_like(gradient, math.inf)

    def _pass(self, number: int) -> Tensor:
        loss = self.loss(number)
        self.scaler.scale(loss).backward()
        return loss

    def step(self, number: int) -> Tensor:
        # Where step takes per-sample losses, it scales them itself.
        given = partial(self._pass, number) if self.method in LOOPING else self.closure(number)
        loss = self.scaler.step(self.optimizer, given)
        self.scaler.update()
        return loss

    def step_without_closure(self, number: int) -> None:
        self.optimizer.zero_grad()
        self._pass(number)
        assert isinstance(self.scaler, GradScaler)
        if self.scaler.perturb(self.optimizer):
            self._pass(number)
        self.scaler.step(self.optimizer)
        self.scaler.update()


STYLES: dict[str, Callable[[_Scaled, int], object]] = {
    "closure": lambda run, number: run.step(number),
    "loop": lambda run, number: run.step_without_closure(number),
}
each_style = pytest.mark.parametrize(
    ("method", "style"), [*((method, "closure") for method in METHODS), *((method, "loop") for method in LOOPING)]
)


@each_style
def test_equals_the_run_without_scaling(method: str, style: str) -> None:
    """A scale that is a power of two changes no digit."""
    plain, scaled = Run(method, "momentum").go(), _Scaled(method)
    for number in range(LENGTH):
        STYLES[style](scaled, number)
    assert scaled.optimizer.num_samples == plain.optimizer.num_samples
    torch.testing.assert_close(scaled.weights(), plain.weights(), rtol=1e-5, atol=1e-7)


@every_early_style
@pytest.mark.parametrize("at_pass", [1, 2])
def test_overflow_skips_and_lowers_the_scale(method: str, style: str, at_pass: int) -> None:
    run = _Scaled(method)
    for number in range(2):
        STYLES[style](run, number)
    run.optimizer._records.num_steps = 0  # SAM-5 and LookSAM-5 sample again
    if method == "ae-sam":
        run.optimizer.when.mean = None  # type: ignore[attr-defined]  # and so does AE-SAM
    weights, scale = run.weights(), run.scaler.get_scale()
    run.poisoned_pass = at_pass
    STYLES[style](run, 2)
    last = run.optimizer.last
    assert last is not None
    assert last.skipped
    assert last.sampled or (at_pass, method) == (1, "ae-sam")
    assert run.optimizer.num_skipped == 1
    assert run.scaler.get_scale() == scale / 2
    assert_same(run.weights(), weights)
    STYLES[style](run, 3)
    assert any(not torch.equal(a, b) for a, b in zip(run.weights(), weights, strict=True))
    assert run.scaler.get_scale() == scale / 2


def test_scale_grows_while_all_is_well() -> None:
    run = _Scaled("sam", scaler=GradScaler("cpu", init_scale=SCALE, growth_interval=2))
    for number in range(4):
        run.step(number)
    assert run.scaler.get_scale() == 4 * SCALE


def test_the_loss_is_returned_and_noted_unscaled() -> None:
    plain = Run("sam").step(0)
    run = _Scaled("sam")
    assert torch.equal(run.step(0), plain)
    assert run.optimizer.last is not None
    assert torch.equal(run.optimizer.last.loss, plain)


def test_norms_are_of_unscaled_gradients() -> None:
    plain, run = Run("sam").go(last=1), _Scaled("sam")
    run.step(0)
    assert run.optimizer.last is not None
    assert run.optimizer.last.grad_norm == pytest.approx(plain.records[0].grad_norm, rel=1e-5)


@pytest.mark.parametrize("fused", [False, True])
def test_overflow_with_a_fused_base(fused: bool) -> None:
    run = _Scaled("sam", lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, fused=fused))
    run.step(0)
    run.step(1)
    weights, run.poisoned_pass = run.weights(), 2
    run.step(2)
    assert_same(run.weights(), weights)
    assert run.scaler.get_scale() == SCALE / 2
    assert run.optimizer.num_skipped == 1


def test_a_disabled_scaler_does_nothing() -> None:
    plain, run = Run("vsam", "momentum").go(last=4), _Scaled("vsam", scaler=GradScaler("cpu", enabled=False))
    for number in range(4):
        STYLES["loop" if number % 2 else "closure"](run, number)
    assert_same(run.weights(), plain.weights())


def test_autocast_casts_are_not_carried_into_the_second_pass() -> None:
    """Autocast caches the cast of a weight, but each pass must cast the weight that it has."""
    model, inputs, seen = torch.nn.Linear(4, 4, bias=False), torch.randn(8, 4), []
    optimizer = vsam.SAM(torch.optim.SGD(model.parameters(), lr=0.1), rho=5.0)

    def closure() -> Tensor:
        output = model(inputs)
        seen.append((output.detach(), inputs.bfloat16() @ model.weight.detach().bfloat16().T))
        loss = output.float().square().mean()
        loss.backward()
        return loss

    with torch.autocast("cpu", dtype=torch.bfloat16):
        optimizer.step(closure)
    for output, expected in seen:
        torch.testing.assert_close(output, expected)
    assert not torch.allclose(seen[0][0], seen[1][0], atol=0.1)


def test_a_failure_leaves_the_scaler_usable() -> None:
    run = _Scaled("sam")
    run.step(0)
    weights = run.weights()

    def fail() -> Tensor:
        run._pass(1)
        raise KeyError

    with pytest.raises(KeyError):
        run.scaler.step(run.optimizer, fail)
    assert_same(run.weights(), weights)
    run.step(1)
    assert run.scaler.get_scale() == SCALE


@every_method
def test_torchs_own_scaler_is_refused_with_advice(method: str) -> None:
    expected = Run(method).go(last=2).weights()
    run, scaler = Run(method), torch.amp.GradScaler("cpu")
    scaler.scale(torch.ones(()))
    with pytest.raises(RuntimeError, match=r"vsam\.amp\.GradScaler.*scaler\.scale\(loss\)\.backward\(\)"):
        scaler.step(run.optimizer, run.closure(0))
    assert run.num_passes == 0
    run.go(last=2)
    assert_same(run.weights(), expected)


def test_torchs_own_scaler_after_perturb_leaves_the_weights_back() -> None:
    run, scaler = Run("sam"), torch.amp.GradScaler("cpu")
    weights = run.weights()
    scaler.scale(run.loss(0)).backward()
    assert run.optimizer.perturb()
    scaler.scale(run.loss(0)).backward()
    with pytest.raises(RuntimeError, match=r"vsam\.amp\.GradScaler"):
        scaler.step(run.optimizer)
    assert_same(run.weights(), weights)


def test_stepping_twice_before_update_is_refused() -> None:
    run = _Scaled("sam")
    run.scaler.step(run.optimizer, lambda: run._pass(0))
    with pytest.raises(RuntimeError, match=r"called.*update\(\)"):
        run.scaler.step(run.optimizer, lambda: run._pass(1))


def test_other_optimizers_are_treated_as_torch_does() -> None:
    point = torch.nn.Parameter(torch.ones(2))
    optimizer, scaler = torch.optim.SGD([point], lr=0.1), GradScaler("cpu", init_scale=4.0)
    scaler.scale(point.square().sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    torch.testing.assert_close(point.detach(), torch.full((2,), 0.8))


def test_gradients_that_were_not_scaled_are_noticed() -> None:
    run = Run("sam")
    before = run.everything()
    with pytest.raises(RuntimeError, match=r"not scaled: call scaler\.scale\(loss\)\.backward\(\)"):
        GradScaler("cpu").step(run.optimizer, run.closure(0))
    assert_same(run.everything(), before)


@pytest.mark.parametrize("make", [partial(vsam.WSAM, gamma=0.99), partial(vsam.GSAM, alpha=50.0)])
def test_what_half_precision_cannot_hold_does_not_reach_the_weights(make: Callable[..., vsam.SharpnessAware]) -> None:
    """Finite gradients, of which a method makes one that is not."""
    weight = torch.nn.Parameter(torch.ones(2, dtype=torch.float16))
    optimizer, passes = make(torch.optim.SGD([weight], lr=2.0**-12)), [(100.0, 0.0), (3000.0, 1500.0)]

    def closure() -> None:
        weight.grad = torch.tensor(passes.pop(0), dtype=torch.float16)

    optimizer.step(closure)
    assert optimizer.num_skipped == 0
    torch.testing.assert_close(weight.detach(), torch.tensor((1 - 3000 / 4096, 1 - 1500 / 4096)).half())
