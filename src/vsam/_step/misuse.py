"""Recognise wrong use of an optimizer, and show what to write instead."""

import functools
import inspect
import sys
import warnings
import weakref
from collections.abc import Callable, Container, Mapping
from types import FrameType
from typing import Any, NamedTuple, NoReturn

from torch import nn
from torch.optim import Optimizer

CLOSURE_EXAMPLE = """
    def closure():
        loss = criterion(model(inputs), targets)
        loss.backward()
        return loss
    optimizer.step(closure)"""

SHARE_EXAMPLE = """
    def closure(share=1.0):
        count = max(2, math.ceil(share * len(inputs)))
        loss = criterion(model(inputs[:count]), targets[:count])
        loss.backward()
        return loss
    optimizer.step(closure)"""

ACCUMULATION_EXAMPLE = """
    def closure():
        total = 0
        for inputs, targets in micro_batches:
            loss = criterion(model(inputs), targets) / len(micro_batches)
            loss.backward()
            total += loss.detach()
        return total
    optimizer.step(closure)"""

CLIP_OUTSIDE = (
    "clip_grad_norm_() belongs between perturb() and step(): call optimizer.perturb(), run the second pass if it "
    "returned True, then call optimizer.clip_grad_norm_(max_norm) and optimizer.step()."
)

LOOP_EXAMPLE = """
    optimizer.zero_grad()
    criterion(model(inputs), targets).backward()
    if optimizer.perturb():
        criterion(model(inputs), targets).backward()
    optimizer.step()"""

COMING_FROM = 'The page "Coming from another SAM" (docs/coming-from.md) shows whole loops as diffs.'

_OWN = ("vsam", "torch", "contextlib")
_CHECKPOINT = "torch.distributed.checkpoint.state_dict"
_ELSEWHERE = {
    "adaptive": "the adaptive method is ASAM, whose rho is about ten times SAM's",
    **dict.fromkeys(("base_optimizer", "optimizer", "params", "parameters"), "other packages have it"),
    **dict.fromkeys(
        ("lr", "momentum", "weight_decay", "nesterov", "betas", "dampening", "eps"), "it belongs to the base optimizer"
    ),
}
"""Arguments of other implementations and of base optimizers, and why ours do not take them."""


def warn_caller(message: str) -> None:
    """Warn at the innermost line that is neither ours nor torch's nor that of a context manager."""
    # warnings.warn(skip_file_prefixes=…) does this from Python 3.12 on.
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in _OWN:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, RuntimeWarning, stacklevel=level)


def outermost_caller(known: Container[str]) -> str | None:
    """Return the outermost of some modules and packages among the callers, or None."""
    found: str | None = None
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        found = next((name for name in (module, module.split(".")[0]) if name in known), found)
        frame = frame.f_back
    return found


class Advice(NamedTuple):
    """Facts about the loop of another package.

    Args:
        text: what to write in it.
        constructs: whether it constructs optimizers from a class and settings.
        adapt: `adapt(closure, optimizer)` returns what to run for a `functools.partial` of one of its functions, or
            None if that closure is empty.
        check_first_step: `check_first_step(optimizer)` raises if it calls the first `step(closure)` wrongly.
    """

    text: str
    constructs: bool = False
    adapt: Callable[[functools.partial[Any], Any], Any] | None = None
    check_first_step: Callable[[Any], None] | None = None


_ADVICE: dict[str, Advice] = {}


def register_advice(package: str, advice: Advice) -> None:
    """Register what to do in the loop of a package, given by its import name."""
    _ADVICE[package] = advice


def _registered() -> dict[str, Advice]:
    import vsam.integrations  # noqa: F401 # registers the advice of all packages

    return _ADVICE


def foreign_loop(*, constructs: bool = False) -> str | None:
    """Return what to write instead if a registered package called, or None.

    Args:
        constructs: whether to leave out packages that do not construct optimizers.
    """
    known = {name: advice.text for name, advice in _registered().items() if advice.constructs or not constructs}
    return known.get(outermost_caller(known) or "")


def adapted(closure: functools.partial[Any], optimizer: Optimizer) -> Any:
    """Return what to run for a partial function, which other packages pass as a closure."""
    package = getattr(closure.func, "__module__", None) or ""
    advice = _registered().get(package.split(".")[0])
    return closure if advice is None or advice.adapt is None else advice.adapt(closure, optimizer)


def check_closure(optimizer: Any, closure: object) -> None:
    """Refuse a closure that cannot be right, and a first step that the loop of another package calls wrongly."""
    if not callable(closure):
        raise ValueError(f"closure must be a function, got {type(closure).__name__}. Write:{CLOSURE_EXAMPLE}")
    if optimizer._under_way is not None and optimizer._under_way.is_in_closure:
        raise RuntimeError("step() was called inside the closure of another step(). Call it after that step.")
    for package, advice in _registered().items():
        if advice.check_first_step is not None and package in sys.modules:
            advice.check_first_step(optimizer)


def refuse_accumulated() -> None:
    """Raise the error of gradients that a closure could not repeat."""
    raise RuntimeError(
        "Gradients were accumulated before step(closure), which could not repeat their micro-batches at the perturbed "
        f"weights. Call optimizer.zero_grad() first, or loop over them inside:{ACCUMULATION_EXAMPLE}"
    )


def refuse_foreign_scaler() -> None:
    """Raise the error of a scaler that runs one pass only."""
    ordinary = "Use vsam.amp.GradScaler, and scaler.step(optimizer, closure) with scaler.scale(loss).backward() in it."
    raise RuntimeError(f"torch's GradScaler cannot run the second pass. {foreign_loop() or ordinary}")


