"""Sample more often while the PSF varies more, as vSAM does: equations 8 to 15 of the paper in their order."""

import math
import random
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from vsam._step.misuse import warn_caller
from vsam.checks import (
    check_count,
    check_entries,
    check_fraction,
    check_list,
    check_not_negative,
    check_number,
    check_positive,
    check_within,
)
from vsam.parts import When, generator_from, generator_state

__all__ = ["ReleasedVariation", "Variation"]

_NUMBERS, _LISTS = ("s", "num_used", "is_starting", "change_var", "change_norm"), ("psf_norms", "ratios", "variances")


@dataclass(eq=False, repr=False)
class Variation(When):
    """Take the second gradient with probability p = s/N, where s follows the variation of the PSF.

    Over the last N samples, with `n = ‖PSF‖` and `r = ‖PSF‖/‖g‖` on the watched tensors:
    `v` = mean over M slices of the sorted `n` of the variance within the slice (8),
    `ĉ_var` = mean relative change of `v` (9, 10), `ĉ_norm` = mean relative change of `r` (11–13).
    At the end of every window of N steps `s ← s · (1 + α·ĉ_var + α·ĉ_norm)` (14), `p = s/N` (15).

    Args:
        alpha: α ≥ 0, how strongly s follows; it has to fit the length of the run (docs/limits.md).
        window: N, a multiple of `slices` and at least twice as much.
        slices: M.
        start: the number of first steps, all sampled.
        initial_samples: s₁, samples per window after the start.
        min_samples: lower bound of s, above 0 so that sampling cannot die out.
        max_rate: s is at most `max_rate · N`, and a window holds no more samples than that.
        watch: how many of the last parameter tensors the norms cover; None for all.
        seed: for the private generator that draws.

    Reduces to: `Always` while `start` lasts; a fixed rate with α = 0.
    Cost: 1 + p passes per step, norms of the watched tensors at a sample, 3 N numbers.

    Example:
        >>> when = Variation(alpha=0.1, window=10, slices=5, start=2)
        >>> when.before(1), when.rate
        (True, 1.0)

    Reference: Deng et al., Effective Gradient Sample Size via Variation Estimation for Accelerating Sharpness aware
    Minimization, 2024.
    """

    alpha: float = 0.1
    window: int = 50
    slices: int = 5
    start: int = 100
    initial_samples: float = 1
    min_samples: float = 1
    max_rate: float = 0.8
    watch: int | None = 10
    seed: int = 0

    def __post_init__(self) -> None:
        self._check_settings()
        self.generator: random.Random = random.Random(self.seed)
        self.s = self.initial_samples
        self.num_used = 0
        self.is_starting = self.start > 0
        self.change_var: float | None = None
        self.change_norm: float | None = None
        self._psf_norms, self._ratios, self._variances = (deque[float](maxlen=self.window) for _ in _LISTS)
        # Far more than the rule looks back, even if many are not finite.
        self._waiting: deque[tuple[Tensor, Tensor]] = deque(maxlen=20 * self.window)

    def _check_settings(self) -> None:
        self.alpha = check_not_negative("alpha", self.alpha)
        self.slices = check_count("slices", self.slices, least=1, why="each slice of the sorted norms has a variance")
        self.window = check_count("window", self.window, least=2 * self.slices, why="a slice needs two values")
        if self.window % self.slices:
            raise ValueError(
                f"window must be divisible by slices, got window={self.window} and slices={self.slices}: slices are "
                f"equal. Try window={self.window - self.window % self.slices}."
            )
        self.start = check_count("start", self.start, least=0, why="it counts steps")
        self.max_rate = check_fraction("max_rate", self.max_rate, zero=False)
        self.min_samples = check_positive("min_samples", self.min_samples)
        self.initial_samples = check_not_negative("initial_samples", self.initial_samples)
        if self.num_allowed < 1:
            least = 1 / self.window
            raise ValueError(f"max_rate must be at least one sample per window, {least:.3g}, got {self.max_rate}.")
        if not self.min_samples <= self.initial_samples <= self.highest:
            bounds = f"min_samples and max_rate · window, {self.min_samples:g} to {self.highest:g}"
            raise ValueError(f"initial_samples must be between {bounds}, got {self.initial_samples:g}.")
        if self.watch is not None:
            self.watch = check_count("watch", self.watch, least=1, why="norms need a tensor")
        self.seed = check_count("seed", self.seed, least=0, why="seeds are not negative")

    @property
    def highest(self) -> float:
        """The upper bound of s."""
        return self.max_rate * self.window

    @property
    def num_allowed(self) -> int:
        """The number of samples that a window may hold."""
        return math.floor(self.highest + 1e-9)

    @property
    def rate(self) -> float:
        """p = s/N (15), and 1 in the start phase."""
        return 1.0 if self.is_starting else self.s / self.window

    def set_total_steps(self, total_steps: int | None) -> None:
        """Warn if the start phase covers the whole run, which would be SAM."""
        if total_steps is not None and 0 < total_steps <= self.start:
            warn_caller(
                f"start={self.start} covers all {total_steps} steps of the run, so that every step is sampled, as with "
                "SAM. Write vsam.VSAM(base, model=model, budget=0.2), or choose a smaller start=."
            )

    def before(self, step: int) -> bool:
        """Always in the start phase, then with probability p until the window is full."""
        if step <= self.start:
            return True
        if self.num_used >= self.num_allowed:
            return False
        return self.generator.random() >= 1 - self.s / self.window

    def observe(self, psf_norm: Tensor, grad_norm: Tensor) -> None:
        """Keep the norms on the device until a window ends."""
        self._waiting.append((psf_norm, grad_norm))

    def advance(self, step: int, was_sampled: bool, was_skipped: bool) -> None:
        """Count the sample. At the end of a window after the start phase, set s for the next one."""
        self.is_starting = step < self.start
        self.num_used += was_sampled
        if step % self.window == 0:
            self.num_used = 0
            self._fetch_norms()  # also in the start phase: waiting samples are copied at every step, in case it fails
            if step > self.start:
                self._update()

    def describe(self) -> str:
        """Describe this part in a phrase that completes a sentence."""
        return (
            f"takes the second gradient at the first {self.start} steps and then at random ones, more often while "
            f"the PSF varies more and at most at {self.max_rate:.0%} of the steps"
        )

    def details(self) -> dict[str, float | None]:
        """The target and the change rates of its latest update."""
        return {"s": self.s, "change_var": self.change_var, "change_norm": self.change_norm}

    def state_dict(self) -> dict[str, Any]:
        """Return the numbers of the rule and the state of the generator."""
        self._fetch_norms()
        numbers = {name: getattr(self, name) for name in _NUMBERS}
        lists = {name: list(getattr(self, f"_{name}")) for name in _LISTS}
        return {**numbers, **lists, "generator": generator_state(self.generator)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what `state_dict` returned. An invalid state raises and changes nothing."""
        check_entries(state, (*_NUMBERS, *_LISTS, "generator"))
        numbers = {name: state[name] for name in _NUMBERS}
        numbers["s"] = check_within("s", state["s"], self.min_samples, self.highest)
        why = "a window has no more steps"
        numbers["num_used"] = check_count("num_used", state["num_used"], least=0, most=self.window, why=why)
        if not isinstance(state["is_starting"], bool):
            raise ValueError(f"is_starting must be True or False, got {state['is_starting']!r}.")
        for name in ("change_var", "change_norm"):
            if state[name] is not None:
                numbers[name] = check_number(name, state[name])
        psf_norms, ratios, variances = (check_list(name, state[name], most=self.window) for name in _LISTS)
        if len(ratios) != len(psf_norms):
            raise ValueError(f"ratios must have as many values as psf_norms, got {len(ratios)} and {len(psf_norms)}.")
        if variances and len(psf_norms) < self.window:
            raise ValueError(f"variances must be empty until there are {self.window} psf_norms, got {len(psf_norms)}.")
        self.generator = generator_from(state["generator"])
        vars(self).update(numbers)
        self._waiting.clear()
        for kept, loaded in ((self._psf_norms, psf_norms), (self._ratios, ratios), (self._variances, variances)):
            kept.clear()
            kept.extend(loaded)

    def _fetch_norms(self) -> None:
        """Fetch the waiting norms from the device, all at once."""
        if not self._waiting:
            return
        psf_norms, grad_norms = (torch.stack(norms) for norms in zip(*self._waiting, strict=True))
        self._waiting.clear()
        for psf_norm, grad_norm in torch.stack((psf_norms, grad_norms)).T.tolist():
            ratio = psf_norm / grad_norm if grad_norm > 0 else 0.0
            # Finite gradients can have norms, ratios and variances beyond the range of floats.
            if math.isfinite(grad_norm + ratio + self.window * psf_norm * psf_norm):
                self._psf_norms.append(psf_norm)
                self._ratios.append(ratio)
                if len(self._psf_norms) == self.window:
                    self._variances.append(sliced_variance(self._psf_norms, self.slices))

    def _update(self) -> None:
        self._fetch_norms()
        # Paper: (10) and (13) do not say what to do with fewer than N values; s is left alone.
        if len(self._ratios) == len(self._variances) == self.window:
            self.change_var, self.change_norm = self._changes()
            s = self.s * (1 + self.alpha * self.change_var + self.alpha * self.change_norm)  # (14)
            # Paper: (14) has no lower bound, so sampling could die out.
            self.s = min(max(s, self.min_samples), self.highest)

    def _changes(self) -> tuple[float, float]:
        return mean_change(self._variances), mean_change(self._ratios)


class ReleasedVariation(Variation):
    """The rule of the authors' released program.

    It differs from `Variation`: windows are counted from the end of the start phase and hold exactly `int(s)` samples,
    forced at the end of the window if need be; the first N − 1 steps after the start hold none; each change rate is
    clamped to [−1, 1]; the upper bound of s is `int(max_rate · N)`.

    Arguments as for `Variation`.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.min_samples < 1:
            raise ValueError(f"min_samples must be at least 1, got {self.min_samples:g}: the samples are int(s).")
        self.num_used = 1

    @property
    def highest(self) -> float:
        """The upper bound of s."""
        return int(self.max_rate * self.window)

    def before(self, step: int) -> bool:
        """By draw while the quota lasts, and always once only as many steps are left as samples."""
        if step <= self.start:
            return True
        quota, counter = int(self.s), step - self.start
        num_left = self.window - counter % self.window
        drawn = self.num_used < quota and self.generator.random() >= 1 - self.s / self.window
        return drawn or num_left <= quota - self.num_used

    def advance(self, step: int, was_sampled: bool, was_skipped: bool) -> None:
        """Count the sample. Set s before the first step of the next window."""
        self.is_starting = step < self.start
        if step <= self.start:
            if step % self.window == 0:
                self._fetch_norms()
            return
        self.num_used += was_sampled
        if (step + 1 - self.start) % self.window == 0:
            self.num_used = 0
            self._update()

    def _changes(self) -> tuple[float, float]:
        change_var, change_norm = super()._changes()
        return min(max(change_var, -1.0), 1.0), min(max(change_norm, -1.0), 1.0)


def sliced_variance(values: Collection[float], num_slices: int) -> float:
    """The variance within each equal slice of the sorted values, averaged over the slices (8)."""
    # Plain Python: for a window's 50 values it takes a third of the time of tensors.
    ordered, size = sorted(values), len(values) // num_slices
    return sum(_variance(ordered[i : i + size]) for i in range(0, len(ordered), size)) / num_slices


def _variance(values: list[float]) -> float:
    """The mean squared distance from the mean."""
    size, first = len(values), values[0]
    offsets = [value - first for value in values]  # so that equal values have a variance of exactly 0
    mean = sum(offsets) / size
    return sum([(offset - mean) * (offset - mean) for offset in offsets]) / size


def mean_change(values: Collection[float]) -> float:
    """The mean of the relative changes from each value to the next (9, 10 and 12, 13)."""
    # Divide first, then sum: the sum can be beyond the range of floats, the mean cannot.
    return sum(relative_change(old, new) / (len(values) - 1) for old, new in pairwise(values))


def relative_change(old: float, new: float) -> float:
    """(new − old)/old, or 0 if that is not finite."""
    # Paper: (9) and (12) do not say what to do if the denominator is 0.
    change = (new - old) / old if old else 0.0
    return change if math.isfinite(change) else 0.0
