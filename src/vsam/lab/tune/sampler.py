"""Which settings a trial tries: a function of the seed, the trial's number and earlier results."""

import hashlib
from collections.abc import Sequence
from typing import Any

from optuna import Study
from optuna.distributions import BaseDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler, TPESampler
from optuna.trial import FrozenTrial

from vsam.lab.tune.space import Range, Value

__all__ = ["NUM_RANDOM", "Sampler", "distribution"]

NUM_RANDOM = 10
"""Number of random trials before the sampler uses results."""


def distribution(one: Range) -> BaseDistribution:
    """The range as an Optuna distribution."""
    if one.whole:
        return IntDistribution(round(one.low), round(one.high), log=one.log)
    return FloatDistribution(one.low, one.high, log=one.log)


class Sampler(BaseSampler):
    """The recipe's own settings first, then random ones, then those of the tree-structured Parzen estimator.

    Optuna's samplers carry a generator from trial to trial, which is lost if the process is killed. Here each trial has
    its own, so that a resumed search tries the same settings.

    Args:
        space: the ranges.
        own: the recipe's own settings within them, tried by trial 0.
        seed: of all draws.
    """

    def __init__(self, space: Sequence[Range], own: dict[str, Value], seed: int) -> None:
        self._space = {one.key: one for one in space}
        self._own, self._seed = own, seed

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """What the estimator samples jointly: all settings, as soon as there are results."""
        return self._estimator(trial).infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """All settings jointly from the estimator, or none while there are too few results."""
        values = self._estimator(trial).sample_relative(study, trial, search_space)
        return {key: self._space[key].tidy(value) for key, value in values.items()}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """One setting: the recipe's own for trial 0, else random within its range."""
        if trial.number == 0 and param_name in self._own:
            return self._own[param_name]
        return self._space[param_name].at(self._bits(trial.number, param_name) / 2**32)

    def _estimator(self, trial: FrozenTrial) -> TPESampler:
        seed = self._bits(trial.number, "")
        return TPESampler(seed=seed, n_startup_trials=NUM_RANDOM, multivariate=True, constant_liar=True)

    def _bits(self, number: int, name: str) -> int:
        """32 random bits per trial and setting."""
        digest = hashlib.sha256(f"{self._seed} {number} {name}".encode()).digest()
        return int.from_bytes(digest[:4], "big")
