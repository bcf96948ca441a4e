"""A second pass that differs from the first, or weights lost in between, are handled or raise an error."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import vsam
from contract_table import BASES, BATCHES, METHODS, Run, assert_same, network

LOOPING = ["sam", "vsam", "gsam", "wsam"]


class Centred(nn.Module):
    """Subtracts a running average that it also updates, so a pass depends on a buffer that it writes to."""

    def __init__(self, size: int, write: str) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(size))
        self.write = write

    def forward(self, inputs: Tensor) -> Tensor:
        outputs = inputs - self.mean[: inputs.shape[1]]
        if self.training:
            now = self.mean.detach().clone()
            now[: inputs.shape[1]].lerp_(inputs.detach().mean(0), 0.5)
            if self.write == "assign":
                self.mean = now
            elif self.write == "data":
                self.mean.data.copy_(now)
            else:
                self.mean.copy_(now)
        return outputs


def centred(write: str, size: int) -> nn.Module:
    torch.manual_seed(0)
    width = BATCHES[0][0][0].numel()
    return nn.Sequential(nn.Flatten(), Centred(max(size, width), write), nn.Linear(width, 3))


def spectral() -> nn.Module:
    torch.manual_seed(0)
    width = BATCHES[0][0][0].numel()
    return nn.Sequential(nn.Flatten(), nn.utils.parametrizations.spectral_norm(nn.Linear(width, 3)))


@pytest.mark.parametrize("has_closure", [True, False])
@pytest.mark.parametrize(
    "make",
    [lambda: centred("copy", 0), lambda: centred("assign", 0), lambda: centred("data", 70_000), spectral],
    ids=["copied", "assigned", "large, through data", "spectral norm"],
)
def test_a_pass_that_depends_on_buffers_is_repeated(make: Callable[[], nn.Module], has_closure: bool) -> None:
    run, twin = Run("sam", model=make()), make()
    run.optimizer.param_groups[0]["rho"] = 0.0
    base = BASES["sgd"](twin.parameters())
    run.optimizer.subscribe(run.records.append)
    for number in range(4):
        base.zero_grad()
        nn.functional.cross_entropy(twin(BATCHES[number][0]), BATCHES[number][1]).backward()
        base.step()
        run.optimizer.step(closure_of(run, number)) if has_closure else without_closure(run, number)
        assert_same([*run.model.parameters(), *run.model.buffers()], [*twin.parameters(), *twin.buffers()])
    assert [record.psf_norm for record in run.records] == [0.0] * 4


def loss_of(run: Run, number: int) -> Tensor:
    return nn.functional.cross_entropy(run.model(BATCHES[number][0]), BATCHES[number][1])


def closure_of(run: Run, number: int) -> Callable[[], Tensor]:
    def closure() -> Tensor:
        loss = loss_of(run, number)
        loss.backward()
        return loss

    return closure


def without_closure(run: Run, number: int) -> None:
    run.optimizer.zero_grad()
    loss_of(run, number).backward()
    if run.optimizer.perturb():
        loss_of(run, number).backward()
    run.optimizer.step()


# Weights that somebody reads or replaces while they are perturbed


def interrupted(method: str) -> tuple[Run, list[Tensor]]:
    """A run whose second pass was interrupted, and its weights before that."""
    run = Run(method)
    run.step_without_closure(0)
    weights = run.weights()
    run.loss(1).backward()
    assert run.optimizer.perturb()
    return run, weights


@pytest.mark.parametrize("method", LOOPING)
@pytest.mark.parametrize("read", [nn.Module.state_dict, copy.deepcopy], ids=["state_dict", "deepcopy"])
def test_reading_the_model_in_the_second_pass_reads_the_weights(method: str, read: Callable[..., Any]) -> None:
    run, weights = interrupted(method)
    found = run.model.state_dict() if read is nn.Module.state_dict else read(run.model).state_dict()
    names = [name for name, _ in run.model.named_parameters()]
    assert_same([found[name] for name in names], weights)
    assert not {"state_dict", "load_state_dict", "zero_grad", "__deepcopy__"} & vars(run.model).keys()
    with pytest.raises(RuntimeError, match="without a closure"):
        run.optimizer.step()


@pytest.mark.parametrize("method", LOOPING)
def test_loading_after_an_interrupted_second_pass_is_not_undone(method: str) -> None:
    run, _ = interrupted(method)
    kept = Run(method)
    kept.step_without_closure(2)
    model_state, state = copy.deepcopy(kept.model.state_dict()), copy.deepcopy(kept.optimizer.state_dict())
    run.model.load_state_dict(model_state)
    run.optimizer.load_state_dict(state)
    assert_same([*run.model.state_dict().values()], [*model_state.values()])


@pytest.mark.parametrize("has_model", [True, False])
def test_weights_written_in_an_abandoned_step_are_restored_with_a_word(has_model: bool) -> None:
    model = network()
    given = {"model": model} if has_model else {}
    optimizer = vsam.SAM(torch.optim.SGD(model.parameters(), lr=0.1), **given)
    nn.functional.cross_entropy(model(BATCHES[0][0]), BATCHES[0][1]).backward()
    before = [parameter.detach().clone() for parameter in model.parameters()]
    assert optimizer.perturb()
    next(layer for layer in model.modules() if isinstance(layer, nn.Linear)).reset_parameters()
    with pytest.warns(RuntimeWarning, match="Weights were written after perturb"):
        optimizer.zero_grad()
    assert_same([parameter.detach() for parameter in model.parameters()], before)


def test_methods_that_the_user_set_on_the_model_stay() -> None:
    run = Run("sam")
    weights = run.weights()
    run.model.state_dict = lambda: {"own": run.weights()}  # type: ignore[assignment]
    for _ in range(2):
        run.loss(0).backward()
        assert run.optimizer.perturb()
        assert_same(run.model.state_dict()["own"], weights)
        run.optimizer.zero_grad()
    assert "state_dict" in vars(run.model)


# Gradients that change on the way


@pytest.mark.parametrize("listens", [False, True])
@pytest.mark.parametrize("width", [4, 300])
def test_a_plain_step_clips_and_checks_what_the_base_gets(listens: bool, width: int) -> None:
    torch.manual_seed(0)
    model = nn.Linear(width, width)
    base = torch.optim.SGD(model.parameters(), lr=0.0)
    optimizer = vsam.SAM(base, model=model, every=2, max_grad_norm=1.0)
    if listens:
        optimizer.subscribe(lambda record: None)
    seen: list[float] = []

    def measure(*_: object) -> None:
        seen.append(float(nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None])))

    base.register_step_pre_hook(measure)
    inputs = torch.randn(8, width)
    for _ in range(4):
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        if optimizer.perturb():
            model(inputs).square().mean().backward()
        else:
            (100 * model(inputs).square().mean()).backward()  # one more loss
        optimizer.step()
    assert max(seen) <= 1 + 1e-5
    assert min(seen[1::2]) == pytest.approx(1, abs=1e-4)
    optimizer.zero_grad()
    model(inputs).square().mean().backward()
    assert optimizer.perturb()
    model(inputs).square().mean().backward()
    optimizer.step()
    model(inputs).square().mean().backward()
    assert not optimizer.perturb()
    model.weight.grad.fill_(float("nan"))  # type: ignore[union-attr]
    with pytest.warns(RuntimeWarning, match="not finite"):
        optimizer.step()
    assert optimizer.num_skipped == 1


def clipped_before(run: Run, number: int) -> None:
    run.optimizer.zero_grad()
    run.loss(number).backward()
    nn.utils.clip_grad_norm_(run.model.parameters(), 1e-3)
    if run.optimizer.perturb():
        run.loss(number).backward()
    run.optimizer.step()


@pytest.mark.parametrize("method", ["vsam", "gsam", "wsam"])
def test_clipping_before_perturb_is_said_once(method: str) -> None:
    run = Run(method)
    with pytest.warns(RuntimeWarning, match="between backward\\(\\) and perturb\\(\\)"):
        clipped_before(run, 0)
    clipped_before(run, 1)  # a second warning would be an error
    assert not getattr(next(run.model.parameters()), "_post_accumulate_grad_hooks", None)


def test_clipping_before_perturb_does_not_matter_to_sam() -> None:
    run = Run("sam")
    clipped_before(run, 0)
    assert run.optimizer.num_samples == 1


@pytest.mark.parametrize("method", ["sam", "vsam"])
def test_a_second_pass_over_other_micro_batches_is_an_error(method: str) -> None:
    def accumulate(run: Run, repeated: list[int]) -> vsam.SharpnessAware:
        for number in range(3):
            run.loss(number).backward()
        assert run.optimizer.perturb()
        for number in repeated:
            run.loss(number).backward()
        return run.optimizer

    accumulate(Run(method), [0, 1, 2]).step()
    for repeated in ([2], [0, 1, 2, 2]):
        run = Run(method)
        weights = run.weights()
        optimizer = accumulate(run, repeated)
        with pytest.raises(RuntimeError, match=f"3 backward passes and the second one {len(repeated)}"):
            optimizer.step()
        assert_same(run.weights(), weights)
        optimizer.zero_grad()
        run.step(0)


@pytest.mark.parametrize("method", LOOPING)
def test_other_forward_passes_are_no_accident(method: str) -> None:
    """Warnings are errors here."""
    run = Run(method)
    run.loss(0)  # to see the shape
    for number in range(2):
        if number:
            run.loss(number)  # a loss that was thrown away
        run.loss(number).backward()
        if run.optimizer.perturb():
            run.loss(number).backward()
        run.optimizer.step()
        run.model.zero_grad()
        run.loss(number).backward()  # another network's loss
        run.model.zero_grad()


@pytest.mark.parametrize("method", LOOPING)
def test_a_frozen_first_layer_is_not_watched(method: str) -> None:
    run = Run(method)
    for number in range(3):
        next(run.model.parameters()).requires_grad_(number == 1)
        run.step_without_closure(number)
    assert run.optimizer.last is not None


def num_hooks(model: nn.Module) -> int:
    return sum(len(getattr(one, "_post_accumulate_grad_hooks", None) or ()) for one in model.parameters())


def test_no_hook_is_left_behind() -> None:
    run = Run("vsam")
    for number in range(3):
        run.step_without_closure(number)
        assert num_hooks(run.model) == 0
    run.loss(0).backward()
    assert num_hooks(run.model) == 1
    del run.optimizer
    assert num_hooks(run.model) == 0


# Calls that cannot be right


@pytest.mark.parametrize("method", LOOPING)
def test_perturb_inside_a_closure_is_refused(method: str) -> None:
    run = Run(method)
    weights = run.weights()

    def closure() -> Tensor:
        loss = run.loss(0)
        loss.backward()
        if run.optimizer.perturb():
            run.loss(0).backward()
        return loss

    with pytest.raises(RuntimeError, match="inside the closure"):
        run.optimizer.step(closure)
    assert_same(run.weights(), weights)
    run.step(0)


def test_zero_grad_after_perturb_is_explained() -> None:
    run = Run("sam")
    run.loss(0).backward()
    assert run.optimizer.perturb()
    run.optimizer.zero_grad()
    run.loss(0).backward()
    with pytest.raises(RuntimeError, match="zero_grad\\(\\) abandons the step"):
        run.optimizer.step()


def test_a_base_that_steps_on_its_own_in_between_leaves_nothing_accumulated() -> None:
    run = Run("sam")
    base = run.optimizer.base
    for number in range(4):
        run.optimizer.step(run.closure(number))
        base.zero_grad(set_to_none=False)
        run.loss(number).backward()
        base.step()
    assert run.optimizer.num_samples == 4


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("method", sorted(METHODS))
def test_any_default_dtype_works(method: str, dtype: torch.dtype) -> None:
    torch.set_default_dtype(dtype)
    try:
        run = Run(method, model=network().float(), base="sgd")
        run.go(0, 3)
    finally:
        torch.set_default_dtype(torch.float32)
    assert run.optimizer.num_skipped == 0


class Resizing(nn.Module):
    """Grows its buffer in the first forward pass, as observers of quantization do."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("lows", torch.zeros(size))
        self.fails = True

    def forward(self, inputs: Tensor) -> Tensor:
        if len(self.lows) < inputs.shape[1]:
            self.lows.resize_(inputs.shape[1]).zero_()
        if self.fails:
            raise ValueError("the user's own error")
        return inputs


