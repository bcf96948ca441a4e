"""The method and settings for a price, with code to paste."""

from dataclasses import dataclass
from typing import Any

from vsam.lab.choose.timing import Times
from vsam.lab.errors import UserError
from vsam.lab.subject.subject import Subject

__all__ = ["Advice", "advise", "budget_for_time", "check_price", "check_time"]


@dataclass(frozen=True)
class Advice:
    """A recommendation.

    Args:
        method: by name; sgd is the base optimizer alone.
        settings: arguments of its class as plain values; `total_steps` is only in the code.
        code: to paste.
        time: expected per step, in multiples of the base optimizer's.
        reason: why this method.
    """

    method: str
    settings: dict[str, Any]
    code: str
    time: float
    reason: str


def check_price(price: float) -> float:
    """Reject a price that no method has."""
    if not 1 <= price <= 2:
        raise UserError(
            f"--price must be between 1 (the base optimizer alone) and 2 (SAM), got {price:g}: it counts forward and "
            "backward passes per step."
        )
    return price


def check_time(time: float) -> float:
    """Reject a time below the base optimizer's."""
    if not 1 <= time < float("inf"):
        raise UserError(f"--time must be at least 1 (the base optimizer alone), got {time:g}.")
    return time


def budget_for_time(times: Times, time: float) -> float:
    """The fraction of sampled steps for a mean step of `time` times the base optimizer's; clipped to 0 … 1."""
    plain, sampled = times.plain_with_memory, times.sampled_with_memory
    if sampled <= plain:  # a machine too noisy to tell
        return min(1.0, max(0.0, time - 1))
    return min(1.0, max(0.0, (time - plain) / (sampled - plain)))


def advise(subject: Subject, times: Times, price: float | None, time: float | None) -> Advice:
    """The method and settings for a price in passes, or for a time in multiples of the base optimizer's."""
    if time is not None and time >= times.sampled:
        budget = 1.0
    else:
        budget = budget_for_time(times, time) if time is not None else (price if price is not None else 1.2) - 1
    budget = int(budget * 1000 + 1e-6) / 1000  # never more than was asked for
    if budget >= 1:
        reason = "Your budget allows two passes at every step, and SAM is what cheaper methods try to match."
        return _advice(subject, "sam", {"rho": subject.rho}, "SAM", [], times.sampled, reason)
    if budget <= 0:
        return _without_memory(subject, times, time)
    settings = {"rho": subject.rho, "budget": budget}
    if subject.gamma is not None:
        settings["gamma"] = subject.gamma
    reason = f"It takes the second gradient at {budget:.1%} of the steps, evenly spread, and reuses it in between."
    length = [f"total_steps={subject.total_steps}"]
    return _advice(subject, "vsam-budget", settings, "VSAM", length, times.mean(budget, keeps_memory=True), reason)


def _without_memory(subject: Subject, times: Times, time: float | None) -> Advice:
    """The advice if no step may reuse a PSF: SAM at every fifth or tenth step if that fits the time, or the base."""
    for every in (5, 10):
        expected = times.mean(1 / every, keeps_memory=False)
        if time is not None and expected <= time:
            reason = f"It takes the second gradient at every {every}th step. Reusing it takes longer than you allow."
            settings = {"rho": subject.rho, "every": every}
            return _advice(subject, f"sam-{every}", settings, "SAM", [], expected, reason)
    reason = "Your budget allows no second gradient, only the base optimizer. msam needs none, but its own rho."
    return Advice("sgd", {}, _code(subject, "optimizer = base"), 1.0, reason)


def _advice(
    subject: Subject, name: str, settings: dict[str, Any], kind: str, more: list[str], time: float, reason: str
) -> Advice:
    arguments = ", ".join(["base", "model=model", *(f"{key}={value:g}" for key, value in settings.items()), *more])
    return Advice(name, settings, _code(subject, f"optimizer = vsam.{kind}({arguments})"), time, reason)


def _code(subject: Subject, line: str) -> str:
    """The line after those that make `base`, with its imports."""
    lines = [*filter(None, [subject.base_code, line])]
    imports = [f"import {name}" for name in ("torch", "vsam") if any(f"{name}." in one for one in lines)]
    return "\n".join([*imports, "", *lines] if imports else lines)
