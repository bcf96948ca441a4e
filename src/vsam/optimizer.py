"""The one class that runs every method: when × where × between around a base optimizer."""

import copy
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, Literal, TypedDict

import torch
from torch import Tensor, nn
from torch._compile import _disable_dynamo
from torch.optim import Optimizer

from vsam import shards, tensors
from vsam.bases import bases_of
from vsam.between import Plain
from vsam.caller import warn_caller
from vsam.engine import Closure, Engine
from vsam.errors import CLOSURE_EXAMPLE, check_base, check_model, check_not_negative, check_part
from vsam.hand_over import HandOver, Written, has_fresh_gradient, mark_consumed
from vsam.history import History
from vsam.lightning_closure import from_lightning
from vsam.loading import check_state
from vsam.mixture import check_mixture
from vsam.parameters import check_chosen, complete_radii, renew_radii
from vsam.parts import Between, KnowsBefore, When, Where
from vsam.published import describe
from vsam.records import Listener, StepLog, StepRecord
from vsam.second_pass import ForwardNote
from vsam.step import Memory, Step
from vsam.when import Always
from vsam.where import GlobalNorm
from vsam.wrapper import itself, with_own_hooks

__all__ = ["Bases", "Options", "SharpnessAware"]

Bases = Optimizer | Sequence[Optimizer]
"""A constructed optimizer, or several over disjoint parameters."""


class Options(TypedDict, total=False):
    """What every method takes besides its own settings, as `SharpnessAware` explains."""

    max_grad_norm: float | None
    guard: bool
    sync: Literal["global", "rank"]


_LIVE: weakref.WeakKeyDictionary[nn.Module, weakref.WeakSet["SharpnessAware"]] = weakref.WeakKeyDictionary()
"""The optimizers of each model, to notice two of them over different parameters."""


