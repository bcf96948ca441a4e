"""Sample at every k-th step, as SAM-k and LookSAM-k do."""

from vsam.checks import check_count
from vsam.parts import When

__all__ = ["Every"]


class Every(When):
    """Take the second gradient at steps 1, k + 1, 2k + 1, ….

    Args:
        k: steps from one sample to the next, at least 1.

    Reduces to: `Always` with k = 1.
    Cost: 1 + 1/k passes per step on average.

    Example:
        >>> [Every(3).before(step) for step in (1, 2, 3, 4)]
        [True, False, False, True]
    """

    def __init__(self, k: int) -> None:
        self.k = check_count("every", k, least=1, why="it counts steps from one sample to the next")

    @property
    def rate(self) -> float:
        """1/k."""
        return 1 / self.k

    @property
    def expected_rate(self) -> float:
        """1/k."""
        return 1 / self.k

    def before(self, step: int) -> bool:
        """Return whether `step` is 1 more than a multiple of k."""
        return (step - 1) % self.k == 0

    def describe(self) -> str:
        """Describe this part in a phrase that completes a sentence."""
        if self.k == 1:
            return "takes the second gradient at every step"
        return f"takes the second gradient at one step in {self.k}"
