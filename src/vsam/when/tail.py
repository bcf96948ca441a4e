"""Sample in the last part of a run only."""

from vsam.checks import check_count, check_fraction
from vsam.parts import When

__all__ = ["Tail"]


class Tail(When):
    """Take the second gradient at the last steps of the run: where step > T − round(share · T).

    Args:
        share: the fraction of the steps, in (0, 1].
        total_steps: T, the length of the run. A longer run keeps sampling.

    Reduces to: `Always` with share = 1.
    Cost: 1 + share passes per step on average, all of the second ones at the end.

    Example:
        >>> [Tail(0.5, total_steps=4).before(step) for step in (1, 2, 3, 4)]
        [False, False, True, True]
    """

    def __init__(self, share: float, total_steps: int) -> None:
        self.share = check_fraction("share", share, zero=False)
        self.total_steps = check_count("total_steps", total_steps, least=1, why="the tail is a fraction of the run")
        if self.num_tail < 1:
            raise ValueError(
                f"share must round to at least one step, got {share} of {total_steps} steps: no step would be "
                f"sampled. Give at least {1 / total_steps:.3g}."
            )

    @property
    def num_tail(self) -> int:
        """How many steps of a run of that length are sampled."""
        return round(self.share * self.total_steps)

    @property
    def rate(self) -> float:
        """The share, over the whole run."""
        return self.share

    @property
    def expected_rate(self) -> float:
        """The share."""
        return self.share

    def before(self, step: int) -> bool:
        """Whether `step` belongs to the tail."""
        return step > self.total_steps - self.num_tail

    def describe(self) -> str:
        """Describe this part in a phrase that completes a sentence."""
        return f"takes the second gradient at the last {self.num_tail} of {self.total_steps} steps"
