"""Sample at random steps, at a fixed rate."""

import random

from vsam.checks import check_count, check_fraction
from vsam.parts import When

__all__ = ["Bernoulli"]


class Bernoulli(When):
    """Take the second gradient with probability `rate` at each step, whatever happened before.

    Args:
        rate: the probability, in (0, 1].
        seed: for the private generator that draws.

    Reduces to: `Always` with rate = 1; `Variation` with α = 0 after its start phase.
    Cost: 1 + rate passes per step on average. Gaps have no bound: about one sample in 150 is followed by a
    gap of 5/rate steps or more.

    Example:
        >>> when = Bernoulli(0.5, seed=1)
        >>> [when.before(step) for step in (1, 2, 3, 4)]
        [True, False, False, True]
    """

    rate: float = 1.0

    def __init__(self, rate: float, seed: int = 0) -> None:
        self.rate = check_fraction("rate", rate, zero=False)
        self.seed = check_count("seed", seed, least=0, why="seeds are not negative")
        self.generator: random.Random = random.Random(self.seed)

    @property
    def expected_rate(self) -> float:
        """The rate."""
        return self.rate

    def before(self, step: int) -> bool:
        """By draw."""
        return self.generator.random() < self.rate

    def describe(self) -> str:
        """Describe this part in a phrase that completes a sentence."""
        return f"takes the second gradient at each step with probability {self.rate:g}"