def check_perturb(optimizer: Any) -> None:
    """Refuse `perturb()` where it cannot work, and a second call in a step."""
    if optimizer.where.ahead() is not None or optimizer.between.ahead() is not None:
        example = SHARE_EXAMPLE if 0 < optimizer.where.passes < 1 else CLOSURE_EXAMPLE
        raise RuntimeError(
            f"This method takes its gradient at w + e, and after backward() it is too late. Pass a closure:{example}"
        )
    if optimizer._under_way is not None and optimizer._under_way.is_in_closure:
        raise RuntimeError("perturb() was called inside the closure of step(), which perturbs by itself: leave it out.")
    if optimizer.is_second_pass:
        raise RuntimeError(
            "perturb() was called again without step(), so the gradients may be those at the perturbed weights. Call "
            "step() after the second backward, or optimizer.zero_grad() to abandon a step. With accumulation, call "
            "perturb() after the last micro-batch only."
        )


def refuse_empty_step(ordinary: str | None = None) -> None:
    """Raise the error of a step that got neither a closure nor `perturb()`. `ordinary` replaces its usual text.

    Torch's checkpoint functions take such a step to create a fresh optimizer's state. They undo their own changes after
    it and then call `state_dict` or `load_state_dict`, which refuse them, so it does nothing.
    """
    if outermost_caller((_CHECKPOINT,)) is not None:
        return
    remedy = foreign_loop() or (
        f"Pass it a closure, which it calls once or twice:{CLOSURE_EXAMPLE}\n"
        "In a loop without a closure, call perturb() after backward() and before step(), and not zero_grad() "
        "after perturb(), which clears the gradients by itself: zero_grad() abandons the step."
    )
    raise RuntimeError(ordinary or f"step() was called without a closure and without perturb(). {remedy}")


def check_scaler(step: Any, scaler: Any) -> None:
    """Refuse a step that goes through a scaler in one half only."""
    if step.scaler is not scaler:
        raise RuntimeError(
            "perturb() and step() must both go through the scaler, or neither: call scaler.perturb(optimizer) and "
            "scaler.step(optimizer)."
        )


def refuse_closure_without_share(error: TypeError, closure: Callable[..., Any]) -> NoReturn:
    """Raise the error of a closure that cannot take a fraction of the batch, or else the error that it raised."""
    try:
        inspect.signature(closure).bind(1.0)
    except (TypeError, ValueError):  # ValueError if a callable has no signature
        raise RuntimeError(
            f"The direction comes from a fraction of the batch, so the closure must take it. Write:{SHARE_EXAMPLE}"
        ) from error
    raise error


_LIVE: weakref.WeakKeyDictionary[nn.Module, weakref.WeakSet[Any]] = weakref.WeakKeyDictionary()
"""The optimizers of each model."""


def notice_others(optimizer: Any, model: nn.Module) -> None:
    """Warn of two optimizers of one model over different parameters."""
    others = _LIVE.setdefault(model, weakref.WeakSet())
    own = set(optimizer._gradients.all.parameters)
    for other in others:
        other._abandon()  # an interrupted perturb(), in a notebook that starts over
    if any(own.isdisjoint(other._gradients.all.parameters) for other in others):
        warn_caller(
            "model has another sharpness-aware optimizer over other parameters, and each runs passes at the other's "
            f"perturbed weights: write one {type(optimizer).__name__}([base, other_base], model=model)."
        )
    others.add(optimizer)


def check_no_checkpoint(entry: str) -> None:
    """Refuse torch's functions that save only the state and the groups of an optimizer and drop the rest."""
    if outermost_caller((_CHECKPOINT,)) is not None:
        raise RuntimeError(
            f"get_optimizer_state_dict and set_optimizer_state_dict drop the optimizer's {entry!r} entry. Write "
            "dcp.save({'optimizer': vsam.distributed.StatefulOptimizer(model, optimizer)}, checkpoint_id=…)."
        )


def settings_of(kind: type[Any]) -> list[str]:
    """Return the names of the keyword arguments of a method's class, besides `model`."""
    from vsam.optimizer import Options

    named = [one.name for one in inspect.signature(kind).parameters.values() if one.kind is one.KEYWORD_ONLY]
    return [*(one for one in named if one != "model"), *Options.__annotations__]


def check_call(kind: type[Any], given: tuple[Any, ...], named: Mapping[str, Any]) -> None:
    """Refuse a call that was written for another implementation, and show the lines to write here.

    Most of them take `SAM(model.parameters(), torch.optim.SGD, lr=0.1)`, some `ASAM(optimizer, model)`. User-defined
    subclasses may take other arguments.
    """
    if not kind.__init__.__module__.startswith("vsam."):
        return
    foreign = next((name for name in named if name in _ELSEWHERE and name not in settings_of(kind)), None)
    if foreign is not None:
        refuse_base(f"{kind.__name__} has no argument {foreign!r}: {_ELSEWHERE[foreign]}.", kind.__name__)
    if len(given) > 1:
        refuse_base(f"{kind.__name__} takes base and then only keyword arguments, got {len(given)} positional ones.")


def refuse_base(complaint: str, method: str = "SAM") -> NoReturn:
    """Raise the error of a base that is not a constructed optimizer, with the lines that make one and ours."""
    lines = (
        "Write:\n    base = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        f"    optimizer = vsam.{method}(base, model=model)"
    )
    raise ValueError(f"{complaint} {foreign_loop(constructs=True) or lines}")
