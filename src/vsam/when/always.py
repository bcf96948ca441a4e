"""Sample at every step, as SAM does."""

from vsam.parts import When

__all__ = ["Always"]


class Always(When):
    """Take the second gradient at every step.

    Cost: two passes per step.

    Example:
        >>> Always().rate
        1.0
    """

    rate = 1.0
    expected_rate = 1.0

    def before(self, step: int) -> bool:
        """Yes."""
        return True

    def describe(self) -> str:
        """Describe this part in a phrase that completes a sentence."""
        return "takes the second gradient at every step"
