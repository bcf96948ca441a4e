"""The hand-over of a gradient to the base optimizer, which cannot be undone: all or nothing."""

import signal
import threading
import weakref
from contextlib import AbstractContextManager
from importlib import import_module
from operator import attrgetter, is_, methodcaller
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from vsam import shards, tensors

__all__ = ["HandOver", "Uninterrupted", "Written", "has_fresh_gradient", "mark_consumed"]

# The functions in `signal` convert to enums, which takes longer than the rest of the block.
_signal: Any = import_module("_signal")
_get_handler, _set_handler = _signal.getsignal, _signal.signal

_GRADIENT, _VERSION = attrgetter("grad"), attrgetter("_version")
_CONSUMED = "_vsam_consumed"
"""An attribute of a gradient: its version counter when an optimizer last stepped with it."""


class HandOver:
    """Steps the base optimizers; if all are fused, they may decide on the device whether to.

    The gradients of the latest step are held until `drop`, so that they need not be marked one by one.

    Args:
        bases: the optimizers, in the order in which they step.
    """

    def __init__(self, bases: list[Optimizer]) -> None:
        self._bases = bases
        self.held = _NOTHING
        _LIVE.add(self)
        self._ready: list[Tensor] | None = None
        # Notices steps that a base takes on its own. In our steps nothing of ours may run inside the base's step,
        # where it could be interrupted.
        self._hooks = [(base._optimizer_step_post_hooks, _hook(base)) for base in bases]

    def __del__(self) -> None:
        self.let_go()

    def forget(self) -> None:
        """The state of the bases was replaced."""
        self._ready = None

    def may_defer(self, parameters: list[Tensor]) -> bool:
        """Whether the bases can skip a step by themselves, without a device sync."""
        return parameters is self._ready and self._are_fused()

    def _are_fused(self) -> bool:
        for base in self._bases:
            if not getattr(base, "_step_supports_amp_scaling", False):
                return False
            for group in base.param_groups:
                if not group.get("fused"):
                    return False
        return True

    def __call__(
        self, outcome: list[Any], parameters: list[Tensor], unless: Tensor | None, every: list[Tensor]
    ) -> None:
        """Step and record that in `outcome`, uninterrupted; do not step if `unless` is 1 on the device.

        `parameters` are those with a gradient, `every` are all that the bases train.
        """
        bases: list[Any] = list(self._bases)
        left = iter(bases)
        with Uninterrupted():
            try:
                for hooks, key in self._hooks:
                    hooks.pop(key, None)
                for base in bases if unless is not None else ():
                    base.grad_scale, base.found_inf = None, unless
                outcome.append(list(map(methodcaller("step"), left)))
            except Exception as error:
                _tell_of_half_a_step(error, bases[: -1 - len([*left])])
                raise
            finally:
                for hooks, key in self._hooks:
                    hooks[key] = mark_consumed
                for base in bases if unless is not None else ():
                    base.__dict__.pop("grad_scale", None)
                    base.__dict__.pop("found_inf", None)
            self.held = Written(every)  # read anew: a base's hooks may replace some
        self._ready = parameters  # a first step creates the state that a skipped one needs

    def found_fresh_gradient(self) -> bool:
        """Whether a gradient was accumulated since a base last stepped; all zeros do not count."""
        return any(map(has_fresh_gradient, self._bases))

    def drop(self) -> None:
        """Hold no gradients: they have been cleared."""
        self.held = _NOTHING

    def let_go(self) -> None:
        """Hold no gradients, and mark each of them instead."""
        for gradient, version in zip(self.held.gradients, self.held.versions, strict=True):
            known = gradient.__dict__.get(_CONSUMED, version)  # later if a base has stepped on its own since
            gradient.__dict__[_CONSUMED] = max(known, version)
        self.drop()


_LIVE: "weakref.WeakSet[HandOver]" = weakref.WeakSet()


class Uninterrupted(AbstractContextManager[None]):
    """A block during which Ctrl-C is deferred. Outside the main thread Ctrl-C does not arrive anyway."""

    def __init__(self) -> None:
        self._handler: Any = None
        self._arrived: tuple[int, FrameType | None] | None = None
        self._is_open = False

    def __enter__(self) -> None:
        handler = _get_handler(signal.SIGINT)
        if callable(handler) and threading.get_ident() == threading.main_thread().ident:
            self._handler, self._is_open = handler, True
            _set_handler(signal.SIGINT, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._is_open:
            self._arrived = (number, frame)
        else:
            self._handler(number, frame)

    def __exit__(self, *_: object) -> None:
        if self._handler is not None:
            self._is_open = False
            _set_handler(signal.SIGINT, self._handler)
            if self._arrived is not None:
                self._handler(*self._arrived)


def _tell_of_half_a_step(error: Exception, stepped: list[Optimizer]) -> None:
    """Add to a base's error which bases before it have already stepped, which cannot be undone."""
    if stepped:
        names = ", ".join(f"{type(base).__name__} (base.bases[{i}])" for i, base in enumerate(stepped))
        error.add_note(
            f"Of the list of bases, {names} had already stepped when this one failed: their parameters are updated, "
            "everything else is as before the step. To continue training, load a checkpoint."
        )


def _hook(base: Optimizer) -> int:
    """Let a base mark the gradients that it has stepped with; returns the key of the hook, one for all wrappers."""
    for key, hook in base._optimizer_step_post_hooks.items():
        if hook is mark_consumed:
            return key
    return int(base.register_step_post_hook(mark_consumed).id)


def mark_consumed(base: Optimizer, *_: object) -> None:
    """Store each gradient's version counter: what is left of it after a step does not count as accumulated."""
    for gradient in _gradients(base):
        gradient.__dict__[_CONSUMED] = gradient._version


def has_fresh_gradient(base: Optimizer) -> bool:
    """Whether a gradient was accumulated since a base last stepped; all zeros do not count."""
    for hand_over in list(_LIVE):
        hand_over.let_go()
    fresh = [g for g in _gradients(base) if g.__dict__.get(_CONSUMED) != g._version]
    if any(gradient.layout is not torch.strided for gradient in fresh):
        return True
    return bool(fresh) and float(tensors.norm(fresh)) != 0


def _gradients(base: Optimizer) -> list[Tensor]:
    return _present([parameter for group in base.param_groups for parameter in group["params"]])


class Written:
    """The gradients of parameters and their version counters, by which later writes are noticed."""

    def __init__(self, parameters: list[Tensor]) -> None:
        self.gradients = [*map(_GRADIENT, parameters)]
        self.versions: list[int] = []
        try:
            self.versions += () if shards.CLASSES else map(_VERSION, self.gradients)
        except AttributeError:  # None has no version
            self.versions = []
        if len(self.versions) < len(parameters):
            self.gradients = _present(parameters)
            self.versions = [*map(_VERSION, self.gradients)]

    def is_still(self, parameters: list[Tensor]) -> bool:
        """Whether these are still the gradients, and nothing was written to them since."""
        now = Written(parameters)
        same = len(now.gradients) == len(self.gradients) and all(map(is_, now.gradients, self.gradients))
        return same and now.versions == self.versions


_NOTHING = Written([])


def _present(parameters: list[Tensor]) -> list[Tensor]:
    found = [gradient for gradient in map(_GRADIENT, parameters) if gradient is not None]
    return shards.local(found) if shards.CLASSES else found  # writes are counted on the shards
