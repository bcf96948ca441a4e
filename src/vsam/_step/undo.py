"""Undo a step until the base optimizer has stepped: every change registers its restorer before it happens."""

import random
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from operator import attrgetter, methodcaller
from types import FrameType
from typing import Any, Self

import torch
from torch import Tensor
from torch._compile import _disable_dynamo
from torch.optim import Optimizer

from vsam._step import foreach
from vsam.distributed import shards

Restorer = Callable[[], object]


class Undo(AbstractContextManager["Undo"]):
    """A stack of restorers that runs, latest first, if the block fails before `commit`.

    Enter it twice, so that an undo that Ctrl-C interrupted runs again. A restorer may therefore run twice.
    """

    def __init__(self) -> None:
        self._restorers: list[Restorer] = []
        self._outcome: list[Any] = []
        self._was_undone = self.is_committing = False

    @property
    def depth(self) -> int:
        """The number of restorers."""
        return len(self._restorers)

    def push(self, *restorers: Restorer) -> None:
        """Register restorers for what is about to change."""
        self._restorers += restorers

    def commit(self, action: Callable[..., object], *args: Any) -> None:
        """Run what cannot be undone. Once it has appended to its first argument, the step is done."""
        self.is_committing = True
        try:
            action(self._outcome, *args)
        finally:
            self.is_committing = False
        self._restorers.clear()

    @property
    def is_over(self) -> bool:
        """True if the step is done or undone."""
        return self._was_undone or bool(self._outcome)

    def moved(self) -> "_Moved":
        """Return a context that undoes what is registered inside it at its end, also if all went well."""
        return _Moved(self)

    def back(self, depth: int = 0) -> None:
        """Run the restorers above `depth`, latest first. An interrupted one stays, a failing one does not stop it."""
        if self._outcome:  # done: nothing can be undone any more
            self._restorers.clear()
        self._was_undone |= depth == 0
        failure: Exception | None = None
        with torch.no_grad(), torch.no_grad():  # twice, in case Ctrl-C arrives between the two
            while len(self._restorers) > depth:
                try:
                    self._restorers[-1]()
                except Exception as error:
                    failure = error
                self._restorers.pop()
        if failure is not None:
            raise failure

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.back()


class Step(Undo):
    """State of one step in progress, with its undo stack.

    Args:
        scaler: what scaled the losses, if anything.
        max_grad_norm: the largest norm of the gradient that the base optimizer gets.
        start: generators and buffers before the first pass.
    """

    def __init__(self, scaler: Any, max_grad_norm: float | None, start: Any) -> None:
        super().__init__()
        self.scaler, self.max_grad_norm, self.start = scaler, max_grad_norm, start
        self.due: str = "nothing"
        self.sampled: bool | None = None
        self.decided_late = self.is_per_rank = self.is_in_closure = self.was_changed = False
        self.share = 0.0
        self.is_displaced = self.is_displaced_sample = False
        self.norms: list[Tensor] = []
        self.found_inf: Tensor | None = None
        self.defers = self.was_recorded = False
        self.loss: Any = None
        self.second_loss: Any = None

    @property
    def is_finite(self) -> Tensor | None:
        """The condition under which a fused base steps, decided on the device. None if the host knows that it does."""
        return self.found_inf == 0 if self.defers and self.found_inf is not None else None


class _Moved(AbstractContextManager[None]):
    def __init__(self, undo: Undo) -> None:
        self._undo, self._depth = undo, undo.depth

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:  # otherwise the outer block undoes everything
            self._undo.back(self._depth)


def restorer(thing: object) -> Restorer:
    """Return a function that restores an object's attributes, lists included, but not the state of generators."""
    attributes = vars(thing)
    before = {name: value.copy() if type(value) in _COPIED else value for name, value in attributes.items()}
    return lambda: attributes.update(before)


_COPIED = {list, dict, set, deque}


def rewinder(generators: list[random.Random]) -> Restorer:
    """Return a function that rewinds private generators to their current states."""
    states = [(generator, generator.getstate()) for generator in generators]

    def rewind() -> None:
        for generator, state in states:
            generator.setstate(state)

    return rewind


class BaseStepper:
    """Step the base optimizers, all of them or with an error that names those that did, Ctrl-C deferred.

    Args:
        bases: the optimizers, in the order in which they step.
    """

    def __init__(self, bases: list[Optimizer]) -> None:
        self._bases = bases
        self._ready: list[Tensor] | None = None
        self._states: list[tuple[Any, int]] = []
        # Notices the steps that a base takes on its own. In ours, nothing may run between a base's step and its record.
        self._hooks = [(base._optimizer_step_post_hooks, _hook(base)) for base in bases]

    def forget(self) -> None:
        """The state of the bases was replaced."""
        self._ready = None

    def may_defer(self, parameters: list[Tensor]) -> bool:
        """Return whether all bases are fused, and can skip a step on the device without a sync."""
        if parameters is not self._ready or foreach.is_on_host(parameters[0]):
            return False  # a first step creates the state that a skipped one needs
        for base, (state, length) in zip(self._bases, self._states, strict=True):
            if base.state is not state or len(state) != length:  # somebody has reset it
                return False
        groups = [group for base in self._bases for group in base.param_groups]
        can_skip = all(getattr(base, "_step_supports_amp_scaling", False) for base in self._bases)
        return can_skip and all(group.get("fused") for group in groups)

    def step(self, outcome: list[Any], parameters: list[Tensor], found_inf: Tensor | None) -> None:
        """Step the bases with the gradients of these parameters, unless `found_inf` is 1 on the device.

        The outcome is appended to in the same line, so that no interrupt comes between.
        """
        left = iter(self._bases)
        with _Deferred():
            try:
                for hooks, key in self._hooks:
                    hooks.pop(key, None)
                for base in self._bases if found_inf is not None else ():
                    base.grad_scale, base.found_inf = None, found_inf  # type: ignore[attr-defined]
                outcome.append(list(map(methodcaller("step"), left)))
            except Exception as error:
                _name_half_a_step(error, self._bases[: -1 - len([*left])])
                raise
            finally:
                for hooks, key in self._hooks:
                    hooks[key] = mark_used
                for base in self._bases if found_inf is not None else ():
                    base.__dict__.pop("grad_scale", None)
                    base.__dict__.pop("found_inf", None)
            self._mark_used()
        self._ready, self._states = parameters, [(base.state, len(base.state)) for base in self._bases]

    def skip(self, outcome: list[Any], *_: object) -> None:
        """Leave the bases alone."""
        self._mark_used()
        outcome.append(None)

    def _mark_used(self) -> None:
        for base in self._bases:
            mark_used(base)


