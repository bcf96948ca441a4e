"""One step under way: its gradients, from the first to the one that the base optimizer gets."""

import math
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor

from vsam import shards, tensors
from vsam.caller import warn_caller
from vsam.hand_over import Written
from vsam.parameters import Members
from vsam.parts import Between, Where
from vsam.ranks import Ranks
from vsam.records import Sample
from vsam.second_pass import LastWrite
from vsam.transaction import Transaction

__all__ = ["Memory", "Step"]

_VERSION = attrgetter("_version")


class Memory:
    """What is remembered of the last sample: a tensor for each of some parameters.

    Args:
        parameters: those parameters.
        values: the tensors, or the buffers that hold them, which are then split when needed.
    """

    def __init__(self, parameters: list[Tensor], values: list[Tensor] | tensors.Pack) -> None:
        self.parameters, self._values = parameters, values

    @property
    def values(self) -> list[Tensor]:
        """The tensors."""
        if isinstance(self._values, tensors.Pack):
            self._values = self._values.views(self.parameters)
        return self._values

    def of(self, parameters: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """The parameters of this list that it knows, and their values."""
        if parameters is self.parameters:
            return parameters, self.values
        known = dict(zip(self.parameters, self.values, strict=True))
        found = [parameter for parameter in parameters if parameter in known]
        return found, [known[parameter] for parameter in found]


class Step(Transaction):
    """What lives from the decision to the base optimizer's step.

    Args:
        scaler: what scales the losses, if anything.
        max_grad_norm: the largest gradient norm that the base optimizer gets.
        guard: whether to check that the gradients are finite; with a scaler they are always checked.
    """

    # Defaults of the class: a step that does not use them need not set them, and there is a step for every batch.
    wants_sample: bool | None = None
    was_sampled = is_in_closure = is_apart = shows_norm = False
    is_ascending = has_ascended = False
    last_write: LastWrite | None = None
    seen: Written | None = None
    members = Members([], [], [])
    grad_norm: Tensor | None = None
    sharp_norm: Tensor | None = None
    averages: Memory | None = None
    displaced_by: Where | None = None
    _ascent_norm: Tensor | None = None
    _own_norm: Tensor | None = None
    _watched_norm: Tensor | None = None
    _flag: Tensor | None = None
    _found_inf: Tensor | None = None
    _ranks: Ranks | None = None
    _first: tensors.Pack | None = None
    _plain: tensors.Pack | None = None
    _directions: list[Tensor] | None = None
    _perturbed: tuple[tuple[Tensor, int], ...] = ()
    _was_written = False

    def __init__(self, scaler: Any = None, max_grad_norm: float | None = None, guard: bool = True) -> None:
        super().__init__()
        self.scaler, self.max_grad_norm = scaler, max_grad_norm
        self._is_checked = guard or scaler is not None
        self.late: list[Tensor] = []
        self.first: list[Tensor] = []
        self._watched: list[int] = []

    @property
    def parameters(self) -> list[Tensor]:
        """Those with a gradient in either pass."""
        return self.members.parameters + self.late if self.late else self.members.parameters

    def gradients(self) -> list[Tensor]:
        """The current gradients."""
        gradients = self.members.gradients()
        return gradients + [parameter.grad for parameter in self.late] if self.late else gradients  # type: ignore[misc]

    def unscale(self, gradients: list[Tensor]) -> None:
        """Divide gradients by the scaler's scale."""
        tensors.multiply_(gradients, self.scaler.inverse_scale())

    def take_first(self, members: Members, gradients: list[Tensor], needs_norm: bool) -> None:
        """Take the first gradient, with its norm or only a check that it is finite."""
        self.members, self.first, self._found_inf = members, gradients, None
        if self._is_checked and not needs_norm:
            self._flag = tensors.found_inf(gradients, members.layout)
            needs_norm = self._flag is None
        if needs_norm:
            self._first = tensors.Pack(gradients, members.layout)
            self.grad_norm = self._first.norm()

    def take_norms(self, ranks: Ranks, norms: list[float]) -> None:
        """Take all ranks' first gradient norms: their root mean square becomes ‖g‖, the rank's own scales e."""
        assert self.grad_norm is not None
        self._ranks, self._own_norm = ranks, self.grad_norm
        self.grad_norm = self.grad_norm.new_tensor(math.sqrt(sum(norm * norm for norm in norms) / len(norms)))

    def average(self) -> None:
        """Average the first gradients over the ranks, which the pass did not do."""
        assert self._ranks is not None
        assert self._first is not None
        self._ranks.average_(self._first.buffers)
        tensors.copy_(self.first, self._first.views(self.first))
        self.grad_norm = self._first.norm()

    def _average_plain(self, plain: tensors.Pack) -> None:
        """The same for the kept copies; the gradients along which this rank perturbs stay its own."""
        assert self._ranks is not None
        self._ranks.average_(plain.buffers)
        is_whole = plain.layout is self.members.layout
        if self._watched:
            self._watched_norm = plain.norm_of(self._watched) if is_whole else plain.norm()
        if is_whole:
            self.grad_norm = plain.norm()

    def displace(self, where: Where, weights: list[Tensor], directions: list[Tensor], rhos: list[float]) -> None:
        """Move the weights to where the only pass runs."""
        places = tensors.Places(weights)
        self.way_back.append(torch.clear_autocast_cache)  # it holds casts of the weights
        self.way_back.append(places.keep())
        self.displaced_by = where
        norm = tensors.norm(directions)
        if self.has_ascended:
            self._ascent_norm = norm
        where.perturb_(places.tensors, directions, rhos, norm)
        torch.clear_autocast_cache()

    def follow(self, where: Where, last: Memory | None) -> None:
        """Update the memory of `where` with the first gradient; a sample's directions use the memory before that.

        Args:
            where: the part that keeps it.
            last: the memory so far, kept if the step fails or is skipped.
        """
        memory = {} if last is None else dict(zip(last.parameters, last.values, strict=True))
        parameters, gradients = self.members.parameters, self.first
        known = [i for i, parameter in enumerate(parameters) if parameter in memory]
        chosen, before = [gradients[i] for i in known], [memory[parameters[i]] for i in known]
        after = tensors.copies(gradients)
        kept = [after[i] for i in known]
        tensors.copy_(kept, before)
        where.follow_(kept, chosen)
        memory.update(zip(parameters, after, strict=True))
        self.averages = Memory([*memory], [*memory.values()])
        if self.wants_sample:
            self._directions = list(gradients)
            for i, direction in zip(known, where.directions(chosen, before), strict=True):
                self._directions[i] = direction

    def perturb(
        self,
        where: Where,
        radii: list[float | None],
        watched: list[int],
        keeps_all: bool,
        chosen: set[Tensor] | None = None,
    ) -> None:
        """Move the weights to w + e and clear the gradients.

        Args:
            where: the part that knows e.
            radii: one per group, None for a group that is not perturbed.
            watched: positions of the parameters whose norms are wanted.
            keeps_all: whether the PSF of all parameters is wanted; otherwise only that of the watched ones.
            chosen: the parameters that may be perturbed; None for all.
        """
        assert self._first is not None
        members, gradients = self.members, self.first
        norm = self.grad_norm if self._own_norm is None else self._own_norm
        self._watched = watched
        if watched and self._ranks is None:
            self._watched_norm = self._first.norm_of(watched)
        if keeps_all or watched:
            # Copied: the second pass may overwrite the buffers of the first, such as DDP's buckets.
            plain = self._first if keeps_all else tensors.Pack([gradients[i] for i in watched])
            self._plain = plain.detach_owned()
            if self._ranks is not None:
                self._average_plain(plain)
        self._first = None
        places = members.places
        rhos: list[Any] = [radii[i] for i in members.groups]
        if self._directions is not None:
            gradients, norm = self._directions, tensors.norm(self._directions)
        if chosen is not None:
            rhos = [rho if p in chosen else None for p, rho in zip(members.parameters, rhos, strict=True)]
        if None in rhos:
            moved = [i for i, rho in enumerate(rhos) if rho is not None]
            weights, rhos, gradients = ([values[i] for i in moved] for values in (members.parameters, rhos, gradients))
            norm, places = tensors.norm(gradients), tensors.Places(weights)
        self.was_sampled = True
        self.way_back.append(torch.clear_autocast_cache)  # it holds casts of the weights
        self.way_back.append(places.keep())
        if places.tensors:
            where.perturb_(places.tensors, gradients, rhos, norm)  # type: ignore[arg-type]
        self.first, self._directions = [], None
        for parameter in members.parameters:
            parameter.grad = None
        torch.clear_autocast_cache()

    def take_second(self, members: Members, gradients: list[Tensor]) -> None:
        """Take the second gradient and form PSF = gs − g; a gradient missing in one pass counts as zero there."""
        if members is not self.members:
            known = set(self.members.parameters)
            self.late = [parameter for parameter in members.parameters if parameter not in known]
            for parameter in self.members.parameters:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
            gradients = self.gradients()
        if self.scaler is not None:
            self.unscale(gradients)
        plain, layout = self._plain, self.members.layout
        is_whole = plain is not None and plain.layout is layout
        is_clipped = self.max_grad_norm is not None
        needs_norm = is_clipped or self._is_checked
        if needs_norm and not (is_clipped or is_whole or self.late):
            before = None if tensors.is_on_host(self.grad_norm) else self.found_inf()  # type: ignore[arg-type]
            self._flag = tensors.found_inf(gradients, layout, before)
            self._found_inf = None if before is None else self._flag
            needs_norm = self._flag is None
        second = tensors.Pack(gradients[: layout.num_tensors], layout) if needs_norm or is_whole else None
        if needs_norm and second is not None:
            self.sharp_norm = tensors.norm(gradients) if self.late else second.norm()
        if plain is not None:
            if second is None or not is_whole:
                second = tensors.Pack([gradients[i] for i in self._watched], plain.layout)
            tensors.subtract_from_(plain.buffers, second.buffers)

    def is_finite(self) -> bool:
        """Whether all gradients of both passes are finite; a device sync."""
        for norm in (self.grad_norm, self.sharp_norm, self._ascent_norm):
            if norm is not None and not tensors.is_on_host(norm):
                return not self.found_inf()
            if norm is not None and not math.isfinite(norm):
                return False
        return self._flag is None or not self._flag

    def found_inf(self) -> Tensor:
        """1 if a gradient of either pass is not finite, else 0; on the device, named as in torch."""
        if self._found_inf is None:
            total, flag = self._norms(), self._flag
            if total is not None:
                found = tensors.is_not_finite(total)
                flag = found if flag is None else torch.maximum(found, flag)
            assert flag is not None
            self._found_inf = flag
        return self._found_inf

    def _norms(self) -> Tensor | None:
        """The sum of the gradient norms that were computed."""
        total: Tensor | None = None
        for norm in (self.grad_norm, self.sharp_norm, self._ascent_norm):
            if norm is not None:
                total = norm if total is None else total + norm
        return total

    def psf_norm(self, is_wanted: bool) -> Tensor | None:
        """‖PSF‖ over all parameters, if it is wanted or if all are watched."""
        is_known = is_wanted or len(self._watched) == len(self.members.parameters)
        return self._plain.norm() if is_known and self._plain is not None else None

    def sample(self, unless: Tensor | None) -> Sample | None:
        """The norms over the watched tensors, not finite where `unless` is 1; None if none are watched."""
        plain, watched = self._plain, self._watched
        if plain is None or self._watched_norm is None:
            return None
        is_all = plain.layout.num_tensors == len(watched)
        psf_norm = plain.norm() if is_all else plain.norm_of(watched)
        return Sample(psf_norm if unless is None else psf_norm / (1 - unless), self._watched_norm)

    def remember(self, between: Between, last: Memory | None, unless: Tensor | None) -> Memory:
        """Return what `between` makes of the PSF, in the PSF's own buffers.

        Args:
            between: the part that reuses it.
            last: the memory so far, kept if the step turns out not to be finite.
            unless: 1 if it is not finite, still on the device; None if it is known to be.
        """
        assert self._plain is not None
        memory = Memory(self.members.parameters, self._plain)
        if self.late:
            memory = self._with_late(memory)
        if type(between).remember is not Between.remember:
            between.remember(memory.values, self.gradients(), self.grad_norm)  # type: ignore[arg-type]
        if self.members.layout.may_overflow:  # two finite gradients may differ by more than half precision can hold
            tensors.zero_unless_(torch.isfinite(tensors.norm(memory.values)), memory.values)
        if unless is not None:
            known = dict(zip(last.parameters, last.values, strict=True)) if last is not None else {}
            tensors.select_(unless == 0, memory.values, [known.get(parameter) for parameter in memory.parameters])
        return memory

    def combine(self, between: Between, memory: Memory | None) -> None:
        """Let `between` change the second gradient; `memory` is what it remembers of the PSF, if anything.

        If the result overflows half precision, the gradient stays unchanged.
        """
        if memory is None:
            assert self._plain is not None
            memory = self._with_late(Memory(self.members.parameters, self._plain))
            if self.members.layout.may_overflow:
                tensors.zero_unless_(torch.isfinite(tensors.norm(memory.values)), memory.values)
        gradients = self.gradients()
        before = tensors.copies(gradients) if self.members.layout.may_overflow else []
        between.combine_(gradients, memory.values)
        if before:
            tensors.select_(torch.isfinite(tensors.norm(gradients)), gradients, [*before])

    def keep_averages(self, last: Memory | None, unless: Tensor | None) -> Memory | None:
        """The memory of `where` after `follow`, or before it if `unless` is 1 on the device."""
        if unless is not None and self.averages is not None:
            known = dict(zip(last.parameters, last.values, strict=True)) if last is not None else {}
            others = [known.get(parameter) for parameter in self.averages.parameters]
            tensors.select_(unless == 0, self.averages.values, others)
        return self.averages

    def _with_late(self, psf: Memory) -> Memory:
        """The PSF, with the parameters that got a gradient in the second pass only: theirs is that gradient."""
        late = tensors.copies([parameter.grad for parameter in self.late])  # type: ignore[misc]
        return Memory(self.parameters, psf.values + late) if late else psf

    def watch_weights(self) -> None:
        """Note the perturbed weights, so that abandoning the step says if somebody has written to them since."""
        weights = self.members.parameters
        self._perturbed = () if shards.CLASSES else tuple(zip(weights, map(_VERSION, weights), strict=True))

    def trust_weights(self) -> None:
        """From here on, we write to them ourselves."""
        self._perturbed = ()

    def rollback(self) -> None:
        """Undo the step, unless it is done, and free all buffers."""
        self._was_written |= any(weight._version != version for weight, version in self._perturbed)
        self.trust_weights()
        super().rollback()
        self.close()
        if self._was_written:
            warn_caller(
                "Weights were written after perturb(), in a step that was then abandoned: they are restored to what "
                "they were before perturb(). Call optimizer.zero_grad() to abandon a step before you change weights."
            )

    def close(self) -> None:
        """Free all buffers."""
        self.guards, self.way_back = [], []
        self._first = self._plain = self._directions = self.averages = None
        self.first = []
