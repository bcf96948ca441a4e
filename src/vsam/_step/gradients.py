"""The gradient of a pass, the PSF, what is remembered of both, and how the weights move along them."""

import math
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from operator import attrgetter, is_, is_not
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from vsam._step import foreach
from vsam._step.foreach import FlatBuffers, kinds_of
from vsam._step.misuse import CLOSURE_EXAMPLE
from vsam._step.parameters import Parameters, ParamList
from vsam._step.records import Records
from vsam._step.undo import Undo, is_used
from vsam.bases import bases_of
from vsam.checks import check_not_negative
from vsam.distributed import shards
from vsam.parts import Between, KnowsBefore, Where


class Gradient:
    """The gradient of one pass, over the parameters that have one.

    Args:
        members: those parameters.
        tensors: their gradients.
    """

    def __init__(self, members: ParamList, tensors: list[Tensor]) -> None:
        self.members, self.tensors = members, tensors

    @cached_property
    def flat(self) -> FlatBuffers:
        """The tensors in few buffers."""
        return FlatBuffers(self.tensors, self.members.layout)

    @cached_property
    def norm(self) -> Tensor:
        """‖g‖ over all parameters and processes."""
        return self.flat.norm()

    @property
    def finiteness(self) -> Tensor:
        """A number that is finite only if the gradient is: its norm, or what is cheaper while that is unknown."""
        is_known = "norm" in self.__dict__ or "flat" in self.__dict__
        cheaper = None if is_known else foreach.finiteness(self.tensors, self.members.layout)
        return self.norm if cheaper is None else cheaper

    @property
    def length(self) -> Tensor:
        """The norm that the perturbation divides by."""
        return self.norm

    def averaged(self) -> "Gradient":
        """Return the mean over the processes, which it is already."""
        return self

    def copy(self, watch: int | None, whole: bool) -> "PSF | None":
        """Copy all tensors, or the last ones in the model's order, before the second pass overwrites them.

        Args:
            watch: how many of the last tensors norms are wanted of, None for all.
            whole: copy all tensors whatever `watch` says.
        """
        watched = [] if watch == 0 else self.members.last(watch)
        return PSF(self, watched, whole) if watched or whole else None

    def release(self) -> None:
        """Free the tensors and keep the norm."""
        _ = self.norm
        self.tensors = []
        self.__dict__.pop("flat", None)

    def unscaled(self, scaler: Any) -> "Gradient":
        """Divide by the scaler's scale in place."""
        if scaler is not None:
            foreach.multiply_(self.tensors, scaler.inverse_scale())
        return self

    def joined(self, first: ParamList) -> "Gradient":
        """Return the second gradient over the parameters of both passes, zero where this one has none."""
        if self.members is first:
            return self
        for parameter in first.parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        members = first.joined(self.members)
        return Gradient(members, [*map(_GRADIENT, members.parameters)])

    def clip_(self, max_norm: float | None) -> None:
        """Scale the tensors in place to a norm of at most `max_norm`, as torch does."""
        if max_norm is not None:
            norm = FlatBuffers(self.tensors, self.members.layout).norm()
            foreach.multiply_(self.tensors, (max_norm / (norm + 1e-6)).clamp(max=1.0))


class PSF:
    """A copy of the first gradient that becomes the second minus the first.

    Args:
        first: the first gradient.
        watched: positions of the tensors whose norms the rule for sampling wants.
        whole: copy all tensors, not only the watched ones.
    """

    def __init__(self, first: Gradient, watched: list[int], whole: bool) -> None:
        self._parameters, self._watched = first.members.parameters, watched
        self._positions = None if whole else watched
        self.grad_norm = first.flat.norm_of(watched) if watched else None
        flat = first.flat if whole else FlatBuffers([first.tensors[i] for i in watched])
        self.flat, self._late = flat.detach_owned(), Memory([], [])

    def subtract_from(self, second: Gradient) -> None:
        """Become the second gradient minus the copy."""
        tensors, num_known = second.tensors, len(self._parameters)
        if self._positions is None and len(tensors) == num_known:
            sharp = second.flat
        else:
            known = range(num_known) if self._positions is None else self._positions
            sharp = FlatBuffers([tensors[i] for i in known], self.flat.layout)
        foreach.subtract_from_(self.flat.buffers, sharp.buffers)
        if len(tensors) > num_known:  # what had no gradient in the first pass counts as zero there
            self._late = Memory(second.members.parameters[num_known:], foreach.copies(tensors[num_known:]))

    def average(self, average_: Callable[[list[Tensor]], None]) -> None:
        """Average the copy over the processes."""
        average_(self.flat.buffers)
        if self._watched:
            self.grad_norm = self.flat.norm_of(self._watched) if self._positions is None else self.flat.norm()

    @property
    def watched_norm(self) -> Tensor:
        """‖PSF‖ over the watched tensors."""
        is_all = self.flat.layout.num_tensors == len(self._watched)
        return self.flat.norm() if is_all else self.flat.norm_of(self._watched)

    def norm(self, is_wanted: bool) -> Tensor | None:
        """‖PSF‖ over all tensors, if it is wanted or known anyway."""
        return self.flat.norm() if is_wanted or len(self._watched) == len(self._parameters) else None

    def memory(self) -> "Memory":
        """The PSF by parameter. Two finite gradients may differ by more than half precision can hold: zero then."""
        values = self.flat.views(self._parameters) + self._late.values
        parameters = self._parameters + self._late.parameters if self._late.values else self._parameters
        return Memory(parameters, values).without_overflow(self.flat.layout.may_overflow)