@pytest.mark.parametrize("size", [0, 1])
def test_a_buffer_that_was_resized_is_put_back_and_the_error_is_the_users(size: int) -> None:
    width = BATCHES[0][0][0].numel()
    layer = Resizing(size)
    run = Run("sam", model=nn.Sequential(nn.Flatten(), layer, nn.Linear(width, 3)))
    with pytest.raises(ValueError, match="the user's own error"):
        run.optimizer.step(closure_of(run, 0))
    assert layer.lows.shape == (size,)
    layer.fails = False
    run.optimizer.step(closure_of(run, 0))
    assert layer.lows.shape == (width,)


class Scaled(nn.Module):
    """Sets its scale by the first batch, and a flag that it did, as layers of flows and of quantization do."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))
        self.register_buffer("is_set", torch.zeros((), dtype=torch.uint8))
        self.num_set = 0

    def forward(self, inputs: Tensor) -> Tensor:
        if not self.is_set:
            self.scale.data.copy_(1 / inputs.detach().std())
            self.is_set.fill_(1)
            self.num_set += 1
        return self.scale * inputs


@pytest.mark.parametrize("has_closure", [True, False])
def test_a_layer_is_initialised_once(has_closure: bool) -> None:
    width = BATCHES[0][0][0].numel()
    layer = Scaled()
    run = Run("sam", model=nn.Sequential(nn.Flatten(), layer, nn.Linear(width, 3)))
    for number in range(3):
        run.optimizer.step(closure_of(run, number)) if has_closure else without_closure(run, number)
    assert layer.num_set == 1


class Renormalised(nn.BatchNorm1d):
    """Depends on its running mean in training too."""

    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs) - self.running_mean  # type: ignore[operator]


def test_a_normalisation_layer_of_ones_own_is_repeated() -> None:
    width = BATCHES[0][0][0].numel()
    run = Run("sam", model=nn.Sequential(nn.Flatten(), Renormalised(width), nn.Linear(width, 3)))
    run.optimizer.param_groups[0]["rho"] = 0.0
    run.optimizer.subscribe(run.records.append)
    for number in range(3):
        run.optimizer.step(closure_of(run, number))
    assert [record.psf_norm for record in run.records] == [0.0] * 3


def test_an_embedding_that_limits_its_norms_is_restored() -> None:
    model = nn.Embedding(10, 6, max_norm=1.0)
    optimizer = vsam.SAM(torch.optim.SGD(model.parameters(), lr=0.1), model=model, rho=0.5)
    indices = torch.arange(10)
    model(indices).sum().backward()
    before = model.weight.detach().clone()
    assert optimizer.perturb()
    model(indices)
    with pytest.warns(RuntimeWarning, match="Weights were written after perturb"):
        optimizer.zero_grad()
    assert_same([model.weight.detach()], [before])


def test_an_inference_tensor_is_left_alone() -> None:
    width = BATCHES[0][0][0].numel()
    model = nn.Sequential(nn.Flatten(), nn.Linear(width, 3))
    with torch.inference_mode():
        model.register_buffer("constant", torch.ones(3))
    run = Run("sam", model=model)
    run.optimizer.step(closure_of(run, 0))
    without_closure(run, 1)
    assert run.optimizer.num_samples == 2


def test_another_optimizer_that_is_gone_leaves_nothing_accumulated() -> None:
    run = Run("sam")
    other = vsam.SAM(torch.optim.SGD(run.model.parameters(), lr=0.1), model=run.model)
    other.step(run.closure(0))
    del other
    run.step(1)
