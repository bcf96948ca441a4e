"""The one class that runs every method: when × where × between around a base optimizer."""

import copy
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from vsam import tensors
from vsam.between import Plain
from vsam.caller import warn_caller
from vsam.errors import CLOSURE_EXAMPLE, check_base, check_model, check_not_negative, check_part, check_state
from vsam.finiteness import Outcomes, step_fused, takes_found_inf
from vsam.gradients import with_gradient
from vsam.groups import complete_radii, last_in_model, radii
from vsam.memory import Memory, remember, reuse
from vsam.parts import Between, DecidesAfter, DecidesBefore, When, Where
from vsam.published import describe
from vsam.records import Journal, Listener, StepRecord
from vsam.second_pass import ForwardNote, Generators, Statistics, tracking_layers
from vsam.step import Step
from vsam.when import Always
from vsam.where import GlobalNorm
from vsam.wrapper import Wrapper

__all__ = ["SharpnessAware"]

Closure = Callable[[], Any]


class SharpnessAware(Wrapper):
    """Run a base optimizer on sharpness-aware gradients.

    At a sampled step the gradient is taken a second time at `w + e`, the weights are put back bit for bit, and the base
    optimizer gets the second gradient; at the others it gets what `between` makes of the first.

    Args:
        base: a constructed optimizer. Its `param_groups` and `state` are shared, so schedulers and hooks just work.
        model: the network, so that BatchNorm statistics ignore the second pass, and loops without a closure
            repeat the same dropout masks.
        when: decides which steps are sampled. Default: all of them.
        where: decides at which point. Default: `GlobalNorm(0.05)`.
        between: decides what happens at the other steps. Default: the plain gradient.

    Groups may set `rho` (changeable while training) and `perturb=False` (left out of the perturbation and its norm).
    Each optimizer works on its own copy of the parts.

    Cost: 1 + sampled passes. A transient copy of the weights at a sample. Where `between` keeps a memory, one
    parameter-sized buffer, and while it is renewed also the old one, for the case that the step fails or is skipped.

    Example:
        >>> model = nn.Linear(2, 1)
        >>> base = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> optimizer = SharpnessAware(base, model=model, when=Always(), where=GlobalNorm(0.05), between=Plain())
    """

    entry = "sharpness"

    # Makes torch's own GradScaler hand its closure to `step`, which can say what to do instead of failing an assertion.
    _step_supports_amp_scaling = True

    _settings: tuple[str, ...] = ()
    """Attributes of a derived class that copies and pickles must keep."""

    def __init__(
        self,
        base: Optimizer,
        *,
        model: nn.Module | None = None,
        when: When | None = None,
        where: Where | None = None,
        between: Between | None = None,
    ) -> None:
        if isinstance(base, SharpnessAware):
            raise ValueError(f"base must be an ordinary optimizer, got {type(base).__name__}: methods do not nest.")
        check_base(base)
        check_model(model, base)
        self.base, self.model = base, model
        for slot, part in (("when", when), ("where", where), ("between", between)):
            check_part(slot, part)
        self.when: When = Always() if when is None else copy.deepcopy(when)
        self.where: Where = GlobalNorm() if where is None else copy.deepcopy(where)
        self.between: Between = Plain() if between is None else copy.deepcopy(between)
        self._note = ForwardNote()
        self._memory: Memory = {}
        self._num_steps = self._num_samples = 0
        self._outcomes = Outcomes()
        self.__setstate__({})
        complete_radii(self.param_groups, self.where.rho)
        if model is not None:
            weakref.finalize(self, model.register_forward_pre_hook(self._note).remove)

    @property
    def num_samples(self) -> int:
        """How many second gradients have been taken."""
        return self._num_samples

    @property
    def num_skipped(self) -> int:
        """How many steps were skipped because a gradient was not finite."""
        return self._outcomes.num_skipped

    @property
    def last(self) -> StepRecord | None:
        """The record of the latest step; its numbers are fetched from the device when it is looked at."""
        return self._journal.last

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with the record of every step from now on; returns a function that ends it."""
        return self._journal.subscribe(listener)

    def describe(self) -> str:
        """In plain words: what this mixture does, what it costs, and whether it was ever published."""
        return describe(self.when, self.where, self.between)

    def __repr__(self) -> str:
        parts = "".join(f"  {name}={getattr(self, name)!r},\n" for name in ("when", "where", "between"))
        return f"{type(self).__name__}(\n{parts}  base={self.base!r}\n)"

    @torch.no_grad()
    def step(self, closure: Closure | None = None) -> Any:
        """Take one step; returns the loss of the first pass.

        Args:
            closure: computes the loss at the current weights, calls `backward` and returns the loss. It is called
                once, or twice at a sampled step. Leave it out after `perturb()`.
        """
        return self._step_without_closure() if closure is None else self._step(closure)

    def _step(self, closure: Closure) -> Any:
        self._refuse_foreign_scaler()
        if not callable(closure):
            raise ValueError(f"closure must be a function, got {type(closure).__name__}. Write:{CLOSURE_EXAMPLE}")
        self._give_up()
        generators, statistics = Generators(self._devices()), Statistics(tracking_layers(self.model))
        self._is_running = True
        try:
            wants_sample = self._decide()
            for parameter in self._parameters():
                parameter.grad = None
            with torch.enable_grad():
                loss = closure()
            step = self._begin(wants_sample, generators)
            if step.was_sampled:
                with torch.enable_grad():
                    closure()
            self._end(step)
        except BaseException:
            self._give_up()
            generators.restore()
            statistics.restore()
            raise
        finally:
            self._is_running = False
        self._apply(step, loss)
        return loss

    @torch.no_grad()
    def perturb(self) -> bool:
        """After the first backward pass, in a loop without a closure: move to where a second one is due.

        Returns whether it is: then run forward and backward again on the same batch. Call `step()` in either case.
        """
        self._give_up()
        try:
            step = self._begin(self._decide(), self._note.generators)
            if step.was_sampled and self.model is not None and not self._note.was_called:
                self._note.was_called = True
                warn_caller(
                    "No forward pass of model was seen, so the second pass cannot repeat the first one's dropout. Give "
                    "model= the module that you call: the compiled one, not the one inside."
                )
            return step.was_sampled
        except BaseException:
            self._give_up()
            raise

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients; between `perturb()` and `step()`, first put the weights back."""
        if not self._is_running:
            self._give_up()
        self._note.doubt()
        self.base.zero_grad(set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group to the base optimizer; it gets the method's `rho` unless it names its own."""
        check_not_negative("rho", param_group.get("rho", self.where.rho))
        self.base.add_param_group(param_group)
        complete_radii(self.param_groups, self.where.rho)

    def _save(self) -> dict[str, Any]:
        if not self._is_running:
            self._give_up()
        return {
            "parts": [type(part).__name__ for part in self._parts()],
            "states": [part.state_dict() for part in self._parts()],
            "memory": {i: self._memory[p] for i, p in enumerate(self._parameters()) if p in self._memory},
            "age": self._outcomes.age,
            "num_steps": self._num_steps,
            "num_samples": self._num_samples,
            "num_skipped": self.num_skipped,
        }

    def _check(self, state_dict: dict[str, Any]) -> Callable[[], None]:
        self._give_up()
        parameters, parts = list(self._parameters()), copy.deepcopy(self._parts())
        sharpness = check_state(state_dict, parts, parameters)

        def load() -> None:
            complete_radii(self.param_groups, self.where.rho)
            self.when, self.where, self.between = parts
            self._memory = {parameters[i]: value.to(parameters[i]) for i, value in sharpness["memory"].items()}
            self._outcomes = Outcomes(sharpness["num_skipped"], sharpness["age"])
            self._journal.forget()
            self._num_steps, self._num_samples = sharpness["num_steps"], sharpness["num_samples"]

        return load

    def __getstate__(self) -> dict[str, Any]:
        if not self._is_running:
            self._give_up()
        names = ("base", "model", "when", "where", "between", *self._settings)
        private = ("_note", "_memory", "_num_steps", "_num_samples", "_outcomes")
        return {name: self.__dict__[name] for name in names + private}

    def __setstate__(self, state: dict[str, Any]) -> None:
        # What belongs to this object and this moment only is neither copied nor saved.
        self._journal = Journal()
        self._pending: Step | None = None
        self._draws: list[tuple[Any, Any]] = []
        self._is_running = self._has_stepped = False
        self._overflow: Tensor | None = None
        self._scaler: Any = None
        super().__setstate__(state)  # gives torch's hooks, and no groups of our own

    def _step_without_closure(self) -> None:
        self._refuse_foreign_scaler()
        step = self._pending
        if step is None:
            raise RuntimeError(
                f"step() has nothing to step on. Give it a closure, which it calls once or twice:{CLOSURE_EXAMPLE}\n"
                "In a loop without a closure, call perturb() after backward() and before step()."
            )
        try:
            self._end(step)
        except BaseException:
            self._give_up()
            raise
        self._apply(step, None)

    def _decide(self) -> bool:
        """Draw and decide, where that needs no gradient."""
        self._draws = [(part.generator, part.generator.getstate()) for part in self._parts() if part.generator]
        return isinstance(self.when, DecidesBefore) and self.when.wants_sample(self._num_steps + 1)

    def _begin(self, wants_sample: bool, generators: Generators | None) -> Step:
        """Take in the first gradient; if the step is to be sampled, move the weights."""
        step = self._pending = Step(self._collect("Call backward() before perturb()"), self._scaler)
        if isinstance(self.when, DecidesAfter):
            wants_sample = self.when.wants_sample(self._num_steps + 1, float(step.grad_norm))
        if wants_sample:
            step.is_listened_to = self._journal.is_read
            step.watched = last_in_model(step.parameters, self.when.watch, self.model)
            needs_all = self.between.keeps_memory or step.is_listened_to
            kept = step.parameters if needs_all else step.watched
            step.climb(self.where, radii(self.param_groups, self.where.rho), kept, self.model, generators)
        return step

    def _end(self, step: Step) -> None:
        """Put the weights back and take in the second gradient."""
        step.descend()
        if step.scaler is not self._scaler:
            raise RuntimeError(
                "perturb() and step() must both go through the scaler, or neither: call scaler.perturb(optimizer) and "
                "scaler.step(optimizer)."
            )
        if step.was_sampled:
            step.sharpen(self._collect("Run forward and backward again after perturb() returned True"))

    def _apply(self, step: Step, loss: Any) -> None:
        """Hand the gradient to the base optimizer, unless it is not finite, and note what happened."""
        self._note.forget()
        self._pending = None
        is_finite = step.all_finite()
        is_deferred = self._may_defer(step)
        was_skipped = not is_deferred and not bool(is_finite)
        psf_norm = step.psf_norm() if step.was_sampled and not was_skipped else None
        if not was_skipped:
            sample = step.sample(is_finite) if step.watched else None
            memory = self._memory
            if step.was_sampled and self.between.keeps_memory:
                memory = remember(self.between, step, memory, is_finite if is_deferred else None)
            elif memory and not step.was_sampled:
                reuse(self.between, step, memory, self._outcomes.age)
            if is_deferred:
                step_fused(self.base, is_finite)
            else:
                self.base.step()
                self._has_stepped = True
            self._memory = memory
            if sample is not None:
                self.when.observe(sample)
        self._overflow = (~is_finite).to(torch.float32)
        self._note_step(step, loss, ~is_finite if is_deferred else was_skipped, psf_norm)

    def _may_defer(self, step: Step) -> bool:
        """Whether a fused base can skip the step by itself, so that nobody has to wait for the device."""
        return (
            takes_found_inf(self.base)
            and isinstance(self.when, DecidesBefore)
            and not self._journal.is_read
            and self._has_stepped
            and (not self.state or all(parameter in self.state for parameter in step.parameters))
            and self._memory.keys() <= set(step.parameters)
        )

    def _note_step(self, step: Step, loss: Any, was_skipped: bool | Tensor, psf_norm: Tensor | None) -> None:
        self._draws = []
        self._num_steps += 1
        self._num_samples += step.was_sampled
        self._outcomes.add(step.was_sampled, was_skipped)
        is_reused = bool(self._memory) and self.between.uses_norm
        needs_norm = step.was_sampled or is_reused or self._journal.is_read or isinstance(self.when, DecidesAfter)
        rate, details = self.when.rate, self.when.details()
        self.when.advance(self._num_steps, step.was_sampled, was_skipped is True)
        self._journal.write(
            step=self._num_steps,
            sampled=step.was_sampled,
            skipped=was_skipped,
            loss=loss,
            rate=self._num_samples / self._num_steps if rate is None else rate,
            age=lambda: self._outcomes.age,
            grad_norm=step.grad_norm if needs_norm else None,
            psf_norm=psf_norm,
            **details,
        )

    def _collect(self, remedy: str) -> list[Tensor]:
        """The parameters that have a gradient, unscaled where a scaler asked for it."""
        parameters = with_gradient(self._parameters(), self._name, remedy)
        if self._scaler is not None:
            gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
            tensors.multiply_(gradients, self._scaler.inverse_scale())
        return parameters

    def _backward(self, loss: Tensor) -> None:
        (loss if self._scaler is None else self._scaler.scale(loss)).backward()

    def _give_up(self) -> None:
        """Put everything back as if the step under way had not begun."""
        step, self._pending = self._pending, None
        if step is not None:
            step.descend()
        for generator, state in self._draws:
            generator.setstate(state)
        self._draws = []

    def _refuse_foreign_scaler(self) -> None:
        if "found_inf" in self.__dict__:
            del self.__dict__["found_inf"], self.__dict__["grad_scale"]
            self._give_up()
            raise RuntimeError(
                "torch's GradScaler cannot run the second pass. Use vsam.amp.GradScaler, which is the same otherwise, "
                "and call scaler.step(optimizer, closure) with scaler.scale(loss).backward() inside the closure."
            )

    def _parts(self) -> tuple[When, Where, Between]:
        return self.when, self.where, self.between
