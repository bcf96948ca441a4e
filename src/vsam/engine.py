"""How a step runs, from the decision to the hand-over: the private half of `SharpnessAware`."""

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any, Self

import torch
from torch import Tensor

from vsam import shards, tensors
from vsam.arguments import check_call
from vsam.buffers import Buffers, BufferState
from vsam.caller import warn_caller
from vsam.errors import (
    ACCUMULATION_EXAMPLE,
    CLOSURE_EXAMPLE,
    SHARE_EXAMPLE,
    drops_micro_batches,
    foreign_loop,
    takes_share,
)
from vsam.hand_over import HandOver, mark_consumed
from vsam.history import History
from vsam.parameters import Members, Parameters, radii
from vsam.parts import Between, When, Where
from vsam.ranks import Ranks
from vsam.records import StepLog
from vsam.rng import RngState
from vsam.second_pass import ForwardNote
from vsam.step import Memory, Step
from vsam.transaction import restorer
from vsam.wrapper import Wrapper

__all__ = ["Closure", "Engine"]

Closure = Callable[..., Any]
"""Computes a loss and calls `backward`; takes a share of the batch as its argument if a part needs that."""


class Engine(Wrapper):
    """Runs steps. Between them it holds the parts, the memory and the history, but nothing of a step.

    In a loop without a closure, a step is under way from `perturb()` to `step()`.
    """

    when: When
    where: Where
    between: Between
    max_grad_norm: float | None
    guard: bool
    sync: str

    _memory: Memory | None
    _averages: Memory | None = None
    _history: History
    _log: StepLog
    _note: ForwardNote
    _hand_over: HandOver
    _parameters: Parameters
    _buffers: Buffers
    _ranks: Ranks
    _pending: Step | None
    _was_apart: bool | None
    _was_asked = False  # whether it was checked who calls
    _said: set[str]

    def __new__(cls, *given: Any, **named: Any) -> Self:
        """Check the arguments before Python binds them, to say what to write in place of another package's call."""
        check_call(cls, given, named)
        return super().__new__(cls)

    @property
    def _under_way(self) -> Step | None:
        """The step under way, unless it was interrupted."""
        return None if self._pending is None or self._pending.is_over else self._pending

    @property
    def _uses_psf(self) -> bool:
        """Whether a sample is more than its second gradient."""
        return self.between.keeps_memory or self.between.changes_sample or self.when.watch != 0

    def _step(self, closure: Closure, scaler: Any) -> Any:
        self._check_closure(closure)
        step = self._pending = Step(scaler, self.max_grad_norm, self.guard)
        with step, step:  # twice: the outer one repeats a rollback that was interrupted
            begin = RngState(self._parameters.devices)
            buffers = self._buffers.state(of_all=self._history.num_steps == 0)
            # Gradients left behind by a failed pass do not count as accumulated.
            step.guards += (partial(mark_consumed, self.base), buffers.restore, begin.restore, self._note.mark_stale)
            self._decide(step)
            self._note.rng = begin
            for parameter in self._parameters.all.parameters:
                parameter.grad = None
            self._hand_over.drop()
            where = self.where if step.wants_sample else self.between.where
            if where is not None and where.knows_before:
                if where.share:  # type: ignore[attr-defined]
                    self._ascend(step, where.share, closure)  # type: ignore[attr-defined]
                self._displace(step, where)
            loss = self._call_apart(closure, step) if self._ranks.are_apart else _call(closure, step)
            if step.displaced_by is not None:
                step.restore()
            if self._begin(step, begin, buffers):
                if step.was_sampled:
                    _call(closure, step)
                self._finish(step, loss)
            self._rest(step)
        self._log.tell()
        return loss

    def _step_without_closure(self, scaler: Any) -> None:
        if "found_inf" in self.__dict__:
            self._refuse_foreign_scaler()
        step = self._under_way
        if step is None or step.is_in_closure:
            ordinary = (
                f"Pass it a closure, which it calls once or twice:{CLOSURE_EXAMPLE}\n"
                "In a loop without a closure, call perturb() after backward() and before step(), and not zero_grad() "
                "after perturb(), which clears the gradients by itself: zero_grad() abandons the step."
            )
            raise RuntimeError(f"step() has nothing to step on. {foreign_loop() or ordinary}")
        with step, step:
            if step.scaler is not scaler:
                raise RuntimeError(
                    "perturb() and step() must both go through the scaler, or neither: call scaler.perturb(optimizer) "
                    "and scaler.step(optimizer)."
                )
            if step.last_write is not None and step.last_write.was_changed:
                self._warn_once(
                    "The gradients were changed between the second backward() and step(), so the PSF is a changed gs "
                    "minus an unchanged g. To clip, call optimizer.clip_grad_norm_(max_norm) there, or construct the "
                    "optimizer with max_grad_norm=."
                )
            if step.last_write is not None and 0 < step.last_write.count < self._note.num_backwards:
                self._warn_once(
                    f"The first pass had {self._note.num_backwards} backward passes and the second one "
                    f"{step.last_write.count}, so the PSF also has the difference of their data. After perturb() "
                    f"returns True, repeat all micro-batches, or pass step() a closure:{ACCUMULATION_EXAMPLE}"
                )
            step.trust_weights()
            if step.members.parameters:
                self._look_again(step)
                self._finish(step, None)
            self._hand_over.let_go()  # the next pass starts before the next step
            self._rest(step)
        self._log.tell()

    def _look_again(self, step: Step) -> None:
        """Take gradients that were changed after a `perturb()` that returned False as they are now."""
        if step.seen is not None and not step.seen.is_still(self._parameters.all.parameters):
            step.take_first(*self._parameters.collect(), step.shows_norm)

    def _check_closure(self, closure: Closure) -> None:
        """Refuse what would go wrong silently, and start from a clean state."""
        if "found_inf" in self.__dict__:
            self._refuse_foreign_scaler()
        if not self._was_asked:
            if drops_micro_batches():
                raise RuntimeError(
                    "accelerate calls step(closure) at the last micro-batch only, so the others would be dropped. "
                    f"{foreign_loop('accelerate')}"
                )
            self._was_asked = True
        if not callable(closure):
            raise ValueError(f"closure must be a function, got {type(closure).__name__}. Write:{CLOSURE_EXAMPLE}")
        if self._under_way is not None:
            if self._under_way.is_in_closure:
                raise RuntimeError("step() was called inside the closure of another step(). Call it after that step.")
            self._rollback()
            mark_consumed(self.base)  # the gradients of an abandoned perturb()
        self._refresh()
        is_known = self._hand_over.held.is_still(self._parameters.all.parameters)
        if not is_known and self._hand_over.found_fresh_gradient():
            raise RuntimeError(
                "Gradients were accumulated before step(closure), which clears them: the closure could not repeat "
                f"their micro-batches at the perturbed weights. Loop over them inside:{ACCUMULATION_EXAMPLE}\n"
                "To discard these gradients, call optimizer.zero_grad() first."
            )
        if self._ranks.groups:
            self._ranks.check(self)

    def _decide(self, step: Step) -> None:
        """Draw and decide, if that needs no gradient."""
        for part in self._parts():
            if part.generator is not None:
                step.guard_draws(part.generator)
        if not self.when.decides_after:
            step.wants_sample = self.when.wants_sample(self._history.num_steps + 1)  # type: ignore[attr-defined]

    def _ascend(self, step: Step, share: float, closure: Closure) -> None:
        """Run the pass on a share of the batch, and restore buffers and generators after it."""
        step.way_back += (self._buffers.before_second_pass(), RngState(self._parameters.devices).restore)
        step.is_ascending = True
        try:
            with self._ranks.apart() if self._ranks.are_apart else nullcontext():
                _call(partial(closure, share), step)
        except TypeError as error:
            if takes_share(closure):
                raise
            raise RuntimeError(
                f"The direction comes from a share of the batch, so the closure must take it. Write:{SHARE_EXAMPLE}"
            ) from error
        step.restore()
        step.is_ascending = False
        step.has_ascended = True

    def _displace(self, step: Step, where: Where) -> None:
        """Move the weights for this step's only full pass, along the base optimizer's state or a share's gradient."""
        step.wants_sample = False
        members, state = self._parameters.all, self.base.state
        own = radii(self.param_groups, self.where.rho)
        rhos: list[Any] = [rho if where is self.where or rho is None else where.rho for rho in own]
        weights, directions, chosen, is_unknown = [], [], [], False
        for parameter, i in zip(members.parameters, members.groups, strict=True):
            is_moved = parameter.requires_grad and rhos[i] is not None
            if is_moved and (where.only is None or parameter in self._parameters.norms):
                own_state = state.get(parameter, {})
                direction = where.direction(own_state, parameter.grad)  # type: ignore[attr-defined]
                is_unknown |= direction is None and bool(own_state)
                if direction is not None:
                    weights.append(parameter)
                    directions.append(direction)
                    chosen.append(rhos[i])
        if weights:
            step.displace(where, weights, directions, chosen)
            if self._ranks.units:
                step.way_back.append(partial(shards.reshard, self._ranks.units))
                shards.reshard(self._ranks.units)
        elif step.has_ascended:
            raise RuntimeError(f"closure(share) left no gradient. Call backward() in it:{SHARE_EXAMPLE}")
        elif is_unknown:
            raise RuntimeError(
                f"{type(where).__name__} finds no direction in the state of {type(self.base).__name__}: use SGD with "
                "momentum, Adam or AdamW as the base."
            )
        if step.has_ascended:
            for parameter in members.parameters:
                parameter.grad = None

    def _begin(self, step: Step, begin: RngState | None, start: BufferState | None) -> bool:
        """Take the first gradient; if the step is sampled, perturb the weights. False if there is no gradient.

        The second pass repeats the first one from `begin` and `start`, the generators and buffers before it.
        """
        when, ranks = self.when, self._ranks
        members, gradients = self._collect_apart(step) if step.is_apart else self._parameters.collect()
        if not gradients:
            self._warn_once(
                "No parameter has a gradient, so the step did nothing, as with torch's optimizers. If that is not "
                f"intended, call backward() before perturb(), or in the closure:{CLOSURE_EXAMPLE}"
            )
            return False
        if not step.is_apart:
            step.shows_norm = step.wants_sample is not False or self._needs_norm()
            if step.scaler is not None:
                step.unscale(gradients)
            step.take_first(members, gradients, step.shows_norm)
        if when.decides_after:
            step.wants_sample = when.wants_sample(self._history.num_steps + 1, float(step.grad_norm))  # type: ignore
        if self.where.keeps_memory:
            step.follow(self.where, self._averages)
        if step.wants_sample:
            watched = [] if when.watch == 0 else members.last(when.watch)
            keeps_all = self.between.keeps_memory or self.between.changes_sample
            keeps_all |= self._log.has_listeners and not ranks.communicate
            chosen = self._parameters.norms if self.where.only == "norm" else None
            step.perturb(self.where, radii(self.param_groups, self.where.rho), watched, keeps_all, chosen)
            self._parameters.set_others_aside(step.way_back)
            step.way_back += (self._buffers.before_second_pass(), RngState(self._parameters.devices).restore)
            if begin is not None:
                begin.restore()
            if start is not None and start.places:
                self._buffers.rewind(start)
            if ranks.units:
                step.way_back.append(partial(shards.reshard, ranks.units))
                shards.reshard(ranks.units)
        elif step.is_apart:
            step.average()
        return True

    def _check_first_pass(self, step: Step) -> None:
        """In a loop without a closure, note whether the gradients of the first pass stayed on their rank."""
        was_apart, self._was_apart = self._was_apart, None
        if not self._ranks.are_apart:
            self._ranks.check(self)
        elif was_apart is None and step.wants_sample is not False:
            raise RuntimeError(
                "With sync='rank', the gradients of the first pass must stay on their rank: run its forward and "
                "backward inside `with optimizer.no_sync():`, or pass step() a closure."
            )
        step.is_apart = bool(was_apart)

    def _call_apart(self, closure: Closure, step: Step) -> Any:
        """Run a first pass, whose gradients stay on their rank if the step may be sampled."""
        step.is_apart = step.wants_sample is not False
        if not step.is_apart:
            return _call(closure, step)
        with self._ranks.apart():
            return _call(closure, step)

    def _collect_apart(self, step: Step) -> tuple[Members, list[Tensor]]:
        """Take a first gradient that stayed on its rank, and the norms of the other ranks'."""
        with self._ranks.report_failure():
            members, gradients = self._parameters.collect()
            if step.scaler is not None:
                step.unscale(gradients)
            step.take_first(members, gradients, needs_norm=True)
        needs_same = self._uses_psf or self.when.decides_after
        has_gradient = [parameter.grad is not None for parameter in self._parameters.all.parameters]
        norms = self._ranks.exchange(step.grad_norm if gradients else None, has_gradient, needs_same)
        if norms:
            step.take_norms(self._ranks, norms)
        return members, gradients

    def _needs_norm(self) -> bool:
        """Whether a plain step looks at ‖g‖."""
        listens = self._log.has_listeners and not self._ranks.communicate
        return listens or (self._memory is not None and self.between.uses_norm)

    def _finish(self, step: Step, loss: Any) -> None:
        """Form the base optimizer's gradient and hand it over; only the hand-over cannot be undone."""
        if step.way_back:
            step.restore()
        if step.was_sampled:
            members, gradients = self._parameters.collect()
            if not gradients:
                raise RuntimeError(
                    "No parameter has a gradient. Run forward and backward again after perturb() returns True, or in "
                    f"the closure:{CLOSURE_EXAMPLE}"
                )
            step.take_second(members, gradients)
        unless = step.found_inf() if self.guard and self._may_defer(step) else None
        was_skipped = self.guard and unless is None and not step.is_finite()
        psf_norm = None
        if step.was_sampled and not was_skipped:
            is_joint = self._ranks.communicate
            psf_norm = step.psf_norm(self.between.keeps_memory if is_joint else self._log.has_listeners)
        # If the step fails from here on, memory, counters, log and law are rolled back.
        memory, law, history, log = self._memory, restorer(self.when), self._history.restorer(), self._log.restorer()
        averages = partial(setattr, self, "_averages", self._averages)
        step.guards += (partial(setattr, self, "_memory", memory), averages, law, history, log)
        if not was_skipped:
            self._form_gradient(step, unless)
        self._take_in(step, loss, was_skipped if unless is None else unless.bool(), psf_norm)
        if step.scaler is not None:
            step.scaler.take_overflow(self, step.found_inf())
        if was_skipped:
            mark_consumed(self.base)
            step.outcome.append(None)
        else:
            self._hand_over(step.outcome, step.members.parameters, unless, self._parameters.all.parameters)

    def _form_gradient(self, step: Step, unless: Tensor | None) -> None:
        """Turn the gradients into what the base optimizer gets; pass the sample to the law and the memory."""
        norm = step.sharp_norm if step.was_sampled else step.grad_norm
        if step.was_sampled:
            sample = step.sample(unless)
            if sample is not None:
                self.when.observe(sample)
            if self.between.keeps_memory:
                self._memory = step.remember(self.between, self._memory, unless)
            if self.between.changes_sample:
                step.combine(self.between, self._memory if self.between.keeps_memory else None)
                norm = None
        elif self._memory is not None and (age := self._history.age) is not None:
            known, values = self._memory.of(step.members.parameters)
            is_all = known is step.members.parameters
            reused: list[Any] = step.first if is_all else [parameter.grad for parameter in known]
            self.between.reuse_(reused, values, age + 1, step.grad_norm)  # type: ignore[arg-type]
            norm = None
        if self.where.keeps_memory:
            self._averages = step.keep_averages(self._averages, unless)
        if step.max_grad_norm is not None:
            gradients = step.gradients()
            norm = tensors.norm(gradients) if norm is None else norm
            tensors.multiply_(gradients, (step.max_grad_norm / (norm + 1e-6)).clamp(max=1.0))

    def _may_defer(self, step: Step) -> bool:
        """Whether a fused base can skip the step by itself, which saves a device sync."""
        parameters = step.members.parameters
        return (
            self._hand_over.may_defer(parameters)
            and not tensors.is_on_host(parameters[0])
            and not step.late
            and not self.when.decides_after
            and not self._log.has_listeners
            and (self._memory is None or self._memory.parameters is parameters)
            and not self._parameters.are_sharded
        )

    def _take_in(self, step: Step, loss: Any, was_skipped: bool | Tensor, psf_norm: Tensor | None) -> None:
        """Record the step in the history, the law and the log."""
        history, when = self._history, self.when
        took_two = step.was_sampled or step.has_ascended
        history.add(took_two, was_skipped, is_scaled=step.scaler is not None)
        shows_norm = step.was_sampled or when.decides_after or self._ranks.communicate or step.shows_norm
        rate, details = when.rate, when.details()
        when.advance(history.num_steps, step.was_sampled or step.displaced_by is self.where, was_skipped is True)
        self._log.write(
            step=history.num_steps,
            sampled=took_two,
            skipped=was_skipped,
            loss=loss,
            rate=history.num_samples / history.num_steps if rate is None else rate,
            age=lambda: history.age,
            grad_norm=step.grad_norm if shows_norm else None,
            psf_norm=psf_norm,
            displaced=step.displaced_by is not None,
            **details,
        )

    def _rest(self, step: Step) -> None:
        """End the step."""
        self._note.forget()
        self._pending = None
        if not step.outcome:
            step.undo_draws()
        step.close()

    def _rollback(self) -> None:
        """Undo the step under way."""
        if self._pending is not None:
            self._pending.rollback()
            self._pending = None

    @torch.no_grad()
    def _end_second_pass(self) -> None:
        """Restore the weights before `step()`, for loops in which other code reads them in between."""
        if self._pending is not None:
            self._pending.trust_weights()
            self._pending.restore()

    def _rollback_outside_closures(self) -> None:
        if self._pending is not None and not self._pending.is_in_closure:
            self._rollback()

    def _warn_once(self, message: str) -> None:
        if message not in self._said:
            self._said.add(message)
            warn_caller(message)

    def _refresh(self) -> None:
        """Look at the parameters again if the groups have changed."""
        groups = self.param_groups
        if not self._parameters.are(groups) or self._ranks.model is not self.model:
            self._look_at_model()

    def _look_at_model(self) -> None:
        self._parameters = Parameters(self.param_groups, self.model)
        self._buffers = self._note.buffers = Buffers(self.model)
        self._note.watched = self._parameters.all.parameters
        self._ranks = Ranks(self.model, self._parameters.all.parameters, self.sync)

    def _refuse_foreign_scaler(self) -> None:
        """Torch's own scaler has left its attributes on the optimizer."""
        del self.__dict__["found_inf"], self.__dict__["grad_scale"]
        self._rollback()
        ordinary = (
            "Use vsam.amp.GradScaler, which is otherwise the same, and call scaler.step(optimizer, closure) with "
            "scaler.scale(loss).backward() inside the closure."
        )
        raise RuntimeError(f"torch's GradScaler cannot run the second pass. {foreign_loop() or ordinary}")

    def _parts(self) -> tuple[When, Where, Between]:
        return self.when, self.where, self.between


def _call(closure: Closure, step: Step) -> Any:
    """Run a pass."""
    step.is_in_closure = True
    torch._C._set_grad_enabled(True)
    try:
        return closure()
    finally:
        torch._C._set_grad_enabled(False)
        step.is_in_closure = False
