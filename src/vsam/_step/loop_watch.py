"""Detect changes of gradients, weights and the model that a loop must not make."""

import copy
import math
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn
from torch._compile import _disable_dynamo

from vsam._step.input_watch import InputWatch
from vsam._step.misuse import ACCUMULATION_EXAMPLE, CLOSURE_EXAMPLE, warn_caller
from vsam._step.replay import FirstPassRecorder
from vsam._step.undo import Step, Undo
from vsam.distributed import shards

_VERSION, _GRADIENT = attrgetter("_version"), attrgetter("grad")

_SMALL = 65_536
"""Elements of a parameter whose gradient is cheap to copy."""


class LoopWatch:
    """Watch one parameter's gradient in both passes, and the perturbed weights."""

    def __init__(self) -> None:
        self.parameters: list[Tensor] = []
        self._warned: set[str] = set()
        self._first: _Backwards | None = None
        self._factor = 1.0
        self.forget()

    def forget(self) -> None:
        """Stop watching: the step has ended."""
        if self._first is not None:
            self._first.remove()
        self._first = None
        self._second: _Backwards | None = None
        self._inputs: InputWatch | None = None
        self._perturbed: list[tuple[Tensor, int]] = []
        self._gradients: list[tuple[int, int]] = []

    def begin_first_pass(self) -> None:
        """Count the backward passes from here on."""
        self.forget()
        watched = next((parameter for parameter in self.parameters if parameter.requires_grad), None)
        if watched is not None:
            self._first = _Backwards(watched)

    def begin_second_pass(
        self, model: nn.Module | None, recorder: FirstPassRecorder, abandon: Callable[[], object], undo: Undo
    ) -> None:
        """Watch until the undo restores the weights. What cannot be the second pass abandons the step first.

        That is a forward pass in evaluation mode or under no_grad, `model.zero_grad()`, saving or loading its state.
        """
        first, candidates = self._first, [parameter for parameter in self.parameters if parameter.requires_grad]
        if first is not None:
            first.remove()
        self._inputs = recorder.inputs
        if self._inputs is not None:
            self._inputs.is_second = True
        if candidates:
            is_same = first is not None and first.count > 0 and first.parameter.requires_grad
            self._second = _Backwards(first.parameter if is_same else candidates[0])  # type: ignore[union-attr]
            undo.push(self._second.remove)
        self._perturbed = [] if shards.CLASSES else [(weight, weight._version) for weight in self.parameters]
        if model is None:
            return
        if not recorder.was_called:
            self.warn_once(
                "No forward pass of model was seen, so the second pass cannot repeat the first one's dropout. "
                "Pass the module that you call as model=."
            )

        def on_forward(kind: tuple[bool, bool]) -> None:
            # Whatever the first pass did too, such as no_grad pseudo-labels, belongs to the second.
            is_training, takes_gradients = kind
            was_seen = recorder.start.rng is not None
            if kind not in recorder.kinds and (not takes_gradients or (was_seen and not is_training)):
                abandon()
                warn_caller(
                    "A forward pass in evaluation mode or under no_grad ran between perturb() and step(): the weights "
                    "were restored first, and the step was abandoned. Evaluate after step()."
                )

        inner = [getattr(model, name, None) for name in ("_orig_mod", "module")]  # of a compiled or distributed one
        modules = [model, *(module for module in inner if isinstance(module, nn.Module))]

        def end() -> None:
            recorder.on_forward = None
            for module in modules:
                _Abandoning.remove(module)

        undo.push(end)
        recorder.on_forward = on_forward
        for module in modules:
            module.__dict__.update((name, _Abandoning(module, name, abandon)) for name in _Abandoning.names)

    def begin_wait(self) -> None:
        """Note the gradients of a step without a second pass."""
        self._gradients = self._versions()

    def were_gradients_changed(self) -> bool:
        """Return whether the gradients were changed since `begin_wait`."""
        return self._gradients != self._versions()

    def _versions(self) -> list[tuple[int, int]]:
        gradients = [gradient for gradient in map(_GRADIENT, self.parameters) if gradient is not None]
        return [(id(gradient), shards.version(gradient)) for gradient in gradients]

    def check_first_pass(self) -> None:
        """Warn if the first gradient was changed before `perturb()`, for methods that use the PSF."""
        if self._first is not None and self._first.was_changed:
            self.warn_once(
                "The gradients were changed between backward() and perturb(), so the PSF is gs minus a changed g. To "
                "clip, call optimizer.clip_grad_norm_(max_norm) after the second backward(), or construct the "
                "optimizer with max_grad_norm=."
            )

    def check_second_pass(self, uses_psf: bool) -> None:
        """Refuse a second pass over other micro-batches than the first, and warn of a changed gradient."""
        first, second = self._first, self._second
        if uses_psf and second is not None and second.was_changed:
            self.warn_once(
                "The gradients were changed between the second backward() and step(), so the PSF is a changed gs "
                "minus an unchanged g. To clip, call optimizer.clip_grad_norm_(max_norm) there, or construct the "
                "optimizer with max_grad_norm=."
            )
        if first is not None and second is not None and first.count and second.count not in (0, first.count):
            raise RuntimeError(
                f"The first pass had {first.count} backward passes and the second one {second.count}, so the two "
                "gradients are not of the same data. After perturb() returns True, repeat all micro-batches, or pass "
                f"step() a closure:{ACCUMULATION_EXAMPLE}"
            )
        inputs = self._inputs
        if inputs is not None and inputs.has_other_data and 1 not in (first and first.count, inputs.num_calls):
            raise RuntimeError(
                "The second pass ran over other micro-batches than the first, so the two gradients are not of the same "
                "data. After perturb() returns True, repeat each micro-batch of the first pass once, or pass step() a "
                f"closure:{ACCUMULATION_EXAMPLE}"
            )

    @contextmanager
    def closure(self, step: Step) -> Iterator[None]:
        """Run a pass of a closure, and warn if it shrinks the gradients of the two passes by different factors.

        One small parameter is watched, of more than two elements: the two of a bias of two classes always add up to
        zero, so that any change only scales them. Off with several processes, which write to gradients themselves. The
        same factor in both passes, as from an average over micro-batches, leaves the PSF right.
        """
        candidates = (one for one in reversed(self.parameters) if one.requires_grad and 2 < one.numel() <= _SMALL)
        small = None if _has_processes() else next(candidates, None)
        if small is None:
            yield
            return
        watched = _Backwards(small, copies=True)
        try:
            yield
            if step.due == "first":
                self._factor = watched.factor()
            elif abs(self._factor - (factor := watched.factor())) > 1e-2 * max(self._factor, factor):  # not if unknown
                self.warn_once(
                    "The closure clipped the gradients, by another factor in each pass, so the PSF is a clipped gs "
                    "minus a clipped g. Leave clip_grad_norm_() out of the closure, and construct the optimizer with "
                    "max_grad_norm=."
                )
        finally:
            watched.remove()

    def were_weights_written(self) -> bool:
        """Return whether somebody wrote to the perturbed weights."""
        return any(weight._version != version for weight, version in self._perturbed)

    def warn_of_no_gradient(self) -> None:
        """Warn of a step on nothing."""
        self.warn_once(
            "No parameter has a gradient, so the step did nothing, as with torch's optimizers. If that is not "
            f"intended, call backward() before perturb(), or in the closure:{CLOSURE_EXAMPLE}"
        )

    def warn_of_written_weights(self) -> None:
        """Warn that foreign writes to the weights of an abandoned step are lost."""
        warn_caller(
            "Weights were written after perturb(), in a step that was then abandoned: they are restored to what "
            "they were before perturb(). Call optimizer.zero_grad() to abandon a step before you change weights."
        )

    def warn_once(self, message: str) -> None:
        """Warn, unless the same was said before."""
        if message not in self._warned:
            self._warned.add(message)
            warn_caller(message)


