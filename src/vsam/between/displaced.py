"""Take the only gradient of unsampled steps at a displaced point too."""

from vsam.between.plain import Plain
from vsam.parts import KnowsBefore

__all__ = ["Displaced"]


class Displaced(Plain):
    """Take the only gradient of a step that is not sampled at w + e, with an offset that is known before the pass.

    The loss that such a step returns is the one at w + e, and its record has `displaced` set.

    Args:
        where: the part that knows the offset, such as `Momentum`. Its own rho applies, not that of the groups.

    Reduces to: `Plain` if that rho is 0.
    Cost: no extra pass; a transient copy of the weights at every step.

    Example:
        >>> from vsam.where import Momentum
        >>> Displaced(Momentum(0.05, sign=1))
        Displaced(where=Momentum(rho=0.05, sign=1))
    """

    def __init__(self, where: KnowsBefore) -> None:
        if not isinstance(where, KnowsBefore):
            raise ValueError(
                f"where must know its offset before the only pass, got {where!r}: write "
                "Displaced(Momentum(rho=0.05, sign=1))."
            )
        if where.share:
            raise ValueError(f"where must need no pass of its own, got {where!r}: use where=PartOfBatch(…) instead.")
        self.where: KnowsBefore = where

    def ahead(self) -> KnowsBefore:
        """Return `where`."""
        return self.where

    def describe(self) -> str:
        """Describe this part in a phrase that completes a sentence."""
        return f"takes the only gradient in between {self.where.describe()} (rho = {self.where.rho:g})"
