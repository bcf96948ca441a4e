"""Sample in the last part of a run only, as late SAM does."""

from vsam.checks import check_fraction
from vsam.parts import KnowsLength

__all__ = ["Tail"]


class Tail(KnowsLength):
    """Take the second gradient at the last steps of the run: where step > T − round(share · T).

    Args:
        share: the fraction of the steps, in (0, 1].
        total_steps: T, the length of the run. A longer run keeps sampling. None if an integration sets it later.

    Reduces to: `Always` with share = 1.
    Cost: 1 + share passes per step on average, all of the second ones at the end.

    Example:
        >>> [Tail(0.5, total_steps=4).before(step) for step in (1, 2, 3, 4)]
        [False, False, True, True]

    Reference: Zhou et al., Sharpness-Aware Minimization Efficiently Selects Flatter Minima Late in Training, ICLR 2025.
    """

    def __init__(self, share: float, total_steps: int | None = None) -> None:
        self.share = check_fraction("share", share, zero=False)
        self.set_total_steps(total_steps)

    def set_total_steps(self, total_steps: int | None) -> None:
        """Set the length of the run, if it is not known yet. At least one step must be sampled."""
        super().set_total_steps(total_steps)
        if self.total_steps is not None and self.num_tail < 1:
            length, self.total_steps = self.total_steps, None
            raise ValueError(
                f"share must round to at least one step (it is last= of vsam.SAM), got {self.share} of {length} steps: "
                f"no step would be sampled. Give at least {1 / length:.3g}."
            )

    @property
    def num_tail(self) -> int:
        """The number of sampled steps in a run of that length."""
        return round(self.share * self.length)

    @property
    def rate(self) -> float:
        """The fraction of the steps, over the whole run."""
        return self.share

    @property
    def expected_rate(self) -> float:
        """The fraction of the steps."""
        return self.share

    def before(self, step: int) -> bool:
        """Return whether `step` belongs to the tail."""
        return step > self.length - self.num_tail

    def describe(self) -> str:
        """Describe this part in a phrase that completes a sentence."""
        if self.total_steps is None:
            return f"takes the second gradient in the last {self.share:.3g} of the run"
        return f"takes the second gradient at the last {self.num_tail} of {self.total_steps} steps"
