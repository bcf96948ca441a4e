"""The context of a measurement: afterwards the model, its mode and all generators are exactly as before."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

from vsam.buffers import Buffers
from vsam.rng import RngState
from vsam.second_pass import ForwardNote
from vsam.tensors import Places
from vsam.transaction import Transaction, restorer

__all__ = ["Mode", "check_batches", "check_mode", "devices_of", "untouched", "unwrapped"]

Mode = Literal["eval", "train", "unchanged"]


def check_mode(mode: object) -> Mode:
    """Return the mode of BatchNorm and dropout, if it is one of the known choices."""
    if mode not in get_args(Mode):
        raise ValueError(
            f"mode must be 'eval', 'train' or 'unchanged', got {mode!r}: it says how BatchNorm and dropout behave."
        )
    return mode  # type: ignore[return-value]


def check_batches(batches: object) -> Iterable[Any]:
    """Return the batches if they can be iterated repeatedly."""
    if not isinstance(batches, Iterable) or isinstance(batches, Tensor | str | dict):
        raise ValueError(
            f"batches must be a list of batches or a DataLoader, got {type(batches).__name__}. For a single batch "
            "write [(inputs, targets)]."
        )
    if isinstance(batches, Iterator):
        raise ValueError(
            f"batches must be iterable more than once, but a {type(batches).__name__} is empty after one pass: write "
            "list(batches), or pass the DataLoader itself."
        )
    return batches


def unwrapped(model: object) -> nn.Module:
    """The network inside torch.compile's and data parallel wrappers, which cannot differentiate twice."""
    if not isinstance(model, nn.Module):
        raise ValueError(f"model must be a torch.nn.Module, got {type(model).__name__}.")
    while True:
        inner = getattr(model, "_orig_mod", None)
        if isinstance(model, DistributedDataParallel | DataParallel):
            inner = model.module
        if not isinstance(inner, nn.Module):
            return model
        model = inner


def devices_of(model: nn.Module) -> set[torch.device]:
    """Where a network's parameters and buffers are."""
    return {tensor.device for tensor in (*model.parameters(), *model.buffers())}


@contextmanager
def untouched(model: nn.Module, batches: Iterable[Any], mode: Mode) -> Iterator[Callable[[], None]]:
    """Run the body with gradients, without compiled code, in this mode; yields a function that rewinds to the start.

    It rewinds buffers and generators, a DataLoader's too, so that each pass sees the same batches and the same dropout.
    At the end, also after an exception, they and weights, gradients and every module's mode are as before.
    """
    transaction = Transaction()
    with transaction, transaction, ExitStack() as contexts:
        contexts.callback(transaction.restore)
        rewind = _guard(model, batches, transaction)
        _set_mode(model, mode)
        contexts.enter_context(torch.inference_mode(False))
        contexts.enter_context(torch.enable_grad())
        contexts.enter_context(torch.compiler.set_stance("force_eager"))  # compiled code has no second derivative
        # Fused attention has no second derivative either.
        contexts.enter_context(torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH))
        # Without gradients, torch's encoder layers take a fast path that returns zeros at padded positions.
        contexts.callback(torch.backends.mha.set_fastpath_enabled, torch.backends.mha.get_fastpath_enabled())
        torch.backends.mha.set_fastpath_enabled(False)
        yield rewind


def _guard(model: nn.Module, batches: Iterable[Any], transaction: Transaction) -> Callable[[], None]:
    way_back = transaction.way_back
    for module in model.modules():
        way_back.append(partial(setattr, module, "training", module.training))
        for hook in module._forward_pre_hooks.values():
            if isinstance(hook, ForwardNote):
                _check_between_steps(hook)
                way_back.append(restorer(hook))
                hook.watched = []
    way_back.append(Places([parameter.detach() for parameter in model.parameters()]).keep())
    way_back += [partial(setattr, parameter, "grad", parameter.grad) for parameter in model.parameters()]
    beginning: list[Callable[[], object]] = [_buffers(model), RngState(devices_of(model)).restore]
    beginning += [partial(g.set_state, g.get_state()) for g in _private_generators(batches)]
    way_back += beginning

    def rewind() -> None:
        for restore in beginning:
            restore()

    return rewind


def _buffers(model: nn.Module) -> Callable[[], None]:
    state = Buffers(model).state(of_all=True)

    def restore() -> None:
        with torch.no_grad():
            state.restore()

    return restore


def _private_generators(batches: Iterable[Any]) -> list[torch.Generator]:
    """Those that a DataLoader uses for shuffling."""
    groups = getattr(batches, "batch_sampler", None)
    samplers = (getattr(batches, "sampler", None), groups, getattr(groups, "sampler", None))
    found = [getattr(thing, "generator", None) for thing in (batches, *samplers)]
    return list({id(g): g for g in found if isinstance(g, torch.Generator)}.values())


def _check_between_steps(note: ForwardNote) -> None:
    if note.on_stray is not None:
        raise RuntimeError(
            "A step is under way: between perturb() and step() the weights are perturbed. Measure after step()."
        )


def _set_mode(model: nn.Module, mode: Mode) -> None:
    """Set the flags directly: an overridden train() may do more, which we could not undo."""
    if mode != "unchanged":
        for module in model.modules():
            module.training = mode == "train"
