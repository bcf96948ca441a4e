"""Sample more often while the PSF varies more, as vSAM does: equations 8 to 15 of the paper in their order."""

import math
import random
from itertools import pairwise
from statistics import fmean
from typing import Any

import torch

from vsam.errors import check_count, check_fraction, check_not_negative
from vsam.parts import DecidesBefore, generator_from, generator_state
from vsam.records import Sample

__all__ = ["ReleasedVariation", "Variation"]


class Variation(DecidesBefore):
    """Take the second gradient with probability p = s/N, where s follows the variation of the PSF.

    Over the last N samples, with `n = ‖PSF‖` and `r = ‖PSF‖/‖g‖` on the watched tensors:
    `v` = mean over M slices of the sorted `n` of the variance within the slice (8),
    `ĉ_var` = mean relative change of `v` (9, 10), `ĉ_norm` = mean relative change of `r` (11–13).
    At the end of every window of N steps `s ← s · (1 + α·ĉ_var + α·ĉ_norm)` (14), `p = s/N` (15).

    Args:
        alpha: α ≥ 0, how strongly s follows; it has to fit the length of the run (see the README's caveats).
        window: N, a multiple of `slices` and at least twice as much.
        slices: M.
        start: the first steps, all sampled.
        initial: s₁, samples per window after the start.
        minimum: lower bound of s, above 0 so that sampling cannot die out.
        max_rate: s stays below `max_rate · N`, and a window holds no more samples than that.
        watch: how many of the last parameter tensors the norms look at; None for all.
        seed: of the private generator that draws.

    Reduces to: `Always` while `start` lasts; a fixed rate with α = 0.
    Cost: 1 + p passes a step, norms of the watched tensors at a sample, 3 N numbers.

    Example:
        >>> when = Variation(alpha=0.1, window=10, slices=5, start=2)
        >>> when.wants_sample(1), when.rate
        (True, 1.0)

    Reference: Deng et al., Effective Gradient Sample Size via Variation Estimation for Accelerating Sharpness aware
    Minimization, 2024.
    """

    _used_at_start = 0
    _least, _least_words = 1e-9, "above 0"

    def __init__(
        self,
        alpha: float = 0.1,
        window: int = 50,
        slices: int = 5,
        start: int = 100,
        initial: float = 1,
        minimum: float = 1,
        max_rate: float = 0.8,
        watch: int | None = 10,
        seed: int = 0,
    ) -> None:
        self.alpha = check_not_negative("alpha", alpha)
        self.slices = check_count("slices", slices, least=1, why="each slice of the sorted norms has a variance")
        self.window = check_count(
            "window", window, least=2 * self.slices, why="each slice needs two values to have a variance"
        )
        if self.window % self.slices:
            raise ValueError(
                f"window must be divisible by slices, got window={window} and slices={slices}: the sorted norms are "
                f"cut into equal slices. Try window={self.window - self.window % self.slices}."
            )
        self.start = check_count("start", start, least=0, why="it counts steps")
        self.max_rate = check_fraction("max_rate", max_rate, zero=False)
        self.minimum = check_not_negative("minimum", minimum)
        self.initial = check_not_negative("initial", initial)
        if self.minimum < self._least:
            raise ValueError(
                f"minimum must be {self._least_words}, got {minimum}: with less, sampling would die out for ever."
            )
        if self.num_allowed < 1:
            raise ValueError(
                f"max_rate must allow one sample a window, got {max_rate} of {window} steps: at least {1 / window:.3g}."
            )
        if not self.minimum <= self.initial <= self.highest:
            raise ValueError(
                f"initial must lie between minimum and max_rate · window, {self.minimum:g} to {self.highest:g}, "
                f"got {initial}."
            )
        self.watch = watch if watch is None else check_count("watch", watch, least=1, why="norms need a tensor")
        self.seed = check_count("seed", seed, least=0, why="seeds are not negative")
        self.generator: random.Random = random.Random(self.seed)
        self.s = self.initial
        self.num_used = self._used_at_start
        self.is_starting = self.start > 0
        self.change_var: float | None = None
        self.change_norm: float | None = None
        self._psf_norms: list[float] = []
        self._ratios: list[float] = []
        self._variances: list[float] = []
        self._waiting: list[Sample] = []

    @property
    def highest(self) -> float:
        """The upper bound of s."""
        return self.max_rate * self.window

    @property
    def num_allowed(self) -> int:
        """How many samples a window may hold."""
        return math.floor(self.highest + 1e-9)

    @property
    def rate(self) -> float:
        """p = s/N (15); 1 in the start phase."""
        return 1.0 if self.is_starting else self.s / self.window

    def wants_sample(self, step: int) -> bool:
        """Always in the start phase, then with probability p until the window holds its share."""
        if step <= self.start:
            return True
        if self.num_used >= self.num_allowed:
            return False
        return self.generator.random() >= 1 - self.s / self.window

    def observe(self, sample: Sample) -> None:
        """Keep the sample's norms on the device until a window ends."""
        self._waiting.append(sample)
        del self._waiting[: -20 * self.window]  # far more than the law looks back, also if many are not finite

    def advance(self, step: int, was_sampled: bool, was_skipped: bool) -> None:
        """Count the sample; at the end of a window behind the start phase, set s for the next one."""
        self.is_starting = step < self.start
        self.num_used += was_sampled
        if step % self.window == 0:
            self.num_used = 0
            if step > self.start:
                self._update()

    def describe(self) -> str:
        """What this part does, as the end of a sentence."""
        return (
            f"takes the second gradient at the first {self.start} steps and then at sampled ones, more often while "
            f"the PSF varies more and at most at {self.max_rate:.0%} of the steps"
        )

    def details(self) -> dict[str, float | None]:
        """The target and the change rates of its latest update."""
        return {"s": self.s, "change_var": self.change_var, "change_norm": self.change_norm}

    def state_dict(self) -> dict[str, Any]:
        """The law's numbers and the generator."""
        self._take_in()
        names = ("s", "num_used", "is_starting", "change_var", "change_norm")
        return {
            **{name: getattr(self, name) for name in names},
            "psf_norms": list(self._psf_norms),
            "ratios": list(self._ratios),
            "variances": list(self._variances),
            "generator": generator_state(self.generator),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what `state_dict` returned."""
        self.generator = generator_from(state["generator"])
        for name in ("s", "num_used", "is_starting", "change_var", "change_norm"):
            setattr(self, name, state[name])
        self._psf_norms, self._ratios = list(state["psf_norms"]), list(state["ratios"])
        self._variances, self._waiting = list(state["variances"]), []

    def _take_in(self) -> None:
        """Fetch the waiting norms from the device, all at once."""
        if not self._waiting:
            return
        rows = torch.stack([torch.stack((w.psf_norm, w.grad_norm, w.is_finite.to(w.psf_norm))) for w in self._waiting])
        self._waiting = []
        for psf_norm, grad_norm, is_finite in rows.tolist():
            if is_finite:
                self._append(self._psf_norms, psf_norm)
                self._append(self._ratios, psf_norm / grad_norm if grad_norm > 0 else 0.0)
                if len(self._psf_norms) == self.window:
                    self._append(self._variances, sliced_variance(self._psf_norms, self.slices))

    def _append(self, values: list[float], value: float) -> None:
        values.append(value)
        del values[: -self.window]

    def _update(self) -> None:
        self._take_in()
        # Paper: (10) and (13) do not say what holds while there are fewer than N values; s is left alone.
        if len(self._ratios) == len(self._variances) == self.window:
            self.change_var, self.change_norm = self._changes()
            s = self.s * (1 + self.alpha * self.change_var + self.alpha * self.change_norm)  # (14)
            # Paper: (14) has no lower bound, with which sampling could die out.
            self.s = min(max(s, self.minimum), self.highest)

    def _changes(self) -> tuple[float, float]:
        return mean_change(self._variances), mean_change(self._ratios)


class ReleasedVariation(Variation):
    """The law of the authors' released program.

    It differs from `Variation`: windows are counted from the end of the start phase and hold exactly `int(s)` samples,
    taken at the latest at their end; the first N − 1 steps after the start hold none; each change rate is clamped to
    [−1, 1]; the upper bound of s is `int(max_rate · N)`.

    Arguments as for `Variation`.
    """

    _used_at_start = 1
    _least, _least_words = 1, "at least 1"

    @property
    def highest(self) -> float:
        """The upper bound of s."""
        return int(self.max_rate * self.window)

    def wants_sample(self, step: int) -> bool:
        """By draw while the quota lasts, and always where only as many steps are left as samples."""
        if step <= self.start:
            return True
        quota, counter = int(self.s), step - self.start
        num_left = self.window - counter % self.window
        drawn = self.num_used < quota and self.generator.random() >= 1 - self.s / self.window
        return drawn or num_left <= quota - self.num_used

    def advance(self, step: int, was_sampled: bool, was_skipped: bool) -> None:
        """Count the sample; set s before the first step of the next window."""
        self.is_starting = step < self.start
        if step <= self.start:
            return
        self.num_used += was_sampled
        if (step + 1 - self.start) % self.window == 0:
            self.num_used = 0
            self._update()

    def _changes(self) -> tuple[float, float]:
        change_var, change_norm = super()._changes()
        return min(max(change_var, -1.0), 1.0), min(max(change_norm, -1.0), 1.0)


def sliced_variance(values: list[float], num_slices: int) -> float:
    """The mean over equal slices of the sorted values of the variance within the slice (8)."""
    ordered = torch.tensor(values, dtype=torch.float64).sort().values
    return float(ordered.view(num_slices, -1).var(dim=1, correction=0).mean())


def mean_change(values: list[float]) -> float:
    """The mean of the relative changes from each value to the next (9, 10 and 12, 13)."""
    return fmean(relative_change(old, new) for old, new in pairwise(values))


def relative_change(old: float, new: float) -> float:
    """(new − old)/old; 0 where that is no number."""
    # Paper: (9) and (12) do not say what holds where the denominator is 0.
    change = (new - old) / old if old else 0.0
    return change if math.isfinite(change) else 0.0
