"""The settings for a price: which method, and the code to paste."""

from dataclasses import dataclass
from typing import Any

from vsam.lab.choose.timing import Times
from vsam.lab.errors import UserError
from vsam.lab.subject.subject import Subject

__all__ = ["Advice", "advise", "budget_for_time", "check_price", "check_time"]


@dataclass(frozen=True)
class Advice:
    """What to use.

    Args:
        method: by name.
        settings: of its class, in plain values; the length of the run is left to the code.
        code: to paste.
        time: what a step is expected to take, in multiples of the base optimizer's.
        reason: why this one.
    """

    method: str
    settings: dict[str, Any]
    code: str
    time: float
    reason: str


def check_price(price: float) -> float:
    """Refuse a price that no method has."""
    if not 1 <= price <= 2:
        raise UserError(
            f"--price must lie between 1, the base optimizer alone, and 2, SAM, got {price:g}: it counts forward and "
            "backward passes per step."
        )
    return price


def check_time(time: float) -> float:
    """Refuse a time that is shorter than the base optimizer's."""
    if not 1 <= time < float("inf"):
        raise UserError(f"--time must be at least 1, the base optimizer's own, got {time:g}.")
    return time


def budget_for_time(times: Times, time: float) -> float:
    """The share of samples with which a step takes so many times the base optimizer's; 0 where none fits, at most 1."""
    plain, sampled = times.plain_with_memory, times.sampled_with_memory
    if sampled <= plain:  # a machine too noisy to tell
        return min(1.0, max(0.0, time - 1))
    return min(1.0, max(0.0, (time - plain) / (sampled - plain)))


def advise(subject: Subject, times: Times, price: float | None, time: float | None) -> Advice:
    """The method and its settings for a price in passes, or for a time in multiples of the base optimizer's."""
    if time is not None and time >= times.sampled:
        budget = 1.0
    else:
        budget = budget_for_time(times, time) if time is not None else (price if price is not None else 1.2) - 1
    budget = int(budget * 1000 + 1e-6) / 1000  # never more than was asked for
    if budget >= 1:
        reason = "Two passes at every step are affordable: SAM is the reference that cheaper methods aim at."
        return _advice(subject, "sam", {"rho": subject.rho}, "SAM", [], times.sampled, reason)
    if budget <= 0:
        reason = "No second gradient fits: that leaves the base optimizer alone. msam needs none, but a rho of its own."
        return Advice("sgd", {}, f"{subject.base_code}\noptimizer = base", 1.0, reason)
    plain, sampled = times.plain_with_memory, times.sampled_with_memory
    settings = {"rho": subject.rho, "budget": budget}
    reason = f"It takes the second gradient at {budget:.1%} of the steps, evenly spread, and reuses it in between."
    length = [f"total_steps={subject.total_steps}"]
    return _advice(subject, "vsam-budget", settings, "VSAM", length, plain + budget * (sampled - plain), reason)


def _advice(
    subject: Subject, name: str, settings: dict[str, Any], kind: str, more: list[str], time: float, reason: str
) -> Advice:
    arguments = ", ".join(["base", "model=model", *(f"{key}={value:g}" for key, value in settings.items()), *more])
    code = f"{subject.base_code}\noptimizer = vsam.{kind}({arguments})"
    return Advice(name, settings, code, time, reason)
