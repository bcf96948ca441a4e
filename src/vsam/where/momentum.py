"""Perturb along the base optimizer's momentum, which is known before the only pass, as MSAM does."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from torch import Tensor

from vsam.checks import check_not_negative, check_only
from vsam.parts import KnowsBefore
from vsam.where.global_norm import move_, of_only

__all__ = ["Momentum"]

_NAMES = ("momentum_buffer", "exp_avg")


class Momentum(KnowsBefore):
    """Take the only gradient at w + e with e = sign · ρ · v / (‖v‖ + 1e-12), v the base optimizer's own momentum.

    v is the `momentum_buffer` of SGD and the `exp_avg` of Adam and AdamW. A step at which there is none yet is plain.

    Args:
        rho: ρ ≥ 0, the radius; for MSAM much larger than SAM's (its authors: 3 where their SAM takes 0.2, CIFAR-100).
        sign: −1 moves further along the last update (MSAM); 1 moves along the averaged gradient, with SAM's own ρ:
            experimental.
        only: "norm" to perturb the parameters of normalisation layers only.

    Cost: one pass per step; a transient copy of the weights.

    Example:
        >>> Momentum(3.0)
        Momentum(rho=3.0, sign=-1)

    Reference: Becker et al., Momentum-SAM: Sharpness Aware Minimization without Computational Overhead, NeurIPS 2025.
    """

    def __init__(self, rho: float = 3.0, sign: int = -1, only: Literal["norm"] | None = None) -> None:
        self.rho, self.only = check_not_negative("rho", rho), check_only(only)
        if sign not in (-1, 1) or isinstance(sign, bool):
            raise ValueError(f"sign must be -1 (further along the last update) or 1 (against it), got {sign!r}.")
        self.sign = int(sign)

    def check_groups(self, groups: Sequence[Mapping[str, Any]]) -> None:
        """Refuse a base optimizer without momentum."""
        if not any(group.get("momentum") or group.get("betas") for group in groups):
            raise ValueError(
                "Momentum moves along the base optimizer's momentum, but it has none: write "
                "torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), or use AdamW."
            )

    def direction(self, state: Mapping[str, Any], gradient: Tensor | None) -> Tensor | None:
        """v, if there is one yet."""
        return next((value for name in _NAMES if isinstance(value := state.get(name), Tensor)), None)

    def perturb_(self, weights: list[Tensor], gradients: list[Tensor], rhos: Sequence[float], norm: Tensor) -> None:
        """`w ← w + sign · ρ · v / (‖v‖ + 1e-12)`. v already has the sign of `maximize`."""
        move_(weights, gradients, [self.sign * abs(rho) for rho in rhos], norm)

    def describe(self) -> str:
        """Describe this part in a phrase that completes a sentence."""
        way = "further along" if self.sign < 0 else "back along"
        return f"at a distance rho {way} the momentum{of_only(self.only)}"