def _hook(base: Optimizer) -> int:
    """Register `mark_used` once per base. Return its key."""
    known = next((key for key, hook in base._optimizer_step_post_hooks.items() if hook is mark_used), None)
    return int(base.register_step_post_hook(mark_used).id) if known is None else known


def _name_half_a_step(error: Exception, stepped: list[Optimizer]) -> None:
    if stepped:
        names = ", ".join(f"{type(base).__name__} (base.bases[{i}])" for i, base in enumerate(stepped))
        error.add_note(
            f"Of the list of bases, {names} had already stepped when this one failed: their parameters are updated, "
            "everything else is as before the step. To continue training, load a checkpoint."
        )


def mark_used(base: Optimizer, *_: object) -> None:
    """Mark the gradients of an optimizer, as a hook after its step: what is left of them does not count as fresh."""
    for group in base.param_groups:
        for parameter in group["params"]:
            if (gradient := parameter.grad) is not None and parameter.requires_grad:  # else somebody set it by hand
                gradient.__dict__[_USED] = shards.version(gradient) if shards.CLASSES else gradient._version


def is_used(gradient: Tensor) -> bool:
    """Return whether an optimizer has stepped with a gradient that nobody has written to since."""
    version = shards.version(gradient) if shards.CLASSES else gradient._version
    return gradient.__dict__.get(_USED) == version


def has_fresh_gradient(base: Optimizer) -> bool:
    """Return whether a gradient was accumulated since an optimizer last stepped. All zeros do not count."""
    parameters = [p for group in base.param_groups for p in group["params"] if p.grad is not None and p.requires_grad]
    gradients = [parameter.grad for parameter in parameters]
    versions = map(shards.version if shards.CLASSES else _VERSION, gradients)
    fresh = [g for g, version in zip(gradients, versions, strict=True) if g.__dict__.get(_USED) != version]
    if any(gradient.layout is not torch.strided for gradient in fresh):
        return True
    return bool(fresh) and float(foreach.norm(fresh)) != 0


@contextmanager
def leftovers_used(base: Optimizer) -> Iterator[None]:
    """Add parameters inside. Unless a step is being accumulated, their gradients are left over from earlier steps."""
    was_fresh = has_fresh_gradient(base)
    yield
    if not was_fresh:
        mark_used(base)


_VERSION = attrgetter("_version")
_USED = "_vsam_used"
"""An attribute of a gradient: its version counter when an optimizer last stepped with it."""


class _Deferred(AbstractContextManager[None]):
    """Defer Ctrl-C to the end of the block. Outside the main thread it does not arrive anyway."""

    def __init__(self) -> None:
        self._handler: Any = None
        self._arrived: tuple[int, FrameType | None] | None = None
        self._is_open = False

    def __enter__(self) -> None:
        handler = signal.getsignal(signal.SIGINT)
        if callable(handler) and threading.current_thread() is threading.main_thread():
            self._handler, self._is_open = handler, True
            signal.signal(signal.SIGINT, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._is_open:
            self._arrived = (number, frame)
        else:
            self._handler(number, frame)

    def __exit__(self, *_: object) -> None:
        if self._handler is not None:
            self._is_open = False
            signal.signal(signal.SIGINT, self._handler)
            if self._arrived is not None:
                self._handler(*self._arrived)


def with_own_hooks(step: Callable[..., Any]) -> Callable[..., Any]:
    """Run this optimizer's own step hooks around `step`, which runs without gradients and is not compiled.

    Torch would also run its global optimizer hooks here; they run once, in the base optimizer's step.
    """

    @_disable_dynamo  # like torch.compiler.disable, which would import the compiler before it is needed
    @wraps(step)
    def hooked(*args: Any, **kwargs: Any) -> Any:
        self = args[0]
        for before in self._optimizer_step_pre_hooks.values():
            changed = before(self, args, kwargs)
            args, kwargs = (args, kwargs) if changed is None else changed
        had_gradients = torch.is_grad_enabled()
        try:
            try:
                torch._C._set_grad_enabled(False)
                result = step(*args, **kwargs)
            finally:
                torch._C._set_grad_enabled(had_gradients)
        finally:  # again, in case Ctrl-C arrived right there
            torch._C._set_grad_enabled(had_gradients)
        for after in self._optimizer_step_post_hooks.values():
            after(self, args, kwargs)
        return result

    hooked.hooked = True  # type: ignore[attr-defined] # tells torch that there is nothing left to wrap
    return hooked