class SharpnessAware(Engine):
    """Run a base optimizer on sharpness-aware gradients.

    At a sampled step the gradient is taken a second time at `w + e`, the weights are restored bit for bit, and the base
    optimizer gets the second gradient; at other steps it gets what `between` makes of the first.

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
        guard: whether to skip steps whose gradient is not finite. False saves the device sync of that check, and such
            a gradient reaches the weights.
        sync: with several processes, "global" perturbs along the averaged gradient, "rank" along each rank's own
            (m-sharpness); decisions, PSF and skips are the same on all ranks either way.

    Groups may set `rho` (changeable while training) and `perturb=False` (left out of the perturbation and its norm).
    Each optimizer works on its own copy of the parts.

    Cost: one pass per step, plus one per sample. A transient copy of the weights at a sample. If `between` keeps a
    memory, one parameter-sized buffer, plus the old one during an update, in case the step fails or is skipped.

    Example:
        >>> model = nn.Linear(2, 1)
        >>> base = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> optimizer = SharpnessAware(base, model=model, when=Always(), where=GlobalNorm(0.05), between=Plain())
    """

    entry = "sharpness"

    # Makes torch's own GradScaler pass its closure to `step`, which can say what to do instead of failing an assertion.
    _step_supports_amp_scaling = True

    _settings: tuple[str, ...] = ()
    """Attributes of a subclass that copies and pickles must keep."""

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
        for one in base if isinstance(base, list | tuple) else [base]:
            if isinstance(one, SharpnessAware):
                raise ValueError(f"base must be an ordinary optimizer, got {type(one).__name__}: methods do not nest.")
        self.base, self.model = check_base(base), model
        shards.reshard(shards.units(model))
        check_model(model, self.base)
        for slot, part in (("when", when), ("where", where), ("between", between)):
            check_part(slot, part)
        check_chosen(where, model, self.base.param_groups)
        self.when = Always() if when is None else copy.deepcopy(when)
        self.where = GlobalNorm() if where is None else copy.deepcopy(where)
        self.between = Plain() if between is None else copy.deepcopy(between)
        check_mixture(self.when, self.where, self.between, self.base.param_groups)
        check_chosen(self.between.where, model, self.base.param_groups)
        self.max_grad_norm = _limit("max_grad_norm", max_grad_norm)
        self.guard = bool(guard)
        if sync not in ("global", "rank"):
            raise ValueError(f"sync must be 'global' or 'rank', got {sync!r}.")
        if sync == "rank" and self.where.keeps_memory:
            raise ValueError(
                f"sync='rank' gives each rank its own first gradient, so the average that {type(self.where).__name__} "
                "keeps would differ between ranks: leave out sync=."
            )
        self.sync = sync
        self._note = ForwardNote()
        self._memory = self._averages = None
        self._history = History()
        self.__setstate__({})
        renew_radii(self.base, self.where.rho)
        if model is not None:
            weakref.finalize(self, model.register_forward_pre_hook(self._note).remove)
            weakref.finalize(self, self._note.forget)
            self._notice_others(model)

    @property
    def num_samples(self) -> int:
        """How many second gradients have been taken."""
        return self._history.num_samples

    @property
    def num_skipped(self) -> int:
        """How many steps were skipped because a gradient was not finite."""
        return self._history.num_skipped

    @property
    def price(self) -> float | None:
        """Passes per step so far; None before the first step."""
        steps = self._history.num_steps
        return 1 + self._sample_cost * self._history.num_samples / steps if steps else None

    @property
    def expected_price(self) -> float | None:
        """Passes per step over the whole run, as the settings promise; None if not known in advance."""
        rate = self.when.expected_rate if self._sample_cost else 0.0
        return None if rate is None else 1 + self._sample_cost * rate

    @property
    def _sample_cost(self) -> float:
        """Passes that a sample adds."""
        return self.where.share if isinstance(self.where, KnowsBefore) else 1.0

    @property
    def last(self) -> StepRecord | None:
        """The record of the latest step; reading it fetches its numbers from the device."""
        return self._log.last

    @property
    def will_sample(self) -> bool | None:
        """Whether the step under way, or else the next one, takes the second gradient; None if its gradient decides."""
        if self._under_way is not None:
            return self._under_way.wants_sample
        trial = Step()
        self._decide(trial)
        trial.undo_draws()
        return trial.wants_sample and self._sample_cost > 0

    @property
    def is_second_pass(self) -> bool:
        """Whether the second pass is running, so that logs and metrics can leave it out."""
        step = self._pending
        return step is not None and (step.is_ascending or step.was_sampled) and bool(step.way_back)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with the record of every step from now on; returns a function that unsubscribes it."""
        return self._log.subscribe(listener)

    def describe(self) -> str:
        """In plain words: what this combination does, what it costs, and whether it was published."""
        return describe(self.when, self.where, self.between, self.base)

    def __repr__(self) -> str:
        parts = "".join(f"  {name}={getattr(self, name)!r},\n" for name in ("when", "where", "between"))
        return f"{type(self).__name__}(\n{parts}  base={self.base!r}\n)"

    @with_own_hooks
    def step(self, closure: Closure | None = None, *, scaler: Any = None) -> Any:
        """Take one step; returns the loss of the first pass.

        Args:
            closure: computes the loss at the current weights, calls `backward` and returns the loss. It is called
                once, or twice at a sampled step. Leave it out after `perturb()`.
            scaler: what scaled the loss; `vsam.amp.GradScaler` passes itself.
        """
        if type(closure) is partial:
            closure = from_lightning(closure)
        return self._step_without_closure(scaler) if closure is None else self._step(closure, scaler)

    @_disable_dynamo
    @torch.no_grad()
    def perturb(self, *, scaler: Any = None) -> bool:
        """After the first backward pass, in a loop without a closure: perturb the weights if this step is sampled.

        If it returns True, run forward and backward again on the same batch. Call `step()` either way.
        """
        self = itself(self)
        if self.where.knows_before or self.between.where is not None:
            raise RuntimeError(
                "This method takes the only gradient of a step at w + e, and after backward() it is too late to "
                f"perturb: pass step() a closure:{CLOSURE_EXAMPLE}"
            )
        if self._under_way is not None and self._under_way.is_in_closure:
            raise RuntimeError(
                "perturb() was called inside the closure of step(), which perturbs the weights and calls the closure "
                "again by itself: leave out perturb(), or call step() without a closure."
            )
        if self.is_second_pass:
            warn_caller(
                "perturb() was called again without step(), so the gradients may have been taken at the perturbed "
                "weights. Call step() after the second backward, or optimizer.zero_grad() to abandon a step."
            )
        if self._uses_psf and self._note.first_write is not None and self._note.first_write.was_changed:
            self._warn_once(
                "The gradients were changed between backward() and perturb(), so the PSF is gs minus a changed g. To "
                "clip, call optimizer.clip_grad_norm_(max_norm) after the second backward(), or construct the "
                "optimizer with max_grad_norm=."
            )
        self._rollback()
        self._refresh()
        self._parameters.clear_frozen()
        step = self._pending = Step(scaler, self.max_grad_norm, self.guard)
        with step, step:
            step.guards.append(self._note.mark_stale)
            self._decide(step)
            if self._ranks.groups:
                self._check_first_pass(step)
            is_second = self._begin(step, self._note.rng, self._note.start) and step.was_sampled
            if not is_second and not step.is_apart:
                step.seen = Written(self._parameters.all.parameters)
            if is_second:
                step.watch_weights()
                step.way_back.append(weakref.finalize(self, step.rollback).detach)
                step.last_write = self._note.watch_second(step.members.parameters[0], step.way_back)
            if is_second and self.model is not None:
                if not self._note.was_called:
                    self._warn_once(
                        "No forward pass of model was seen, so the second pass cannot repeat the first one's dropout. "
                        "Pass the module that you call as model=."
                    )
                self._note.watch(self.model, partial(_abandon, weakref.ref(self), step), step.way_back)
        return step.was_sampled

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """With `sync="rank"` in a loop without a closure: the context of the first forward and backward pass.

        If the step may be sampled, DDP leaves the gradients on their rank; otherwise nothing changes.
        """
        self = itself(self)
        self._rollback_outside_closures()
        self._refresh()
        if self._ranks.are_apart:
            self._ranks.check(self)
        self._was_apart = self._ranks.are_apart and self.will_sample is not False
        with self._ranks.apart() if self._was_apart else nullcontext():
            yield

    def clip_grad_norm_(self, max_norm: float) -> Tensor:
        """Clip the gradient that the base optimizer gets in the step under way to a norm of at most `max_norm`.

        For loops without a closure, between `perturb()` and `step()`; otherwise set `max_grad_norm` on the optimizer.
        Clipping by hand there would make PSF = clipped gs − unclipped g. The smaller of `max_norm` and the optimizer's
        own `max_grad_norm` applies; infinity clips nothing. Returns the norm of the current gradients, unscaled.
        """
        self = itself(self)
        if self._under_way is None:
            raise RuntimeError(
                "clip_grad_norm_() belongs between perturb() and step(): call optimizer.perturb(), run the second pass "
                "if it returned True, then call optimizer.clip_grad_norm_(max_norm) and optimizer.step()."
            )
        step = self._under_way
        limits = [limit for limit in (_limit("max_norm", max_norm), step.max_grad_norm) if limit is not None]
        step.max_grad_norm = min(limits, default=None)
        with torch.no_grad():
            norm = tensors.norm(self._parameters.with_gradient().gradients())
            is_scaled = step.scaler is not None and (step.was_sampled or step.is_in_closure)
            return norm * step.scaler.inverse_scale() if is_scaled else norm

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients; between `perturb()` and `step()`, restore the weights first."""
        self = itself(self)
        self._rollback_outside_closures()
        self._note.mark_stale()
        self.base.zero_grad(set_to_none)
        self._hand_over.drop()
        if not set_to_none:
            mark_consumed(self.base)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group to the base optimizer; it gets the method's `rho` unless it sets its own."""
        check_not_negative("rho", param_group.get("rho", self.where.rho))
        was_fresh = has_fresh_gradient(self.base)
        self.base.add_param_group(param_group)
        if not was_fresh:  # the new parameters' gradients are left over from earlier steps
            mark_consumed(self.base)
        complete_radii(self.param_groups, self.where.rho)

    def _save(self) -> dict[str, Any]:
        self._rollback_outside_closures()
        self._refresh()
        parameters = self._parameters.all.parameters
        averages = {"averages": _saved(self._averages, parameters)} if self.where.keeps_memory else {}
        return {
            "parts": [type(part).__name__ for part in self._parts()],
            "states": [part.state_dict() for part in self._parts()],
            "memory": _saved(self._memory, parameters),
            **averages,
            **self._history.state_dict(),
        }

    def _check(self, state_dict: dict[str, Any]) -> Callable[[], None]:
        self._rollback()
        self._refresh()
        parts, parameters = copy.deepcopy(self._parts()), self._parameters.all.parameters
        history, memory, averages = check_state(state_dict, self.entry, parts, parameters)

        def load() -> None:
            complete_radii(self.param_groups, self.where.rho)
            self.when, self.where, self.between = parts
            self._memory, self._averages = _loaded(memory, parameters), _loaded(averages, parameters)
            self._history = history
            self._hand_over.forget()
            self._log.forget()

        return load

    def __getstate__(self) -> dict[str, Any]:
        self._rollback_outside_closures()
        names = ("base", "model", "when", "where", "between", "max_grad_norm", "guard", "sync", *self._settings)
        return {name: self.__dict__[name] for name in (*names, "_note", "_memory", "_averages", "_history")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Transient state, neither copied nor saved.
        self._log = StepLog()
        self._pending = self._was_apart = None
        self._said = set()
        super().__setstate__(state)  # sets up torch's hooks, but no groups of our own
        self._hand_over = HandOver(bases_of(self.base))
        self._look_at_model()
        mark_consumed(self.base)

    def _notice_others(self, model: nn.Module) -> None:
        others = _LIVE.setdefault(model, weakref.WeakSet())
        own = set(self._parameters.all.parameters)
        for other in others:
            other._rollback_outside_closures()  # an interrupted perturb(), in a notebook that starts over
        if any(own.isdisjoint(other._parameters.all.parameters) for other in others):
            warn_caller(
                "model has another sharpness-aware optimizer over other parameters. Each would perturb its own part at "
                "its own steps, and run passes at the other's perturbed weights: pass one optimizer the list of bases, "
                f"{type(self).__name__}([base, other_base], model=model)."
            )
        others.add(self)


def _abandon(owner: "weakref.ref[SharpnessAware]", step: Step) -> None:
    """Roll back an abandoned step, if it is still under way."""
    optimizer = owner()
    if optimizer is not None and optimizer._pending is step:
        optimizer._rollback()


def _saved(memory: Memory | None, parameters: list[Tensor]) -> dict[int, Tensor]:
    """The memory by parameter index."""
    known = dict(zip(*memory.of(parameters), strict=True)) if memory is not None else {}
    return {i: known[parameter].clone() for i, parameter in enumerate(parameters) if parameter in known}


def _loaded(memory: dict[int, Tensor], parameters: list[Tensor]) -> Memory | None:
    """The inverse of `_saved`."""
    return Memory([parameters[i] for i in memory], list(memory.values())) if memory else None


def _limit(name: str, value: float | None) -> float | None:
    """An upper bound on a norm; infinity, often passed just to measure the norm, means none."""
    return None if value is None or value == float("inf") else check_not_negative(name, value)
