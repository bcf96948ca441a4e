"""Look like the base optimizer: share its groups, state and hooks, and save one extra entry."""

import weakref
from abc import abstractmethod
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, Self, TypedDict

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from vsam._step import misuse
from vsam._step.gradients import Gradients, Memory
from vsam._step.loop_watch import LoopWatch
from vsam._step.misuse import COMING_FROM, LOOP_EXAMPLE, warn_caller
from vsam._step.parameters import check_chosen, complete_radii, own_rho, renew_radii
from vsam._step.records import Listener, Records, StepRecord
from vsam._step.replay import Buffers, FirstPassRecorder
from vsam._step.state import check_state, save
from vsam._step.undo import BaseStepper, Restorer, Step, Undo, leftovers_used, mark_used
from vsam.bases import bases_of, keep_bases
from vsam.checks import check_base, check_model, check_not_negative, check_sync
from vsam.distributed import shards
from vsam.distributed.ranks import Ranks
from vsam.parts import Between, When, Where
from vsam.registry import check_mixture, describe

__all__ = ["Bases", "Options", "Wrapper", "itself", "norm_limit"]

Bases = Optimizer | Sequence[Optimizer]
"""A constructed optimizer, or several over disjoint parameters."""


class Options(TypedDict, total=False):
    """Settings that every method takes besides its own, as `SharpnessAware` explains."""

    max_grad_norm: float | None
    guard: bool
    sync: Literal["global", "rank"]


def norm_limit(name: str, value: float | None) -> float | None:
    """Check an upper bound on a norm. Infinity, often passed just to measure the norm, means none."""
    return None if value is None or value == float("inf") else check_not_negative(name, value)


def itself(optimizer: Any) -> Any:
    """Return the optimizer itself, also if given a proxy that borrows its class.

    Such a proxy reads the optimizer's attributes, but what is set on it never reaches the optimizer.
    """
    return optimizer.__dict__.get("_optimizer", optimizer)


