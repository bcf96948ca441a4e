"""What the parameter groups say: the radius of each parameter, and which ones come last."""

from typing import Any

from torch import Tensor, nn

from vsam.errors import check_not_negative

__all__ = ["complete_radii", "last_in_model", "radii"]


def complete_radii(groups: list[dict[str, Any]], rho: float) -> None:
    """Give `rho` to the groups that name none, and refuse one that cannot be."""
    for group in groups:
        check_not_negative("rho", group.setdefault("rho", rho))


def radii(groups: list[dict[str, Any]], rho: float) -> dict[Tensor, float]:
    """The radius of each parameter that may be moved; what is maximised gets worse the other way."""
    complete_radii(groups, rho)
    moved = [group for group in groups if group.get("perturb", True)]
    signed = [(group["params"], -group["rho"] if group.get("maximize") else group["rho"]) for group in moved]
    return {parameter: radius for parameters, radius in signed for parameter in parameters}


def last_in_model(parameters: list[Tensor], count: int | None, model: nn.Module | None) -> list[Tensor]:
    """The last `count` parameters in the model's order where it is known; None stands for all."""
    if count == 0:
        return []
    if model is not None:
        places: dict[Tensor, int] = {parameter: i for i, parameter in enumerate(model.parameters())}
        parameters = sorted(parameters, key=lambda parameter: places.get(parameter, -1))
    return list(parameters) if count is None else parameters[-count:]
