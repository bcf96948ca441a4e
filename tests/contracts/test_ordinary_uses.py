"""Ordinary loops are right, or an error shows the lines to write instead."""

import copy
import gc
import io
import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

import vsam
from contract_table import (
    BATCHES,
    LENGTH,
    Run,
    assert_same,
    every_early_looping_method,
    every_looping_method,
    every_method,
    every_method_that,
    network,
)

TO_WRITE = r"(?s)accumulated before step\(closure\).*for inputs, targets in micro_batches:.*loss\.backward\(\)"


# Gradients that were accumulated before step(closure)


@every_method
def test_micro_batches_accumulated_before_the_step_are_refused(method: str) -> None:
    """As Lightning and Accelerate do, and the usual loop of every k-th batch."""
    run = Run(method).go(last=2)
    run.optimizer.zero_grad()
    run.loss(2).backward()
    before = run.everything()
    with pytest.raises(RuntimeError, match=TO_WRITE):
        run.optimizer.step(run.closure(3))
    assert_same(run.everything(), before)
    run.optimizer.zero_grad()
    run.step(3)


@every_method
def test_accumulation_on_top_of_the_last_steps_gradient_is_refused(method: str) -> None:
    run = Run(method).go(last=2)
    run.loss(2).backward()
    with pytest.raises(RuntimeError, match=TO_WRITE):
        run.optimizer.step(run.closure(3))


def test_accumulation_in_the_last_layer_alone_is_refused() -> None:
    run = Run("sam").go(last=2)
    run.model[5].bias.grad += 1
    with pytest.raises(RuntimeError, match=TO_WRITE):
        run.step(2)


@pytest.mark.parametrize("set_to_none", [True, False])
@pytest.mark.parametrize("who", ["optimizer", "base", "model"])
def test_cleared_gradients_are_fine(who: str, set_to_none: bool) -> None:
    run, expected = Run("vsam"), Run("vsam").go(last=4)
    Run("vsam")  # seeds the generators again
    for number in range(4):
        thing: Any = {"optimizer": run.optimizer, "base": run.optimizer.base, "model": run.model}[who]
        thing.zero_grad(set_to_none)
        run.step(number)
    assert_same(run.weights(), expected.weights())


def test_gradients_that_the_base_alone_has_used_are_fine() -> None:
    """A warm-up without sharpness, before the wrapper is made or after."""
    model = network()
    base = torch.optim.SGD(model.parameters(), lr=0.1)
    model(BATCHES[0][0]).square().mean().backward()
    base.step()
    optimizer = vsam.SAM(base, model=model)

    def closure() -> Tensor:
        loss = model(BATCHES[1][0]).square().mean()
        loss.backward()
        return loss

    optimizer.step(closure)
    base.zero_grad()
    closure()
    base.step()
    optimizer.step(closure)
    assert optimizer.num_samples == 2


def test_a_copy_goes_on_with_the_gradients_that_it_has() -> None:
    run = Run("vsam").go(last=3)
    run.model, run.optimizer = copy.deepcopy((run.model, run.optimizer))
    run.step(3)


def test_a_step_within_a_closure_is_refused() -> None:
    run = Run("sam").go(last=1)
    before = run.everything()

    def closure() -> Tensor:
        run.optimizer.step(run.closure(1))
        raise AssertionError

    with pytest.raises(RuntimeError, match="called inside the closure"):
        run.optimizer.step(closure)
    assert_same(run.everything(), before)


# Clipping


def _hand_made(run: Run, number: int, max_norm: float) -> None:
    """One step of `run`, its base given a gradient that is clipped at the last moment."""

    def clip(*_: object) -> None:
        nn.utils.clip_grad_norm_(run.model.parameters(), max_norm)

    handle = run.optimizer.base.register_step_pre_hook(clip)
    run.step(number)
    handle.remove()