def _has_processes() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


class _Backwards:
    """Count the backward passes that are added up in a parameter's gradient, and notice when others change it.

    With several processes it only counts: they write to gradients themselves.

    Args:
        parameter: the parameter.
        copies: keep a copy of the gradient, for `factor`.
    """

    def __init__(self, parameter: Tensor, copies: bool = False) -> None:
        self.parameter, self.count = parameter, 0
        self._copies, self._copy = copies, torch.empty(0)
        self._version, self._id = -1, 0
        method: Callable[[_Backwards, Tensor], None] = _Backwards._note
        register: Callable[..., Any] = parameter.register_post_accumulate_grad_hook
        if _has_processes():
            method, register = _Backwards._count, parameter.register_hook
        handle = register(partial(_call, weakref.ref(self), method))
        # Ctrl-C may arrive before anybody can call it: then the hook ends with this object.
        self.remove: Callable[[], object] = weakref.finalize(self, handle.remove)

    def _count(self, _: Tensor) -> None:
        """Count a pass whose gradient is about to be added."""
        self.count = 1 if self.parameter.grad is None else self.count + 1

    def _note(self, parameter: Tensor) -> None:
        gradient = parameter.grad
        if gradient is not None:
            was_added = id(gradient) == self._id and gradient._version == self._version + 1
            self.count = self.count + 1 if was_added else 1
            self._version, self._id = gradient._version, id(gradient)
            self._copy = gradient.detach().clone() if self._copies else self._copy

    @property
    def was_changed(self) -> bool:
        """True if the gradient differs from what the backward pass left."""
        gradient = self.parameter.grad
        return self._version >= 0 and gradient is not None and gradient._version != self._version

    @torch.no_grad()
    def factor(self) -> float:
        """Return the factor by which the gradient was clipped since its last backward pass, 1 if it was not.

        Other changes, such as a mask or an added term, do not count. NaN if the gradient is zero or overflowed.
        """
        gradient = self.parameter.grad
        if gradient is None or self._version < 0 or (self._version, self._id) == (gradient._version, id(gradient)):
            return 1.0
        old, new = self._copy.float(), gradient.float()
        factor, largest = float(new.norm() / old.norm()), float(new.abs().max())
        if not math.isfinite(factor):
            return math.nan
        is_scaled = torch.allclose(new, factor * old, rtol=1e-2, atol=0)
        return factor if is_scaled or torch.equal(new, old.clamp(-largest, largest)) else 1.0


