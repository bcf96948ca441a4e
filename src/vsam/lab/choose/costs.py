"""What each method would cost here: passes, time and memory, from the timed steps."""

from dataclasses import asdict, dataclass
from typing import Any

from vsam.lab.bench.memory import PROMISED
from vsam.lab.choose.timing import Times
from vsam.lab.methods import METHODS, Method

__all__ = ["Cost", "list_costs"]

_ESTIMATED = {"ae-sam", "vsam", "vsam-a", "esam"}
"""Methods that decide during training: their passes are those of typical runs, not guaranteed."""
_FORWARDS = {"esam": 0.5, "mesa": 0.0}
"""Methods with an additional forward pass, and the fraction of a second gradient on top."""


@dataclass(frozen=True)
class Cost:
    """What a method costs per step.

    Args:
        method: by name.
        price: passes; a forward pass alone counts as about half.
        time: in multiples of the base optimizer's step.
        speed_to_sam: in multiples of SAM's speed.
        kept, extra: bytes kept between steps, and more in the second pass, on top of the base optimizer's; None if it
            depends on the data.
        is_estimate: whether the number of passes is only known after a run.
    """

    method: str
    price: float
    time: float
    speed_to_sam: float
    kept: int | None
    extra: int | None
    is_estimate: bool

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def list_costs(times: Times, num_bytes: int, budget: float) -> list[Cost]:
    """All methods, cheapest first.

    Args:
        times: of steps, as measured.
        num_bytes: of the parameters.
        budget: the fraction of sampled steps of vsam-budget.
    """
    found = [_cost(method, times, num_bytes, budget) for method in METHODS]
    return sorted(found, key=lambda cost: cost.time)


def _cost(method: Method, times: Times, num_bytes: int, budget: float) -> Cost:
    price = 1 + budget if method.name == "vsam-budget" else method.passes
    time = _time(method, times, price)
    kept, extra = PROMISED.get(method.name, (None, None))
    return Cost(
        method.name,
        price,
        time,
        times.sampled / time,
        None if kept is None else kept * num_bytes,
        None if extra is None else extra * num_bytes,
        method.name in _ESTIMATED,
    )


def _time(method: Method, times: Times, price: float) -> float:
    if method.name in _FORWARDS:
        share = _FORWARDS[method.name]
        return 1.0 + times.forward + share * (times.sampled - times.plain)
    if method.named is None and method.mixture is None:  # only the base optimizer; the loss's own time is not measured
        return 1.0
    return times.mean(price - 1, keeps_memory=PROMISED[method.name][0] > 0)
