"""`deepcopy` and `pickle`: a copy goes on as the original would have, and on its own."""

import copy
import io
import pickle
from collections.abc import Callable

import pytest
import torch

import vsam
from contract_table import (
    LENGTH,
    METHODS,
    Run,
    assert_same,
    every_looping_method,
    every_method,
    generators,
    set_generators,
)


def _through_torch(pair: object) -> object:
    file = io.BytesIO()
    torch.save(pair, file)
    return torch.load(io.BytesIO(file.getvalue()), weights_only=False)


WAYS: dict[str, Callable] = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda pair: pickle.loads(pickle.dumps(pair)),
    "torch.save": _through_torch,
}


@pytest.mark.parametrize(
    ("method", "base"), [*((method, "momentum") for method in METHODS), ("vsam", "adamw"), ("sam", "sgd")]
)
@pytest.mark.parametrize("way", WAYS)
def test_a_copy_goes_on_identically_and_independently(method: str, base: str, way: str) -> None:
    original = Run(method, base).go(last=13)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(original.optimizer, 0.99)  # wraps `step` of the original
    original.step(13)
    scheduler.step()
    before, twin = original.everything(), Run(method, base)
    twin.model, twin.optimizer = WAYS[way]((original.model, original.optimizer))
    assert twin.optimizer.num_samples == original.optimizer.num_samples
    set_generators(before["generators"])
    twin.go(first=14)
    assert_same({**original.everything(), "generators": 0}, {**before, "generators": 0})  # untouched by its copy
    set_generators(before["generators"])
    original.go(first=14)
    assert twin.samples == original.samples[14:]
    assert_same(twin.everything(), original.everything())


@every_looping_method
@pytest.mark.parametrize("way", WAYS)
def test_a_copy_repeats_masks_in_a_loop_without_a_closure(method: str, way: str) -> None:
    """The note that the model's hook takes must be the one that the copied optimizer reads."""
    original, twin = Run(method).go(last=5), Run(method)
    twin.model, twin.optimizer = WAYS[way]((original.model, original.optimizer))
    for number in range(5, LENGTH):
        before = generators()
        original.step(number)
        set_generators(before)
        twin.step_without_closure(number)
    assert_same(twin.weights(), original.weights())


def test_a_copy_of_the_model_does_not_drag_the_optimizer_along() -> None:
    run = Run("vsam", "momentum").go(last=3)
    twin = copy.deepcopy(run.model)
    assert len(pickle.dumps(twin)) < len(pickle.dumps(run.optimizer))
    reachable, todo = set(), [twin]
    while todo:
        thing = todo.pop()
        if id(thing) in reachable or isinstance(thing, type):
            continue
        reachable.add(id(thing))
        assert not isinstance(thing, torch.optim.Optimizer)
        todo += list(getattr(thing, "__dict__", {}).values())
        todo += (
            list(thing.values()) if isinstance(thing, dict) else list(thing) if isinstance(thing, list | tuple) else []
        )
    run.loss(3).backward()
    assert all(p.grad is None for p in twin.parameters())
    twin(torch.randn(4, 5)).sum().backward()  # its note is its own
    ours, theirs = (next(iter(model._forward_pre_hooks.values())) for model in (run.model, twin))
    assert ours is not theirs


def test_averaged_models_work() -> None:
    """They deep-copy the model and feed it outside of any step."""
    run = Run("vsam")
    average = torch.optim.swa_utils.AveragedModel(run.model)
    for number in range(4):
        run.step(number)
        average.update_parameters(run.model)
    average(torch.randn(4, 5))


def test_a_copy_between_perturb_and_step_begins_from_the_weights() -> None:
    run = Run("sam")
    weights = run.weights()
    run.loss(0).backward()
    run.optimizer.perturb()
    twin = copy.deepcopy(run.optimizer)
    assert_same([p.detach() for p in twin.model.parameters()], weights)
    assert twin.model[2].track_running_stats
    twin_parameters = {id(p) for group in twin.param_groups for p in group["params"]}
    assert twin_parameters == {id(p) for p in twin.model.parameters()}


@every_method
def test_parts_are_rebuilt_from_their_representation(method: str) -> None:
    run = Run(method)
    for part in (run.optimizer.when, run.optimizer.where, run.optimizer.between):
        rebuilt = eval(repr(part), {name: getattr(vsam, name) for name in vsam.__all__})
        assert repr(rebuilt) == repr(part)
        assert type(rebuilt) is type(part)


def test_copies_keep_their_hooks_apart() -> None:
    """Step hooks are not copied, as with torch's own optimizers, and a copy can have its own."""
    run, calls = Run("sam"), []
    run.optimizer.register_step_post_hook(lambda *_: calls.append("original"))
    twin = Run("sam")
    twin.model, twin.optimizer = copy.deepcopy((run.model, run.optimizer))
    twin.optimizer.register_step_post_hook(lambda *_: calls.append("copy"))
    twin.step(0)
    assert calls == ["copy"]
