"""Sample a given fraction of the steps, evenly spread."""

import math
from fractions import Fraction

from vsam.checks import check_fraction
from vsam.parts import When

__all__ = ["Even"]


class Even(When):
    """Take the second gradient at a fraction `budget` of the steps, as evenly spread as whole steps allow.

    Step i is sampled iff ⌈i · budget⌉ > ⌈(i − 1) · budget⌉, in exact arithmetic. So the first step is, n steps hold
    ⌈n · budget⌉ samples, and samples are at most ⌈1/budget⌉ steps apart, however long the run is.

    Args:
        budget: the fraction, in (0, 1].

    Reduces to: `Every(k)` with budget = 1/k; `Always` with 1.
    Cost: 1 + budget passes per step.

    Example:
        >>> when = Even(0.4)
        >>> [step for step in range(1, 11) if when.before(step)]
        [1, 3, 6, 8]
    """

    def __init__(self, budget: float) -> None:
        self.budget = check_fraction("budget", budget, zero=False)
        exact = Fraction(self.budget)
        near = exact.limit_denominator(10**6)  # 0.1 means a tenth, which no float is
        self._share = near if float(near) == self.budget else exact

    @property
    def rate(self) -> float:
        """The budget."""
        return self.budget

    @property
    def expected_rate(self) -> float:
        """The budget."""
        return self.budget

    @property
    def longest_gap(self) -> int:
        """The largest number of steps from one sample to the next."""
        return math.ceil(1 / self._share)

    def before(self, step: int) -> bool:
        """Return whether the number of samples due rises at this step."""
        return math.ceil(step * self._share) > math.ceil((step - 1) * self._share)

    def describe(self) -> str:
        """Describe this part in a phrase that completes a sentence."""
        return (
            f"takes the second gradient at {100 * self.budget:.3g} % of the steps, evenly spread and at most "
            f"{self.longest_gap} apart"
        )
