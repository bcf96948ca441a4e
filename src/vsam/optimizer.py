"""SharpnessAware: a step of every method is one generator, `_sequence`, which `step(closure)` and `perturb()` drive."""

import copy
import weakref
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, nullcontext
from functools import partial
from typing import Any, Literal

import torch
from torch import nn
from torch._compile import _disable_dynamo

from vsam._step import foreach, misuse
from vsam._step.gradients import PSF, Gradient
from vsam._step.misuse import SHARE_EXAMPLE
from vsam._step.replay import RngState, Start, repeat
from vsam._step.undo import Step, Undo, has_fresh_gradient, mark_used, restorer, rewinder, with_own_hooks
from vsam.between import Plain
from vsam.checks import check_part, check_switch
from vsam.parts import Between, When, Where
from vsam.when import Always
from vsam.where import GlobalNorm
from vsam.wrapper import Bases, Options, Wrapper, itself, norm_limit

__all__ = ["Bases", "Closure", "Options", "SharpnessAware"]

Closure = Callable[..., Any]
"""Computes a loss and calls `backward`. It takes a fraction of the batch as its argument if a part needs that."""


class SharpnessAware(Wrapper):
    """Run a base optimizer on sharpness-aware gradients.

    At a sampled step the gradient is taken a second time at `w + e`, the weights are restored bit for bit, and the base
    optimizer gets the second gradient. At other steps it gets what `between` makes of the first.

    Args:
        base: a constructed optimizer. Its `param_groups` and `state` are shared, so schedulers and hooks just work. A
            list of optimizers over disjoint parameters shares one perturbation and one decision, and each steps.
        model: the network, so that its buffers (BatchNorm's statistics, say) ignore the second pass, and loops without
            a closure repeat the same dropout masks.
        when: decides which steps are sampled. Default: all of them.
        where: decides at which point. Default: `GlobalNorm(0.05)`.
        between: decides what happens at the other steps. Default: the plain gradient.
        max_grad_norm: clips the gradient that the base optimizer gets, never the direction of the perturbation, nor
            the PSF. Default: no clipping.
        guard: skip steps whose gradient is not finite. False saves the device sync of that check, and such a gradient
            reaches the weights.
        sync: with several processes, "global" perturbs along the averaged gradient, "rank" along each rank's own
            (m-sharpness). Decisions, PSF and skips are the same on all ranks either way.

    Groups may set `rho` (changeable while training) and `perturb=False` (left out of the perturbation and its norm).
    Each optimizer works on its own copy of the parts.

    Cost: one pass per step, plus one per sample. A transient copy of the weights at a sample. If `between` remembers
    the PSF, one parameter-sized buffer, plus the old one during an update, in case the step fails or is skipped.

    Example:
        >>> model = nn.Linear(2, 1)
        >>> base = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> optimizer = SharpnessAware(base, model=model, when=Always(), where=GlobalNorm(0.05), between=Plain())
    """

    def __init__(
        self,
        base: Bases,
        *,
        model: nn.Module | None = None,
        when: When | None = None,
        where: Where | None = None,
        between: Between | None = None,
        max_grad_norm: float | None = None,
        guard: bool = True,
        sync: Literal["global", "rank"] = "global",
    ) -> None:
        for slot, part in (("when", when), ("where", where), ("between", between)):
            check_part(slot, part)
        self.when = Always() if when is None else copy.deepcopy(when)
        self.where = GlobalNorm() if where is None else copy.deepcopy(where)
        self.between = Plain() if between is None else copy.deepcopy(between)
        self.max_grad_norm, self.guard = norm_limit("max_grad_norm", max_grad_norm), check_switch("guard", guard)
        self._wrap(base, model, sync)

    def _sequence(self, step: Step) -> Generator[str, None, None]:
        """Take one step: yield whenever somebody has to run forward and backward. Closing it undoes the step."""
        gradients, psf = self._gradients, None
        with step:
            step.sampled = self._decide(step)  # True, False, or None: ‖g‖ decides
            with step.moved():
                yield from self._move_ahead(step)  # nothing, except for MSAM and PartOfBatch
                yield "first"  # g = ∇L(w)
            g = self._take_first(step)
            if g is None:  # the base steps on nothing, for its hooks
                yield "nothing"
                step.back(step.depth - 1)  # the draw
                step.commit(self._stepper.step, [], None)
                return
            if step.sampled is None:
                step.sampled, step.decided_late = self.when.after(self._records.num_steps + 1, float(g.norm)), True
            averages = self._averages.of(g.members.parameters)
            remembered = self.where.remember(g.tensors, averages)
            if step.sampled:
                psf = g.copy(self.when.watch, self.between.uses_psf or self._shows_norms)
                with step.moved():
                    gradients.perturb(self.where, g, averages, step)  # w + ρ g/‖g‖, and w again at the end
                    repeat(step.start, self._recorder.buffers, gradients.parameters.devices, step)
                    yield "second"  # gs = ∇L(w + e)
                yield "nothing"
                gradient = gradients.take_second(g, psf, step.scaler)  # psf = gs − g
            else:
                gradient = g = g.averaged()
                yield "nothing"  # a loop may change the gradients here
                if step.was_changed:
                    gradient = g = gradients.take() or g
            if self._is_skipped(step, g, gradient):
                self._record(step, g, None, is_skipped=True)
                step.commit(self._stepper.skip)
                return
            self._record(step, g, psf)
            if step.sampled:
                self._memory = self._memory.after_sample(self.between, g, gradient, psf, step.is_finite)
            else:
                self._memory.reuse(self.between, g, self._records)
            self._averages = self._averages.updated(g.members.parameters, remembered, step.is_finite)
            gradient.clip_(step.max_grad_norm)
            step.commit(self._stepper.step, gradient.members.parameters, step.found_inf if step.defers else None)

    def _decide(self, step: Undo) -> bool | None:
        """Ask the rule about the next step. An undo gives back what it draws."""
        step.push(rewinder([part.generator for part in self._parts() if part.generator is not None]))
        return self.when.before(self._records.num_steps + 1)

    def _move_ahead(self, step: Step) -> Iterator[str]:
        """Move the weights before the only pass, along the base's momentum or the gradient of a part of the batch."""
        part = (self.where if step.sampled else self.between).ahead()
        if step.sampled is None and self.where.ahead() is not None:
            raise RuntimeError(f"{self.when!r} left the decision open, but {self.where!r} must know before the pass.")
        if part is None:
            return
        step.sampled, step.share = False, part.share
        if part.share:
            with step.moved():
                repeat(Start(), self._recorder.buffers, self._gradients.parameters.devices, step)
                yield "part"
        norm = self._gradients.displace(part, None if part is self.where else part.rho, step)
        if part.share:
            if norm is None:
                raise RuntimeError(f"closure(share) left no gradient. Call backward() in it:{SHARE_EXAMPLE}")
            step.norms.append(norm)
            self._gradients.clear()
        step.is_displaced, step.is_displaced_sample = norm is not None, norm is not None and part is self.where

    def _take_first(self, step: Step) -> Gradient | None:
        if step.is_per_rank:
            g = self._ranks.take(self._gradients, step.scaler, self._uses_psf or step.sampled is None)
        else:
            g = self._gradients.take(step.scaler)
        if g is None:
            self._watch.warn_of_no_gradient()
        return g

    def _is_skipped(self, step: Step, g: Gradient, gradient: Gradient) -> bool:
        """Return whether a gradient is not finite. A fused base may decide that on the device, without a sync."""
        if not self.guard and step.scaler is None:
            return False
        step.norms += [g.finiteness] if gradient is g else [g.norm, gradient.finiteness]
        parameters = gradient.members.parameters
        step.defers = (
            self.guard
            and self._stepper.may_defer(parameters)
            and gradient.members is g.members
            and not (step.decided_late or self._records.listeners or self._gradients.parameters.are_sharded)
            and (not self._memory.values or self._memory.parameters is parameters)
        )
        if step.defers or step.scaler is not None:
            step.found_inf = foreach.found_inf(step.norms)
        return self.guard and not step.defers and not foreach.are_finite(step.norms)

    def _record(self, step: Step, g: Gradient, psf: PSF | None, is_skipped: bool = False) -> None:
        """Tell the rule and the listeners. From here on, an undo also restores rule, counters and memory."""
        memories = partial(self.__dict__.update, _memory=self._memory, _averages=self._averages)
        step.push(restorer(self.when), restorer(self._records), memories)
        communicates, psf_norm = self._ranks.communicate, None
        if psf is not None:
            psf_norm = psf.norm(self.between.uses_psf if communicates else bool(self._records.listeners))
            if psf.grad_norm is not None:
                norm = psf.watched_norm if step.is_finite is None else psf.watched_norm / step.is_finite
                self.when.observe(norm, psf.grad_norm)
        shows_norm = step.sampled or step.decided_late or communicates or self._shows_norms
        self._records.add(step, self.when, g.norm if shows_norm else None, psf_norm, is_skipped)

    @property
    def _shows_norms(self) -> bool:
        """True if norms are computed for listeners. False if that needs communication."""
        return bool(self._records.listeners) and not self._ranks.communicate

    @property
    def _uses_psf(self) -> bool:
        return self.between.uses_psf or self.when.watch != 0

    @with_own_hooks
    def step(self, closure: Closure | None = None, *, scaler: Any = None) -> Any:
        """Take one step. Return the loss of the first pass.

        Args:
            closure: computes the loss at the current weights, calls `backward` and returns the loss. It is called
                once, or twice at a sampled step. Leave it out after `perturb()`.
            scaler: what scaled the loss; `vsam.amp.GradScaler` passes itself.
        """
        if type(closure) is partial:
            closure = misuse.adapted(closure, self)
        return self._finish(scaler) if closure is None else self._run(self._as_closure(closure, scaler), scaler)

    def _as_closure(self, closure: Closure, scaler: Any) -> Closure:
        """Return the function that runs a pass."""
        return closure

    def _begin(self, step: Step) -> Generator[str, None, None]:
        # By a proxy, so that deleting the optimizer closes the generator, which restores the weights.
        self._step, self._running = step, type(self)._sequence(weakref.proxy(self), step)
        return self._running

    def _run(self, closure: Closure, scaler: Any) -> Any:
        """Take a step with a closure."""
        self._check_closure(closure)
        buffers = self._recorder.buffers.state()
        start = self._recorder.start = Start(RngState(self._gradients.parameters.devices), buffers)
        self._recorder.is_stale = False  # the forward pass need not record another start
        step = Step(scaler, self.max_grad_norm, start)
        running = self._begin(step)
        with closing(running), step, step:  # twice: Ctrl-C may arrive in the undo
            assert start.rng is not None
            # Gradients left behind by a failed pass do not count as accumulated.
            step.push(partial(mark_used, self.base), buffers.restore, start.rng.restore, self._recorder.mark_stale)
            self._gradients.clear()
            for step.due in running:
                if step.due != "nothing":
                    self._run_pass(closure, step)
        return self._end(step)

    def _run_pass(self, closure: Closure, step: Step) -> None:
        is_part = step.due == "part"
        is_per_rank = self._ranks.per_rank and (is_part or (step.due == "first" and step.sampled is not False))
        step.is_per_rank |= is_per_rank and not is_part
        step.is_in_closure = True
        torch._C._set_grad_enabled(True)
        watch = self._watch.closure(step) if self._uses_psf and step.sampled is not False else nullcontext()
        try:
            with watch, self._ranks.per_rank_pass() if is_per_rank else nullcontext():
                loss = closure(step.share) if is_part else closure()
        except TypeError as error:
            if is_part:
                misuse.refuse_closure_without_share(error, closure)
            raise
        finally:
            torch._C._set_grad_enabled(False)
            step.is_in_closure = False
        if step.due == "first":
            step.loss = loss
        elif step.due == "second":
            step.second_loss = loss

    @_disable_dynamo
    @torch.no_grad()
    def perturb(self, *, scaler: Any = None) -> bool:
        """After the first backward pass, in a loop without a closure: perturb the weights if this step is sampled.

        If it returns True, run forward and backward again on the same batch. Call `step()` either way.
        """
        self = itself(self)
        misuse.check_perturb(self)
        if self._uses_psf:
            self._watch.check_first_pass()
        self._abandon()
        self._refresh()
        self._gradients.clear_frozen()
        step = Step(scaler, self.max_grad_norm, self._recorder.start)
        running = self._begin(step)
        with step, step:
            step.push(self._recorder.mark_stale)
            step.due = next(running)  # decides; the first pass has run
            step.is_per_rank = self._ranks.was_first_pass_per_rank(self, step.sampled)
            step.due = next(running)
            if step.due == "second":
                abandon = partial(_abandon, weakref.ref(self), step)
                self._watch.begin_second_pass(self.model, self._recorder, abandon, step)
            else:
                self._watch.begin_wait()
        return step.due == "second"

    def _finish(self, scaler: Any) -> Any:
        """Take the rest of a step after `perturb()`."""
        step, running = self._under_way, self._running
        if step is None or step.is_in_closure or running is None:
            return misuse.refuse_empty_step()
        with closing(running), step, step:
            misuse.check_scaler(step, scaler)
            if step.sampled:
                self._watch.check_second_pass(self._uses_psf)
            else:
                step.was_changed = self._watch.were_gradients_changed()
            for step.due in running:
                pass
        self._await_first_pass()
        return self._end(step)

    def _end(self, step: Step) -> Any:
        self._recorder.forget()
        self._step = self._running = None
        if step.scaler is not None and step.found_inf is not None:
            step.scaler.take_overflow(self, step.found_inf)
        if step.was_recorded:
            self._records.publish()
        return step.loss

    @torch.no_grad()
    def _end_second_pass(self) -> None:
        """Restore the weights before `step()`, for loops in which other code reads them in between."""
        if self._step is not None and self._running is not None and self.is_second_pass:
            self._step.due = next(self._running)

    def _abandon(self) -> None:
        """Undo the step under way, except from inside its own closure."""
        step = self._step
        if step is not None and not (step.is_in_closure or step.is_committing):
            was_written = not step.is_over and self._watch.were_weights_written()
            step.back()
            self._step = self._running = None
            if was_written:
                self._watch.warn_of_written_weights()

    @property
    def _under_way(self) -> Step | None:
        """The step under way, unless it was interrupted."""
        return None if self._step is None or self._step.is_over else self._step

    def _refresh(self) -> None:
        """List the parameters anew if the groups have changed."""
        if not self._gradients.are_current(self.model):
            self._look_at_model()

    def _parts(self) -> tuple[When, Where, Between]:
        return self.when, self.where, self.between

    def _check_closure(self, closure: Closure) -> None:
        """Start from a clean state, and refuse what would go wrong silently."""
        if not callable(closure) or not self._has_stepped or self._step is not None:
            misuse.check_closure(self, closure)
            self._has_stepped = True
        if self._under_way is not None:
            self._abandon()
            mark_used(self.base)  # the gradients of an abandoned perturb()
        self._refresh()
        if has_fresh_gradient(self.base):
            misuse.refuse_accumulated()
        if self._ranks.groups:
            self._ranks.check(self)


def _abandon(owner: "weakref.ref[SharpnessAware]", step: Step) -> None:
    """Undo a step, if it is still under way."""
    optimizer = owner()
    if optimizer is not None and optimizer._step is step:
        optimizer._abandon()
