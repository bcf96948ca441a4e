"""The context of a measurement: afterwards the model, its mode and all generators are exactly as before."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

from vsam._step.replay import Buffers, FirstPassRecorder, RngState

Mode = Literal["eval", "train", "unchanged"]


def check_mode(mode: object) -> Mode:
    """Return the mode of BatchNorm and dropout, if it is one of the known choices."""
    if mode not in get_args(Mode):
        raise ValueError(f"mode must be 'eval', 'train' or 'unchanged', got {mode!r}.")
    return mode  # type: ignore[return-value]


def check_batches(batches: object) -> Iterable[Any]:
    """Return the batches if they can be iterated repeatedly."""
    if not isinstance(batches, Iterable) or isinstance(batches, Iterator | Tensor | str | dict):
        got = type(batches).__name__
        raise ValueError(
            f"batches must be a list or a DataLoader, to be read more than once, got {got}: write list(batches) for an "
            "iterator, [(inputs, targets)] for a single batch."
        )
    return batches


def unwrapped(model: object) -> nn.Module:
    """Return the network inside torch.compile's and data parallel wrappers, which cannot differentiate twice."""
    if not isinstance(model, nn.Module):
        raise ValueError(f"model must be a torch.nn.Module, got {type(model).__name__}.")
    is_parallel = isinstance(model, DistributedDataParallel | DataParallel)
    inner = model.module if is_parallel else getattr(model, "_orig_mod", None)
    return unwrapped(inner) if isinstance(inner, nn.Module) else model


def devices_of(model: nn.Module) -> set[torch.device]:
    """Return the devices of a network's parameters and buffers."""
    return {tensor.device for tensor in (*model.parameters(), *model.buffers())}


@contextmanager
def untouched(model: nn.Module, batches: Iterable[Any], mode: Mode) -> Iterator[Callable[[], None]]:
    """Run the body with gradients, without compiled code, in this mode, and yield a function that rewinds to the start.

    It rewinds buffers and generators, a DataLoader's too, so that each pass sees the same batches and the same dropout.
    At the end, also after an exception, they and weights, gradients and every module's mode are as before.
    """
    with ExitStack() as stack, ExitStack() as inner:
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        # Neither compiled code nor fused attention has a second derivative.
        stack.enter_context(torch.compiler.set_stance("force_eager"))
        stack.enter_context(torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH))
        # Without gradients, torch's encoder layers take a fast path that returns zeros at padded positions.
        stack.callback(torch.backends.mha.set_fastpath_enabled, torch.backends.mha.get_fastpath_enabled())
        torch.backends.mha.set_fastpath_enabled(False)
        rewind = _rewinder(model, batches)
        restore = _restorer(model, rewind)
        stack.callback(restore)
        inner.callback(restore)  # twice, because an interrupt may hit one of them
        for module in model.modules():
            hooks = module._forward_pre_hooks.items()  # without an optimizer's record of its own passes
            module._forward_pre_hooks = OrderedDict(one for one in hooks if not isinstance(one[1], FirstPassRecorder))
            if mode != "unchanged":
                module.training = mode == "train"  # an overridden train() may do more, which could not be undone
        yield rewind


def _rewinder(model: nn.Module, batches: Iterable[Any]) -> Callable[[], None]:
    """Return a function that sets buffers and generators to their current values."""
    state, rng = Buffers(model).state(), RngState(devices_of(model))
    groups = getattr(batches, "batch_sampler", None)
    shuffling = (batches, getattr(batches, "sampler", None), groups, getattr(groups, "sampler", None))
    generators = [getattr(thing, "generator", None) for thing in shuffling]
    states = [(generator, generator.get_state()) for generator in generators if isinstance(generator, torch.Generator)]

    @torch.no_grad()
    def rewind() -> None:
        state.restore()
        rng.restore()
        for generator, before in states:
            generator.set_state(before)

    return rewind


def _restorer(model: nn.Module, rewind: Callable[[], None]) -> Callable[[], None]:
    """Return a function that restores everything of a model, and rewinds."""
    modules = [(module, module.training, module._forward_pre_hooks) for module in model.modules()]
    for hook in (hook for *_, hooks in modules for hook in hooks.values()):
        if isinstance(hook, FirstPassRecorder) and hook.on_forward is not None:
            raise RuntimeError("The weights are perturbed between perturb() and step(): measure after step().")
    parameters = [(parameter, parameter.detach().clone(), parameter.grad) for parameter in model.parameters()]

    @torch.no_grad()
    def restore() -> None:
        for module, training, hooks in modules:
            module.training, module._forward_pre_hooks = training, hooks
        for parameter, value, gradient in parameters:
            parameter.copy_(value)
            parameter.grad = gradient
        rewind()

    return restore
