"""Use the plain gradient between samples, as SAM-k and vSAM-A do."""

from torch import Tensor

from vsam.parts import Between

__all__ = ["Plain"]


class Plain(Between):
    """Use g itself at steps without a second gradient.

    Cost: none.

    Example:
        >>> Plain()
        Plain()
    """

    def reuse_(self, gradients: list[Tensor], memory: list[Tensor], age: int, grad_norm: Tensor) -> None:
        """Leave the gradients alone."""

    def describe(self) -> str:
        """What this part does, as the end of a sentence."""
        return "uses the plain gradient in between"