class Memory:
    """One tensor for each of some parameters."""

    def __init__(self, parameters: list[Tensor], values: list[Tensor]) -> None:
        self.parameters, self.values = parameters, values

    def of(self, parameters: list[Tensor]) -> list[Tensor | None]:
        """The tensors of these parameters, None where there is none."""
        if parameters is self.parameters:
            return [*self.values]
        if not self.values:
            return [None] * len(parameters)
        known = dict(zip(self.parameters, self.values, strict=True))
        return [known.get(parameter) for parameter in parameters]

    def updated(self, parameters: list[Tensor], values: list[Tensor] | None, condition: Tensor | None) -> "Memory":
        """Return a memory with the tensors of these parameters replaced where the condition holds."""
        if values is None:
            return self
        known = {**dict(zip(self.parameters, self.values, strict=True)), **dict(zip(parameters, values, strict=True))}
        return Memory([*known], [*known.values()]).kept_if(condition, self)

    def by_index(self, parameters: list[Tensor]) -> dict[int, Tensor]:
        """Return copies of the tensors by the index of their parameter."""
        return {i: value.clone() for i, value in enumerate(self.of(parameters)) if value is not None}

    def without_overflow(self, may_overflow: bool) -> "Memory":
        """Set the tensors to zero if their norm is not finite, which only half precision needs to ask."""
        if may_overflow:
            foreach.zero_unless_(torch.isfinite(foreach.norm(self.values)), self.values)
        return self

    def after_sample(
        self, between: Between, g: Gradient, gs: Gradient, psf: PSF | None, condition: Tensor | None
    ) -> "Memory":
        """Let a part turn gs into what the base gets. Return what it remembers, if the condition holds."""
        if psf is None or not between.uses_psf:
            return self
        found, may_overflow = psf.memory(), gs.members.layout.may_overflow
        before = foreach.copies(gs.tensors) if may_overflow else []
        values = between.at_sample(gs.tensors, found.values, g.norm)
        if may_overflow:  # keep gs if the result is beyond half precision
            foreach.keep_if_(torch.isfinite(foreach.norm(gs.tensors)), gs.tensors, [*before])
        if values is None:
            return self
        return Memory(found.parameters, values).without_overflow(may_overflow).kept_if(condition, self)

    def reuse(self, between: Between, g: Gradient, records: Records) -> None:
        """Let a part add what it remembers to the plain gradient."""
        values: list[Any] = self.of(g.members.parameters)
        known = [i for i, value in enumerate(values) if value is not None]
        if known and (age := records.age) is not None:  # reading the age may cost a device sync
            between.reuse_([g.tensors[i] for i in known], [values[i] for i in known], age, lambda: g.norm)

    def kept_if(self, condition: Tensor | None, last: "Memory") -> "Memory":
        """Restore the tensors of `last` unless the condition holds, which stays on the device."""
        if condition is not None:
            foreach.keep_if_(condition, self.values, last.of(self.parameters))
        return self


