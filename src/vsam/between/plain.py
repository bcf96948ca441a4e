"""Use the plain gradient between samples, as SAM-k and vSAM-A do."""

from collections.abc import Callable

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

    def reuse_(self, gradients: list[Tensor], memory: list[Tensor], age: int, norm: Callable[[], Tensor]) -> None:
        """Leave the gradients alone."""

    def describe(self) -> str:
        """Describe this part in a phrase that completes a sentence."""
        return "uses the plain gradient in between"
