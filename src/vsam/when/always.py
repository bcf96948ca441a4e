"""Sample at every step, as SAM does."""

from vsam.parts import DecidesBefore

__all__ = ["Always"]


class Always(DecidesBefore):
    """Take the second gradient at every step.

    Cost: two passes per step.

    Example:
        >>> Always().rate
        1.0
    """

    rate = 1.0
    expected_rate = 1.0

    def wants_sample(self, step: int) -> bool:
        """Yes."""
        return True

    def describe(self) -> str:
        """What this part does, as the end of a sentence."""
        return "takes the second gradient at every step"