class Wrapper(Optimizer):
    """Everything about an optimizer around another one that is not the step."""

    base: Optimizer
    model: nn.Module | None
    when: When
    where: Where
    between: Between
    max_grad_norm: float | None
    guard: bool
    sync: Literal["global", "rank"]

    entry = "sharpness"
    """The name of the extra entry."""

    # Makes torch's own GradScaler pass its closure to `step`, which can say what to do instead of failing an assertion.
    _step_supports_amp_scaling = True

    _memory: Memory
    _averages: Memory
    _recorder: FirstPassRecorder

    _settings: tuple[str, ...] = ()
    """Attributes of a subclass that copies and pickles must keep."""

    def __new__(cls, *given: Any, **named: Any) -> Self:
        """Check the arguments before Python binds them, to show what to write in place of another package's call."""
        misuse.check_call(cls, given, named)
        return super().__new__(cls)

    def _wrap(self, base: Bases, model: nn.Module | None, sync: Literal["global", "rank"]) -> None:
        """Check that base, model and parts fit together, and get ready for the first step."""
        checked = check_base(base)
        if nested := next((one for one in bases_of(checked) if isinstance(one, Wrapper)), None):
            raise ValueError(f"base must be an ordinary optimizer, got {type(nested).__name__}: methods do not nest.")
        check_model(model, checked)
        check_mixture(self.when, self.where, self.between, checked.param_groups)
        for part in (self.where, self.between.ahead()):
            check_chosen(part, model, checked.param_groups)
        check_sync(sync, self.where)
        shards.reshard(shards.units(model))
        empty = {"_memory": Memory([], []), "_averages": Memory([], []), "_recorder": FirstPassRecorder()}
        self.__setstate__({**vars(self), **empty, "base": checked, "model": model, "sync": sync, "_counters": {}})
        renew_radii(checked, self.where.rho)
        if model is not None:
            weakref.finalize(self, model.register_forward_pre_hook(self._recorder, with_kwargs=True).remove)
            weakref.finalize(self, self._recorder.forget)
            misuse.notice_others(self, model)

    def set_total_steps(self, total_steps: int) -> None:
        """Set the length of the run, for rules that depend on it and were given none. Integrations call it."""
        itself(self).when.set_total_steps(total_steps)

    def hide_second_pass(self, save: Callable[[], Restorer]) -> None:
        """Call `save` before each second pass, and the function that it returns after it. Integrations call it.

        For what a second pass must leave alone besides the model's buffers, such as metrics.
        """
        self = itself(self)
        self._recorder.save_others = save
        self._look_at_model()

    @property
    def num_samples(self) -> int:
        """The number of second gradients taken."""
        return self._records.num_samples

    @property
    def num_skipped(self) -> int:
        """The number of steps skipped because a gradient was not finite."""
        return self._records.num_skipped

    @property
    def cost(self) -> float | None:
        """Passes per step so far. None before the first step."""
        steps = self._records.num_steps
        return 1 + self.where.passes * self._records.num_samples / steps if steps else None

    @property
    def expected_cost(self) -> float | None:
        """Passes per step over the whole run, as the settings promise. None if not known in advance."""
        rate = self.when.expected_rate if self.where.passes else 0.0
        return None if rate is None else 1 + self.where.passes * rate

    @property
    def last(self) -> StepRecord | None:
        """The record of the latest step. Reading it fetches its numbers from the device."""
        return self._records.last

    @property
    def will_sample(self) -> bool | None:
        """True if the step under way, or else the next one, takes the second gradient. None if its gradient decides."""
        if self._under_way is not None:
            return self._under_way.sampled
        undo = Undo()
        sampled: bool | None = self._decide(undo)
        undo.back()
        return sampled and self.where.passes > 0

    @property
    def is_second_pass(self) -> bool:
        """True during the second pass, so that logs and metrics can leave it out."""
        return self._under_way is not None and self._under_way.due in ("part", "second")

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with the record of every step from now on. Return a function that unsubscribes it."""
        return self._records.subscribe(listener)

    def describe(self) -> str:
        """Say in plain words what this combination does, what it costs, and whether it was published."""
        return describe(self.when, self.where, self.between, self.base)

    def __repr__(self) -> str:
        parts = "".join(f"  {name}={getattr(self, name)!r},\n" for name in ("when", "where", "between"))
        return f"{type(self).__name__}(\n{parts}  base={self.base!r}\n)"

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The base optimizer's own groups."""
        return self.base.param_groups

    @param_groups.setter
    def param_groups(self, groups: list[dict[str, Any]]) -> None:
        with leftovers_used(self.base):
            self.base.param_groups = groups

    @property
    def state(self) -> Any:
        """The base optimizer's own state."""
        return self.base.state

    @state.setter
    def state(self, state: Any) -> None:
        self.base.state = state

    @property
    def defaults(self) -> dict[str, Any]:
        """The base optimizer's own defaults."""
        base = itself(self).__dict__.get("base")
        return {} if base is None else base.defaults

    @defaults.setter
    def defaults(self, defaults: dict[str, Any]) -> None:
        self.base.defaults = defaults

    @property
    def found_inf(self) -> Any:
        """Unset. Torch's own scaler sets it before it calls `step`, which raises an error."""
        raise AttributeError("found_inf")

    @found_inf.setter
    def found_inf(self, value: Tensor) -> None:
        itself(self)._abandon()
        misuse.refuse_foreign_scaler()

    def __getattr__(self, name: str) -> Any:
        """Pass on attributes that only the base optimizer has, such as `train` and `eval` of a schedule-free one."""
        if name in ("first_step", "second_step"):
            raise AttributeError(f"{type(self).__name__} has no {name}(). Write:{LOOP_EXAMPLE}\n{COMING_FROM}")
        base = self.__dict__.get("base")
        if base is None or name.startswith("_") or not hasattr(base, name):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(base, name)

    def no_sync(self) -> AbstractContextManager[None]:
        """With `sync="rank"` in a loop without a closure: the context of the first forward and backward pass.

        If the step may be sampled, DDP leaves the gradients on their rank. Otherwise nothing changes.
        """
        self = itself(self)
        self._abandon()
        self._refresh()
        return self._ranks.first_pass(self)

    def clip_grad_norm_(self, max_norm: float) -> Tensor:
        """Clip the gradient that the base optimizer gets in the step under way to a norm of at most `max_norm`.

        For loops without a closure, between `perturb()` and `step()`; otherwise set `max_grad_norm` on the optimizer.
        Clipping by hand there would make PSF = clipped gs − unclipped g. The smaller of `max_norm` and the optimizer's
        own `max_grad_norm` applies; infinity clips nothing. Returns the norm of the current gradients, unscaled.
        """
        self = itself(self)
        step = self._under_way
        if step is None:
            raise RuntimeError(misuse.CLIP_OUTSIDE)
        limits = [limit for limit in (norm_limit("max_norm", max_norm), step.max_grad_norm) if limit is not None]
        step.max_grad_norm = min(limits, default=None)
        with torch.no_grad():
            gradient = self._gradients.take()
            norm = torch.zeros(()) if gradient is None else gradient.norm
            is_scaled = step.scaler is not None and (step.sampled or step.is_in_closure)
            return norm * step.scaler.inverse_scale() if is_scaled else norm

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients. Between `perturb()` and `step()`, restore the weights first."""
        self = itself(self)
        self._abandon()
        self._recorder.mark_stale()
        self._await_first_pass()
        self.base.zero_grad(set_to_none)
        if not set_to_none:
            mark_used(self.base)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group to the base optimizer. It gets the method's `rho` unless it sets its own."""
        if not any(own_rho(bases_of(self.base))):
            check_not_negative("rho", param_group.get("rho", self.where.rho))
        with leftovers_used(self.base):
            self.base.add_param_group(param_group)
        complete_radii(self.base, self.where.rho)

    def state_dict(self) -> dict[str, Any]:
        """Return the base optimizer's state and the entry, which load with `weights_only=True`."""
        self = itself(self)
        misuse.check_no_checkpoint(self.entry)
        for prepare in self._optimizer_state_dict_pre_hooks.values():
            prepare(self)
        self._abandon()
        self._refresh()
        state_dict = {**self.base.state_dict(), self.entry: save(self)}
        for change in self._optimizer_state_dict_post_hooks.values():
            changed = change(self, state_dict)
            state_dict = state_dict if changed is None else changed
        return state_dict

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Resume exactly where `state_dict` was taken. A state that does not fit changes nothing."""
        self = itself(self)
        for change in self._optimizer_load_state_dict_pre_hooks.values():
            changed = change(self, state_dict)
            state_dict = state_dict if changed is None else changed
        if self.entry not in state_dict:
            misuse.check_no_checkpoint(self.entry)
        restore = keep_bases(self.base)
        try:
            self._abandon()
            self._refresh()
            load = check_state(self, state_dict)
            self.base.load_state_dict({name: value for name, value in state_dict.items() if name != self.entry})
        except BaseException as error:
            restore()
            if isinstance(error, AttributeError | KeyError | RuntimeError | TypeError):
                raise ValueError(f"state_dict is damaged or from another optimizer: {error!r}.") from error
            raise
        load()
        for finish in self._optimizer_load_state_dict_post_hooks.values():
            finish(self)

    def __getstate__(self) -> dict[str, Any]:
        self._abandon()
        names = ("base", "model", "when", "where", "between", "max_grad_norm", "guard", "sync", *self._settings)
        kept = {name: self.__dict__[name] for name in (*names, "_recorder", "_memory", "_averages")}
        return {**kept, "_counters": self._records.counters()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({})  # sets up torch's hooks; without a base there are no defaults to add to
        self.__dict__.update(state)
        self._records = Records(warn_caller, **self.__dict__.pop("_counters"))
        self._step: Step | None = None
        self._running: Generator[str, None, None] | None = None
        self._has_stepped = False
        self._watch = LoopWatch()
        weakref.finalize(self, self._watch.forget)
        self._stepper = BaseStepper(bases_of(self.base))
        self._look_at_model()
        self._await_first_pass()
        mark_used(self.base)

    @abstractmethod
    def _decide(self, undo: Undo) -> bool | None: ...

    @abstractmethod
    def _abandon(self) -> None: ...

    @abstractmethod
    def _refresh(self) -> None: ...

    @property
    @abstractmethod
    def _under_way(self) -> Step | None: ...

    def _look_at_model(self) -> None:
        self._gradients = Gradients(self.base, self.model)
        self._recorder.buffers = Buffers(self.model, self._recorder.save_others)
        self._recorder.on_start = self._watch.begin_first_pass
        self._watch.parameters = self._gradients.all.parameters
        self._ranks = Ranks(self.model, self._gradients.all.parameters, self.sync)

    def _await_first_pass(self) -> None:
        """Stop watching a step. A model says when the next one begins. Without one, count from here on."""
        if self.model is None:
            self._watch.begin_first_pass()
        else:
            self._watch.forget()