@_disable_dynamo  # compiled autograd would compile it again at every step
def _call(watch: "weakref.ref[_Backwards]", method: Callable[[_Backwards, Tensor], None], tensor: Tensor) -> None:
    found = watch()
    if found is not None:
        method(found, tensor)


class _Abandoning:
    """A method of a model while a second pass is due: it first abandons the step. Copies get the ordinary one."""

    names = ("zero_grad", "state_dict", "load_state_dict", "__deepcopy__")

    def __init__(self, model: nn.Module, name: str, abandon: Callable[[], object]) -> None:
        self._model, self._name, self._abandon = model, name, abandon
        self._covered = model.__dict__.get(name)  # people also set methods on a model itself

    @classmethod
    def remove(cls, model: nn.Module) -> None:
        """Uncover what was there before."""
        for name in cls.names:
            found = model.__dict__.get(name)
            if isinstance(found, cls):
                del model.__dict__[name]
                if found._covered is not None:
                    model.__dict__[name] = found._covered

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._abandon()
        return (self._covered or _ordinary(self._model, self._name))(*args, **kwargs)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _ordinary, (self._model, self._name)


def _ordinary(model: nn.Module, name: str) -> Callable[..., Any]:
    return partial(_copied, model) if name == "__deepcopy__" else partial(getattr(type(model), name), model)


def _copied(model: nn.Module, memo: dict[int, Any]) -> Any:
    for name in _Abandoning.names:  # left by a pickle of a model in the second pass
        model.__dict__.pop(name, None)
    return copy.deepcopy(model, memo)