class Gradients:
    """Take the gradients that a pass left in `.grad`, and move the weights along them.

    Args:
        base: the base optimizer.
        model: the network, if known.
    """

    def __init__(self, base: Optimizer, model: nn.Module | None) -> None:
        self._base, self.model = base, model
        self.refresh()

    def refresh(self) -> None:
        """List the parameters anew."""
        self.parameters = Parameters(bases_of(self._base), self.model)
        self.all = self.parameters.all
        self._some: tuple[list[int], ParamList] = ([], self.all.only([]))

    def are_current(self, model: nn.Module | None) -> bool:
        """Return whether these are still the parameters of the groups, with the same dtype and device."""
        groups, lists = self._base.param_groups, self.parameters.lists
        if len(groups) != len(lists) or model is not self.model or kinds_of(self.all.parameters) != self.all.kinds:
            return False
        pairs = [(group["params"], known) for group, known in zip(groups, lists, strict=True)]
        return all(len(now) == len(known) and all(map(is_, now, known)) for now, known in pairs)

    def clear(self) -> None:
        """Drop the gradients, except those that somebody set by hand on tensors without `requires_grad`."""
        for parameter in self.all.parameters:
            if parameter.grad is not None and (parameter.requires_grad or is_used(parameter.grad)):
                parameter.grad = None

    def clear_frozen(self) -> None:
        """Drop the gradients that frozen parameters still have from an earlier step."""
        for parameter in self.all.parameters:
            if not parameter.requires_grad and parameter.grad is not None and is_used(parameter.grad):
                parameter.grad = None

    def take(self, scaler: Any = None) -> Gradient | None:
        """Return the gradient, unscaled in place. None if no parameter has one."""
        members, tensors = self.all, [*map(_GRADIENT, self.all.parameters)]
        if not all(map(_IS_THERE, tensors)):
            kept = [i for i, tensor in enumerate(tensors) if tensor is not None]
            if kept != self._some[0]:
                self._some = (kept, self.all.only(kept))
            members, tensors = self._some[1], [tensors[i] for i in kept]
        if self.parameters.has_complex or not {torch.strided}.issuperset(map(_LAYOUT, tensors)):
            self.parameters.refuse(members.parameters)
        if self.parameters.are_sharded:
            tensors = shards.placed(members.parameters, tensors)
        return Gradient(members, tensors).unscaled(scaler) if tensors else None

    def take_second(self, g: Gradient, psf: PSF | None, scaler: Any) -> Gradient:
        """Return the second gradient over the parameters of both passes, and subtract the first for the PSF."""
        second = self.take()
        if second is None:
            raise RuntimeError(
                "No parameter has a gradient. Run forward and backward again after perturb() returns True, or in "
                f"the closure:{CLOSURE_EXAMPLE}"
            )
        second = second.joined(g.members).unscaled(scaler)
        if psf is not None:
            psf.subtract_from(second)
        return second

    def perturb(self, where: Where, g: Gradient, average: list[Tensor | None], undo: Undo) -> None:
        """Move the weights to w + e and clear the gradients. `average` is what `where` remembers of earlier ones."""
        members, directions = g.members, where.directions(g.tensors, average)
        chosen = self._moved_by(where, members)
        if len(chosen) < len(directions):
            directions = [directions[i] for i in chosen]
        length = g.length if directions is g.tensors else foreach.norm(directions)
        weights = [members.parameters[i] for i in chosen]
        self._move(where, weights, directions, [*chosen.values()], length, undo)
        g.release()
        for parameter in members.parameters:
            if parameter.requires_grad:
                parameter.grad = None
        for parameter in self.parameters.others:  # which another optimizer trains: the second pass is none of its own
            if parameter.grad is not None:
                undo.push(partial(setattr, parameter, "grad", parameter.grad))
                parameter.grad = None

    def displace(self, part: KnowsBefore, rho: float | None, undo: Undo) -> Tensor | None:
        """Move the weights before the only pass, along the base's state or the gradient of a part of the batch.

        Args:
            part: what knows the direction.
            rho: its radius; None for that of the groups.
            undo: what restores the weights.

        Returns the norm of the directions, None if there are none.
        """
        state, radii = self._base.state, self._moved_by(part, self.all)
        known: dict[int, Tensor] = {}
        is_unknown = False
        for i in radii:
            parameter = self.all.parameters[i]
            own_state: Mapping[str, Any] = state.get(parameter, {})
            if (direction := part.direction(own_state, parameter.grad)) is not None:
                known[i] = direction
            elif own_state:
                is_unknown = True
        if known:
            weights, directions = [self.all.parameters[i] for i in known], [*known.values()]
            length = foreach.norm(directions)
            self._move(part, weights, directions, [radii[i] if rho is None else rho for i in known], length, undo)
            return length
        if is_unknown:
            raise RuntimeError(
                f"{type(part).__name__} finds no direction in the state of {type(self._base).__name__}: use SGD with "
                "momentum, Adam or AdamW as the base."
            )
        return None

    def _moved_by(self, where: Where, members: ParamList) -> dict[int, float]:
        """Return the radii of the parameters that a part moves, by their position."""
        radii, norms = self.radii(where.rho), self.parameters.norms if where.only == "norm" else None
        found: dict[int, float] = {}
        for i, (parameter, group) in enumerate(zip(members.parameters, members.groups, strict=True)):
            radius = radii[group]
            if radius is not None and parameter.requires_grad and (norms is None or parameter in norms):
                found[i] = radius
        return found

    def radii(self, rho: float) -> list[float | None]:
        """The radius of each group, None for one that is not perturbed, negative for one with `maximize=True`."""
        found: list[float | None] = []
        for group, is_own in zip(self._base.param_groups, self.parameters.own_rho, strict=True):
            radius = rho if is_own else group.setdefault("rho", rho)
            if type(radius) is not float or not 0 <= radius < math.inf:
                radius = check_not_negative("rho", radius)
            signed = -radius if group.get("maximize") else radius
            found.append(signed if group.get("perturb", True) else None)
        return found

    def _move(
        self, where: Where, weights: list[Tensor], directions: list[Tensor], rhos: list[float], norm: Tensor, undo: Undo
    ) -> None:
        # The cache holds casts of the weights.
        undo.push(torch.clear_autocast_cache, partial(foreach.copy_, weights, foreach.copies(weights)))
        if weights:
            where.perturb_(weights, directions, rhos, norm)
        torch.clear_autocast_cache()
        if self.parameters.units:
            undo.push(lambda: shards.reshard(self.parameters.units))
            shards.reshard(self.parameters.units)


_GRADIENT, _LAYOUT = attrgetter("grad"), attrgetter("layout")
_IS_THERE = partial(is_not, None)