@every_method
def test_max_grad_norm_clips_what_the_base_gets(method: str) -> None:
    clipped, expected = Run(method, "momentum", max_grad_norm=0.3), Run(method, "momentum")
    state = torch.get_rng_state()
    for number in range(LENGTH):
        _hand_made(expected, number, 0.3)
    Run(method)  # seeds the generators again
    torch.set_rng_state(state)
    clipped.go()
    for one, other in zip(clipped.weights(), expected.weights(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


@every_looping_method
def test_clip_grad_norm_in_a_loop_does_the_same(method: str) -> None:
    closure, loop = Run(method, max_grad_norm=0.3).go(), Run(method)
    for number in range(LENGTH):
        loop.optimizer.zero_grad()
        loop.loss(number).backward()
        if loop.optimizer.perturb():
            loop.loss(number).backward()
        norm = loop.optimizer.clip_grad_norm_(0.3)
        assert float(norm) > 0
        loop.optimizer.step()
    assert_same(loop.weights(), closure.weights())


def test_clip_grad_norm_keeps_the_smaller_limit_and_only_measures_with_infinity() -> None:
    closure, loop = Run("vsam", max_grad_norm=0.3).go(), Run("vsam", max_grad_norm=0.3)
    for number in range(LENGTH):
        loop.optimizer.zero_grad()
        loop.loss(number).backward()
        if loop.optimizer.perturb():
            loop.loss(number).backward()
        assert loop.optimizer.clip_grad_norm_(math.inf) == loop.optimizer.clip_grad_norm_(5.0)
        loop.optimizer.step()
    assert_same(loop.weights(), closure.weights())


def test_clip_grad_norm_returns_a_norm_without_the_scale() -> None:
    """At a sampled step, the first one here, the gradients are still scaled. At a plain one they no longer are."""
    norms = []
    for scaler in (vsam.amp.GradScaler("cpu", enabled=False), vsam.amp.GradScaler("cpu")):
        run = Run("sam-5")
        for number in range(2):
            run.optimizer.zero_grad()
            scaler.scale(run.loss(number)).backward()
            if scaler.perturb(run.optimizer):
                scaler.scale(run.loss(number)).backward()
            norms.append(float(run.optimizer.clip_grad_norm_(1.0)))
            scaler.step(run.optimizer)
            scaler.update()
        assert run.optimizer.num_samples == 1
    assert norms[:2] == pytest.approx(norms[2:], rel=1e-5)


def test_clipping_spares_the_psf() -> None:
    """By hand, between the second backward and the step, it would be clipped gs − unclipped g."""
    free, clipped = Run("vsam").go(last=1), Run("vsam", max_grad_norm=0.01).go(last=1)
    assert_same(
        free.optimizer.state_dict()["sharpness"]["memory"], clipped.optimizer.state_dict()["sharpness"]["memory"]
    )


@every_early_looping_method
def test_clipping_by_hand_is_noticed_where_there_is_a_psf(method: str) -> None:
    run = Run(method)
    for number in (0, 1):  # a second micro-batch is no clipping
        run.loss(number).backward()
    assert run.optimizer.perturb()
    for number in (0, 1):
        run.loss(number).backward()
    nn.utils.clip_grad_norm_(run.model.parameters(), 0.3)
    if method in ("sam", "sam-5", "asam", "ae-sam", "friendly-sam"):
        run.optimizer.step()
    else:
        with pytest.warns(RuntimeWarning, match=r"optimizer\.clip_grad_norm_\(max_norm\)"):
            run.optimizer.step()
    assert not run.model[1].weight._post_accumulate_grad_hooks


def test_clip_grad_norm_outside_of_a_step_says_where_it_belongs() -> None:
    run = Run("sam")
    with pytest.raises(RuntimeError, match=r"between perturb\(\) and step\(\)"):
        run.optimizer.clip_grad_norm_(1.0)
    with pytest.raises(ValueError, match="max_grad_norm must not be negative"):
        Run("sam", max_grad_norm=-1.0)


# Several optimizers of one model


def test_two_wrappers_over_different_parts_of_a_model_are_noticed() -> None:
    model = network()
    first = vsam.SAM(torch.optim.SGD(model[1].parameters(), lr=0.1), model=model)
    with pytest.warns(RuntimeWarning, match=r"another sharpness-aware optimizer.*VSAM\(\[base, other_base\]"):
        vsam.VSAM(torch.optim.SGD(model[5].parameters(), lr=0.1), model=model)
    del first


def test_a_wrapper_made_anew_for_the_same_parameters_is_fine() -> None:
    model = network()
    kept = [vsam.SAM(torch.optim.SGD(model.parameters(), lr=0.1), model=model) for _ in range(3)]
    assert len(kept) == 3


@every_method
def test_a_list_of_bases_is_one_optimizer(method: str) -> None:
    """Two of the same kind do what one over all parameters does."""

    def two(parameters: Any) -> Any:
        listed = list(parameters)
        return [torch.optim.SGD(part, lr=0.05, momentum=0.9) for part in (listed[:3], listed[3:])]

    one = Run(method, lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9)).go()
    several = Run(method, two).go()
    assert several.samples == one.samples
    assert_same(several.weights(), one.weights())


# A model at w + e


@every_early_looping_method
@pytest.mark.parametrize("gradients", [True, False])
def test_an_evaluation_between_perturb_and_step_runs_at_the_weights(method: str, gradients: bool) -> None:
    run = Run(method)
    weights, seen = run.weights(), []
    run.loss(0).backward()
    assert run.optimizer.perturb()
    run.model[1].register_forward_pre_hook(lambda *_: seen.append(run.weights()))
    run.model.eval()
    with torch.set_grad_enabled(gradients), pytest.warns(RuntimeWarning, match="Evaluate after step"):
        run.model(BATCHES[0][0])
    run.model.train()
    assert_same(seen, [weights])
    with pytest.raises(RuntimeError, match="without a closure"):
        run.optimizer.step()
    run.step(0)


@every_early_looping_method
def test_an_abandoned_step_is_undone_by_the_models_zero_grad(method: str) -> None:
    run = Run(method)
    weights = run.weights()
    run.loss(0).backward()
    assert run.optimizer.perturb()
    assert not torch.equal(run.model[1].weight, weights[0])
    run.model.zero_grad()
    assert_same(run.weights(), weights)
    assert "zero_grad" not in vars(run.model)
    run.step_without_closure(0)


def test_training_in_evaluation_mode_is_no_accident() -> None:
    """Fine-tuning with frozen statistics: both passes are in evaluation mode."""
    run = Run("sam")
    run.model.eval()
    run.step_without_closure(0)
    assert run.optimizer.num_samples == 1


# Buffers that a forward pass writes to


class _Average(nn.Module):
    """Running averages as people write them: in place, and by assignment."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("in_place", torch.zeros(5))
        self.register_buffer("assigned", torch.zeros(5))
        self.register_buffer("mask", torch.ones(5))

    def forward(self, inputs: Tensor) -> Tensor:
        with torch.no_grad():
            self.in_place.mul_(0.9).add_(inputs.mean(0), alpha=0.1)
            self.assigned = 0.9 * self.assigned + 0.1 * inputs.mean(0)
        return (inputs - self.in_place) * self.mask


def _averaging() -> nn.Sequential:
    torch.manual_seed(0)
    layer = nn.utils.parametrizations.spectral_norm(nn.Linear(5, 5))
    return nn.Sequential(nn.Linear(5, 5), _Average(), layer, nn.Linear(5, 3))


@every_method
@pytest.mark.parametrize("style", ["step", "step_without_closure"])
def test_buffers_of_all_layers_take_in_the_first_pass_only(method: str, style: str) -> None:
    if method == "esam" and style != "step":
        return
    run, shadow = Run(method, model=_averaging()), _averaging()
    for number in range(8):
        shadow.load_state_dict(run.model.state_dict())
        shadow(BATCHES[number][0])
        getattr(run, style)(number)
        assert_same(dict(run.model.named_buffers()), dict(shadow.named_buffers()))


# Hooks, pass-through, and what a loop may ask


def test_global_hooks_run_once_a_step() -> None:
    run, calls = Run("sam"), []
    before = register_optimizer_step_pre_hook(lambda optimizer, args, kwargs: calls.append(("before", type(optimizer))))
    after = register_optimizer_step_post_hook(lambda optimizer, args, kwargs: calls.append(("after", type(optimizer))))
    run.step(0)
    before.remove()
    after.remove()
    assert calls == [("before", torch.optim.SGD), ("after", torch.optim.SGD)]


def test_own_hooks_run_once_and_may_change_the_closure() -> None:
    run, calls = Run("sam"), []
    closure = run.closure(0)

    def replace(optimizer: Any, args: Any, kwargs: Any) -> Any:
        calls.append("before")
        return (args[0], closure), kwargs

    run.optimizer.register_step_pre_hook(replace)
    run.optimizer.register_step_post_hook(lambda *_: calls.append("after"))
    run.optimizer.step(lambda: None)
    assert calls == ["before", "after"]
    assert run.num_passes == 2


def test_what_the_base_has_is_passed_through() -> None:
    base = pytest.importorskip("schedulefree").AdamWScheduleFree([nn.Parameter(torch.ones(2))], lr=0.1)
    optimizer = vsam.SAM(base)
    optimizer.train()
    assert base.param_groups[0]["train_mode"]
    optimizer.eval()
    assert not base.param_groups[0]["train_mode"]
    assert not hasattr(vsam.SAM(torch.optim.SGD([nn.Parameter(torch.ones(2))], lr=0.1)), "train")


@every_method
def test_will_sample_says_what_comes_and_changes_nothing(method: str) -> None:
    run = Run(method)
    for number in range(LENGTH):
        before = run.everything()
        expected = run.optimizer.will_sample
        assert run.optimizer.will_sample is expected
        assert_same(run.everything(), before)
        run.step(number)
        assert expected is (None if method == "ae-sam" else run.samples[-1])


@every_method_that("samples its first step")
def test_is_second_pass_while_it_runs(method: str) -> None:
    run, seen = Run(method), []
    run.optimizer.step(run.closure(0, before=lambda: seen.append(run.optimizer.is_second_pass)))
    assert seen == ([False, True, True] if method == "esam" else [False, True])
    assert not run.optimizer.is_second_pass


def test_a_base_without_gradients_is_left_alone_for_good() -> None:
    """No step is counted, and a later one is as if nothing had been."""
    run, expected = Run("vsam", "momentum"), Run("vsam", "momentum").go(last=3)
    Run("vsam")  # seeds the generators again
    with pytest.warns(RuntimeWarning, match="No parameter has a gradient"):
        assert run.optimizer.step(lambda: 7) == 7
    assert run.optimizer.last is None
    run.go(last=3)
    assert_same(run.weights(), expected.weights())


# Compiled


COMPILED: dict[str, Callable[[nn.Module], nn.Module]] = {
    "compiled": lambda model: torch.compile(model, backend="eager"),  # type: ignore[dict-item]
    "in place": lambda model: model.compile(backend="eager") or model,  # type: ignore[func-returns-value]
}


@pytest.mark.parametrize("how", COMPILED)
@pytest.mark.parametrize("is_inner", [True, False])
def test_a_compiled_model_repeats_its_masks(how: str, is_inner: bool) -> None:
    """Between the passes of one step with rho = 0 nothing but the masks could differ."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 1))
    compiled = COMPILED[how](model)
    optimizer = vsam.SAM(torch.optim.SGD(model.parameters(), lr=0.0), model=model if is_inner else compiled, rho=0.0)
    inputs = torch.randn(16, 4)
    for _ in range(2):
        optimizer.zero_grad()
        compiled(inputs).sum().backward()
        first = [parameter.grad.clone() for parameter in model.parameters()]  # type: ignore[union-attr]
        assert optimizer.perturb()
        compiled(inputs).sum().backward()
        optimizer.step()
        assert_same([parameter.grad for parameter in model.parameters()], first)


@pytest.mark.parametrize("compiles", ["step", "training step"])
def test_a_compiled_step_does_what_it_does_otherwise(compiles: str) -> None:
    def train(compile_: Callable[..., Any]) -> list[Tensor]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
        optimizer = vsam.VSAM(torch.optim.SGD(model.parameters(), lr=0.1), model=model, start=2)
        inputs = torch.randn(16, 4)

        def closure() -> Tensor:
            loss = model(inputs).square().mean()
            loss.backward()
            return loss

        step = compile_(optimizer.step, backend="eager") if compiles == "step" else optimizer.step
        whole = (lambda: step(closure)) if compiles == "step" else compile_(lambda: step(closure), backend="eager")
        for _ in range(4):
            whole()
        assert optimizer.num_samples >= 2
        return [parameter.detach() for parameter in model.parameters()]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own about graph breaks
        assert_same(train(torch.compile), train(lambda function, backend: function))
    torch._dynamo.reset()


# Mixed precision


def test_the_first_overflows_of_a_scaler_are_no_news() -> None:
    """The scaler lowers its scale by itself. No learning rate has to be lowered."""
    run, scaler = Run("sam"), vsam.amp.GradScaler("cpu", init_scale=2.0**127)

    def closure() -> Tensor:
        loss = run.loss(0)
        scaler.scale(loss * 1e3).backward()
        return loss

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scaler.step(run.optimizer, closure)
    assert run.optimizer.num_skipped == 1


# Without a guard


@every_method
def test_without_a_guard_finite_steps_are_the_same(method: str) -> None:
    guarded, free = Run(method, "momentum").go(), Run(method, "momentum", guard=False).go()
    assert_same(free.weights(), guarded.weights())
    assert_same(free.optimizer.state_dict(), guarded.optimizer.state_dict())


def test_without_a_guard_nothing_is_skipped() -> None:
    run = Run("sam", guard=False)
    handle = run.model[1].weight.register_hook(lambda gradient: gradient * float("nan"))
    run.step(0)
    handle.remove()
    assert run.optimizer.num_skipped == 0
    assert run.model[1].weight.isnan().any()


class _OwnNorm(nn.Module):
    """Normalisation by torch's kernel, which does not count its writes."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(5))
        self.register_buffer("variance", torch.ones(5))

    def forward(self, inputs: Tensor) -> Tensor:
        return nn.functional.batch_norm(inputs, self.mean, self.variance, None, None, True, 0.1)


def test_normalisation_of_ones_own_takes_in_the_first_pass_only() -> None:
    model = nn.Sequential(nn.Linear(5, 5), _OwnNorm(), nn.Linear(5, 3))
    run, shadow = Run("sam", model=model, rho=0.5), copy.deepcopy(model)
    for number in range(3):
        shadow.load_state_dict(run.model.state_dict())
        shadow(BATCHES[number][0])
        run.step(number)
        assert_same(dict(run.model.named_buffers()), dict(shadow.named_buffers()))


def test_a_layer_converted_after_the_optimizer_was_made() -> None:
    model = nn.Sequential(nn.Linear(5, 8), nn.Linear(8, 8), nn.Linear(8, 3))
    optimizer = vsam.VSAM(torch.optim.SGD(model.parameters(), lr=0.1), model=model, start=2)
    inputs = torch.randn(4, 5)

    def closure() -> Tensor:
        hidden = model[1](model[0](inputs).to(model[1].weight.dtype)).float()
        loss = model[2](hidden).square().mean()
        loss.backward()
        return loss

    optimizer.step(closure)
    model[1].bfloat16()
    optimizer.zero_grad()
    for _ in range(3):
        optimizer.step(closure)
    assert optimizer.num_samples >= 2


def test_layers_that_join_later_bring_no_false_alarm() -> None:
    model = nn.Sequential(nn.Linear(5, 8), nn.Linear(8, 3))
    optimizer = vsam.SAM(torch.optim.SGD(model[1].parameters(), lr=0.1), model=model)

    def closure() -> Tensor:
        loss = model(BATCHES[0][0]).square().mean()
        loss.backward()
        return loss

    optimizer.step(closure)
    optimizer.add_param_group({"params": list(model[0].parameters())})
    optimizer.step(closure)
    assert optimizer.num_samples == 2


# What a review found


def test_an_optimizer_made_anew_after_an_interrupted_perturb_begins_from_the_weights() -> None:
    """A notebook's cell is run again."""
    for replaces in (True, False):
        run = Run("sam", rho=0.5)
        weights = run.weights()
        run.loss(0).backward()
        assert run.optimizer.perturb()
        kept = run.optimizer if replaces else None
        run.optimizer = vsam.SAM(torch.optim.SGD(run.model.parameters(), lr=0.1), model=run.model)
        assert_same(run.weights(), weights)
        run.model.zero_grad()
        run.step(0)
        del kept


def test_an_optimizer_that_is_deleted_takes_its_perturbation_along() -> None:
    run = Run("sam", rho=0.5)
    weights = run.weights()
    run.loss(0).backward()
    assert run.optimizer.perturb()
    del run.optimizer
    assert_same(run.weights(), weights)
    run.model.zero_grad()


def test_a_model_saved_during_the_second_pass_clears_its_own_gradients() -> None:
    run = Run("sam")
    run.loss(0).backward()
    assert run.optimizer.perturb()
    twin = torch.load(_saved(run.model), weights_only=False)
    for copied in (twin, copy.deepcopy(twin)):
        copied(BATCHES[0][0]).sum().backward()
        copied.zero_grad()
        assert all(parameter.grad is None for parameter in copied.parameters())
        assert copied.state_dict().keys() == run.model.state_dict().keys()


def _saved(model: nn.Module) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return file


def test_pseudo_labels_belong_to_the_second_pass() -> None:
    run = Run("sam")

    def passes() -> None:
        with torch.no_grad():
            labels = run.model(BATCHES[0][0]).argmax(1)
        nn.functional.cross_entropy(run.model(BATCHES[0][0]), labels).backward()

    passes()
    assert run.optimizer.perturb()
    passes()
    run.optimizer.step()
    assert run.optimizer.num_samples == 1


def test_gradients_cleared_in_part_are_fine() -> None:
    run = Run("sam").go(last=2)
    run.model[1].zero_grad()
    run.step(2)
    run.model[1].requires_grad_(False)
    run.model[1].weight.grad = None
    run.step(3)


def test_parameters_of_another_optimizer_get_the_first_gradient_only() -> None:
    model = network()
    twin = copy.deepcopy(model)
    optimizer = vsam.SAM(torch.optim.SGD(model[1].parameters(), lr=0.1), model=model)
    state = torch.get_rng_state()

    def closure(model: nn.Module = model) -> Tensor:
        loss = model[5](model[1](BATCHES[0][0])).square().mean()
        loss.backward()
        return loss

    closure(twin)
    torch.set_rng_state(state)
    optimizer.step(closure)
    assert_same(model[5].weight.grad, twin[5].weight.grad)


def test_an_expanded_buffer_is_left_alone() -> None:
    model = network()
    model.register_buffer("mask", torch.ones(1, 3).expand(8, 3))
    run = Run("sam", model=model)

    def fail() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run.optimizer.step(run.closure(0, after=fail))
    run.step(0)


def test_a_failed_step_lets_go_of_its_buffers() -> None:
    run, passes = Run("vsam").go(last=1), []

    def fail() -> None:
        passes.append(0)
        if len(passes) == 2:
            raise KeyError

    with pytest.raises(KeyError):
        run.optimizer.step(run.closure(1, after=fail))
    buffers = [thing for thing in gc.get_objects() if type(thing).__name__ == "FlatBuffers"]
    assert not buffers
    assert run.optimizer.will_sample is not None


@pytest.mark.parametrize("damage", [None, [], "x", {}])
@pytest.mark.parametrize("place", ["state", "param_groups", "sharpness"])
def test_a_damaged_state_is_a_value_error(place: str, damage: object) -> None:
    run = Run("vsam", "adamw").go(last=3)
    before, state = run.everything(), copy.deepcopy(run.optimizer.state_dict())
    state[place] = damage
    if (place, damage) == ("state", {}):
        return
    with pytest.raises(ValueError, match=r"state_dict|loaded"):
        run.optimizer.load_state_dict(state)
    assert_same(run.everything(), before)


def test_infinity_only_measures() -> None:
    assert_same(Run("sam", max_grad_norm=float("inf")).go(last=3).weights(), Run("sam").go(last=3).weights())


def test_a_lazy_layer_is_refused_until_it_has_a_shape() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own about lazy layers
        base = torch.optim.SGD(nn.LazyLinear(3).parameters(), lr=0.1)
    with pytest.raises(ValueError, match="lazy layer"):
        vsam.SAM(base)


def test_an_abandoned_step_of_a_compiled_model_is_undone_by_the_zero_grad_of_the_inner_one() -> None:
    model = nn.Sequential(nn.Linear(5, 8), nn.Linear(8, 3))
    compiled: Any = torch.compile(model, backend="eager")
    optimizer = vsam.SAM(torch.optim.SGD(model.parameters(), lr=0.1), model=compiled, rho=0.5)
    weights = [parameter.detach().clone() for parameter in model.parameters()]
    compiled(BATCHES[0][0]).sum().backward()
    assert optimizer.perturb()
    model.zero_grad()
    assert_same([parameter.detach() for parameter in model.parameters()], weights)
    assert "zero_grad" not in {**vars(model), **vars(compiled)}


@pytest.mark.parametrize("clears", ["the model", "the optimizer"])
def test_masks_repeat_after_a_backward_pass_that_belongs_to_no_step(clears: str) -> None:
    """The discriminator of a GAN also runs in the generator's step, and the usual loop clears it by itself."""
    model = nn.Sequential(nn.Linear(3, 40), nn.Dropout(), nn.Linear(40, 1))
    optimizer = vsam.SAM(torch.optim.SGD(model.parameters(), lr=0.1), model=model)
    masks: list[Tensor] = []
    model[1].register_forward_hook(lambda module, inputs, output: masks.append(output != 0))
    real, fake = torch.randn(2, 5, 3)
    for _ in range(3):
        (model if clears == "the model" else optimizer).zero_grad()
        masks.clear()
        model(real).sum().backward()
        assert optimizer.perturb()
        model(real).sum().backward()
        optimizer.step()
        assert torch.equal(*masks)
        model(fake).sum().backward()  # for the generator


@pytest.mark.parametrize("before", ["a batch that was left out", "a loss to print", "an attack"])
def test_masks_are_those_of_the_pass_that_is_repeated(before: str) -> None:
    model = nn.Sequential(nn.Linear(3, 40), nn.Dropout(), nn.Linear(40, 1))
    optimizer = vsam.SAM(torch.optim.SGD(model.parameters(), lr=0.1), model=model)
    masks: list[Tensor] = []
    model[1].register_forward_hook(lambda module, inputs, output: masks.append(output != 0))
    for _ in range(3):
        optimizer.zero_grad()
        inputs, others = torch.randn(2, 5, 3)
        if before == "an attack":
            inputs.requires_grad_()
            inputs = (inputs + torch.autograd.grad(model(inputs).sum(), inputs)[0].sign()).detach()
        else:
            model(others).sum()
        masks.clear()
        model(inputs).sum().backward()
        state = torch.get_rng_state()
        assert optimizer.perturb()
        model(inputs).sum().backward()
        optimizer.step()
        assert torch.equal(*masks)
        assert torch.equal(torch.get_rng_state(), state)


def test_many_micro_batches_in_one_tensor_repeat_their_masks() -> None:
    model = nn.Sequential(nn.Linear(3, 40), nn.Dropout(), nn.Linear(40, 1))
    optimizer = vsam.SAM(torch.optim.SGD(model.parameters(), lr=0.1), model=model)
    masks: list[Tensor] = []
    model[1].register_forward_hook(lambda module, inputs, output: masks.append(output != 0))
    inputs = torch.randn(5, 3)
    for _ in range(20):
        model(inputs).sum().backward()
    assert optimizer.perturb()
    for _ in range(20):
        model(inputs).sum().backward()
    optimizer.step()
    assert all(map(torch.equal, masks[:20], masks[20:]))
