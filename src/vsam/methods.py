"""The named methods: each only chooses parts."""

import functools
from collections.abc import Callable
from dataclasses import fields
from typing import Literal, ParamSpec, Unpack

from torch import nn

from vsam.between import Decayed, Orthogonal, Plain, SurrogateGap, Weighted
from vsam.checks import check_budget, check_fraction, check_switch
from vsam.optimizer import Bases, Options, SharpnessAware
from vsam.parts import When
from vsam.selection import ESAM
from vsam.when import Always, Even, Every, GradientThreshold, ReleasedVariation, Tail, Variation
from vsam.where import AdaptiveMomentum, AdaptiveNorm, Friendly, GlobalNorm, Momentum, PartOfBatch

__all__ = ["AESAM", "ASAM", "ESAM", "GSAM", "MSAM", "SAM", "VSAM", "WSAM", "FriendlySAM", "LookSAM"]

Network = nn.Module | None
P = ParamSpec("P")


class SAM(SharpnessAware):
    """Sharpness-aware minimization: at every step, every k-th step, or late in the run.

    Args:
        base, model, options: as in `SharpnessAware`.
        rho: ρ ≥ 0, the radius.
        every: k, the steps from one sample to the next (SAM-k).
        last: the fraction of the run, at its end, in which steps are sampled (late SAM). Default: the whole run.
        total_steps: the length of the run, for `last`. The integrations know it.
        only: "norm" to perturb the parameters of normalisation layers only (SAM-ON); it needs `model`.
        share: the fraction of the batch that gives the direction, in (0, 1]: see `PartOfBatch` for the closure below 1.

    Cost: 1 + 1/k passes per step, 1 + last with `last`, 1 + share/k with `share`.
    Reference: Foret et al., Sharpness-Aware Minimization for Efficiently Improving Generalization, ICLR 2021.

    Example:
        >>> base = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> optimizer = SAM(base, model=model, rho=0.05)
    """

    def __init__(
        self,
        base: Bases,
        *,
        model: Network = None,
        rho: float = 0.05,
        every: int = 1,
        last: float | None = None,
        total_steps: int | None = None,
        only: Literal["norm"] | None = None,
        share: float = 1.0,
        **options: Unpack[Options],
    ) -> None:
        if last is None and total_steps is not None:
            raise ValueError("total_steps= is the length of the run for last=: write last=0.2, or leave it out.")
        if last is not None and every != 1:
            raise ValueError(f"every={every} and last={last} both choose the sampled steps: leave one out.")
        when, part = Every(every), PartOfBatch(rho, share, only)
        chosen = Tail(last, total_steps) if last is not None else Always() if when.k == 1 else when
        where = GlobalNorm(rho, only) if part.share == 1 else part
        super().__init__(base, model=model, **options, when=chosen, where=where)


class ASAM(SharpnessAware):
    """Adaptive SAM: the radius is measured in units of the weights.

    Args:
        base, model, options: as in `SharpnessAware`.
        rho: ρ ≥ 0, about ten times SAM's.
        eta: η ≥ 0, lets weights near zero move.
        only: "norm" to perturb the parameters of normalisation layers only; it needs `model`.

    Cost: two passes per step.
    Reference: Kwon et al., ASAM: Adaptive SAM for Scale-Invariant Learning of Deep Neural Networks, ICML 2021.
    """

    def __init__(
        self,
        base: Bases,
        *,
        model: Network = None,
        rho: float = 0.5,
        eta: float = 0.01,
        only: Literal["norm"] | None = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(base, model=model, **options, where=AdaptiveNorm(rho, eta, only))


class FriendlySAM(SharpnessAware):
    """Friendly SAM: perturb along the batch-specific part of the gradient, without what all batches share.

    Args:
        base, model, options: as in `SharpnessAware`.
        rho: ρ ≥ 0, the radius.
        sigma: σ ≥ 0, how much of the gradients' running average is subtracted from the direction.
        decay: λ in [0, 1), how slowly the average moves.

    Reduces to: `SAM` with σ = 0.
    Cost: two passes per step, one parameter-sized buffer.
    Reference: Li et al., Friendly Sharpness-Aware Minimization, CVPR 2024.
    """

    def __init__(
        self,
        base: Bases,
        *,
        model: Network = None,
        rho: float = 0.05,
        sigma: float = 1.0,
        decay: float = 0.9,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(base, model=model, **options, where=Friendly(rho, sigma, decay))


class GSAM(SharpnessAware):
    """Surrogate-gap SAM: also shrink the gap between the perturbed and the plain loss.

    Args:
        base, model, options: as in `SharpnessAware`.
        rho: ρ ≥ 0, the radius.
        alpha: α ≥ 0, the weight of the gap.

    Reduces to: `SAM` with α = 0.
    Cost: two passes per step, transient copies of the weights and the gradient.
    Reference: Zhuang et al., Surrogate Gap Minimization Improves Sharpness-Aware Training, ICLR 2022.
    """

    def __init__(
        self, base: Bases, *, model: Network = None, rho: float = 0.05, alpha: float = 0.4, **options: Unpack[Options]
    ) -> None:
        super().__init__(base, model=model, **options, where=GlobalNorm(rho), between=SurrogateGap(alpha))


class MSAM(SharpnessAware):
    """Momentum-SAM: take the only gradient further along the momentum, so that no second pass is needed.

    Args:
        base, model, options: as in `SharpnessAware`; the base needs momentum: SGD, Adam or AdamW.
        rho: ρ ≥ 0, the radius; much larger than SAM's, tune it separately.
        adaptive: measure the radius in units of the weights, as ASAM does.
        eta: η ≥ 0, lets weights near zero move if `adaptive`.
        only: "norm" to perturb the parameters of normalisation layers only; it needs `model`.
        sign: −1 is MSAM; 1 perturbs along the averaged gradient, which its authors tried and rejected.

    Cost: one pass per step, a transient copy of the weights. `step` needs a closure, and returns the loss at w + e.
    Reference: Becker et al., Momentum-SAM: Sharpness Aware Minimization without Computational Overhead, NeurIPS 2025.
    """

    def __init__(
        self,
        base: Bases,
        *,
        model: Network = None,
        rho: float = 3.0,
        adaptive: bool = False,
        eta: float = 0.01,
        only: Literal["norm"] | None = None,
        sign: int = -1,
        **options: Unpack[Options],
    ) -> None:
        moved = AdaptiveMomentum(rho, sign, eta, only)
        where = moved if check_switch("adaptive", adaptive) else Momentum(rho, sign, only)
        super().__init__(base, model=model, **options, where=where)


class WSAM(SharpnessAware):
    """Weighted SAM, in its coupled form: weigh the sharpness separately from the plain loss.

    Args:
        base, model, options: as in `SharpnessAware`.
        rho: ρ ≥ 0, the radius; small, since the PSF counts γ/(1 − γ) times.
        gamma: γ in [0, 1), the weight of the sharpness.

    Reduces to: `SAM` with γ = ½; the base optimizer with γ = 0.
    Cost: two passes per step, transient copies of the weights and the gradient.
    Reference: Yue et al., SAM Revisited: Weighted Sharpness as a Regularization Term, KDD 2023.
    """

    def __init__(
        self, base: Bases, *, model: Network = None, rho: float = 0.05, gamma: float = 0.9, **options: Unpack[Options]
    ) -> None:
        super().__init__(base, model=model, **options, where=GlobalNorm(rho), between=Weighted(gamma))


class LookSAM(SharpnessAware):
    """Sample every k-th step and reuse the orthogonal part of that gradient in between.

    Args:
        base, model, options: as in `SharpnessAware`.
        rho: ρ ≥ 0, the radius.
        every: k, the steps from one sample to the next.
        scale: λ ≥ 0, the weight of the reused part.

    Reduces to: `SAM` with k = 1, which reuses nothing and keeps no buffer.
    Cost: 1 + 1/k passes per step, one parameter-sized buffer.
    Reference: Liu et al., Towards Efficient and Scalable Sharpness-Aware Minimization, CVPR 2022.
    """

    def __init__(
        self,
        base: Bases,
        *,
        model: Network = None,
        rho: float = 0.05,
        every: int = 5,
        scale: float = 0.1,
        **options: Unpack[Options],
    ) -> None:
        when, between = Every(every), Orthogonal(scale)
        reused = Plain() if when.k == 1 else between
        super().__init__(base, model=model, **options, when=when, where=GlobalNorm(rho), between=reused)


class AESAM(SharpnessAware):
    """Sample when the squared gradient norm is large compared with its running mean.

    Args:
        base, model, options: as in `SharpnessAware`.
        rho: ρ ≥ 0, the radius.
        total_steps, delta, low, high: the length of the run and the threshold, as in `GradientThreshold`. The
            integrations know the length.

    Cost: about 1.5 passes per step, and one device sync per step for the gradient norm.
    Reference: Jiang et al., An Adaptive Policy to Employ Sharpness-Aware Minimization, ICLR 2023.
    """

    def __init__(
        self,
        base: Bases,
        *,
        model: Network = None,
        rho: float = 0.05,
        total_steps: int | None = None,
        delta: float = 0.9,
        low: float = -1.0,
        high: float = 1.0,
        **options: Unpack[Options],
    ) -> None:
        when = GradientThreshold(total_steps, delta, low, high)
        super().__init__(base, model=model, **options, when=when, where=GlobalNorm(rho))


def _with_budget_alone(make: Callable[P, None]) -> Callable[P, None]:
    """Raise if a budget comes with settings of the rule that it replaces, even with their default values."""

    of_the_rule = (*(one.name for one in fields(Variation)), "variant")

    @functools.wraps(make)
    def checked(*given: P.args, **named: P.kwargs) -> None:
        unused = ", ".join(f"{name}=" for name in of_the_rule if name in named)
        for budget in ("budget", "target"):
            if unused and named.get(budget) is not None:
                raise ValueError(f"{budget}= replaces the paper's rule: leave out {unused}, or leave out {budget}=.")
        make(*given, **named)

    return checked


class VSAM(SharpnessAware):
    """Variation-based SAM: sample more often while the PSF varies more, reuse it with decay in between.

    Args:
        base, model, options: as in `SharpnessAware`; the model also gives the order of the layers.
        rho: ρ ≥ 0, the radius.
        alpha, window, slices, start, initial_samples, min_samples, max_rate, watch, seed: as in `Variation`; `alpha`
            and `start` have to fit the length of the run.
        gamma: γ in [0, 1], how much of the PSF is left after each step; 0 is the ablation vSAM-A. Default: 0.7; with a
            budget, 1 − budget/2, so that a PSF still has about 0.6 of its weight at the next sample.
        variant: "paper" for what the paper prints, "released" for what the authors' program does.
        budget: in (0, 1], the fraction of steps that take the second gradient, evenly spread: see `Even`. It replaces
            the paper's rule, so of the settings above only `rho` and `gamma` may be given.
        target: the same as a multiple of SAM's speed, such as "1.6x", from 1 to below 2: a budget of 2/target − 1.

    Cost: 1 + rate passes per step, one parameter-sized buffer.
    Reference: Deng et al., Effective Gradient Sample Size via Variation Estimation for Accelerating SAM, 2024.

    Example:
        >>> base = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)
        >>> optimizer = VSAM(base, model=model, rho=0.05, alpha=0.1, gamma=0.7, start=1173)
    """

    @_with_budget_alone
    def __init__(
        self,
        base: Bases,
        *,
        model: Network = None,
        rho: float = 0.05,
        alpha: float = Variation.alpha,
        gamma: float | None = None,
        window: int = Variation.window,
        slices: int = Variation.slices,
        start: int = Variation.start,
        initial_samples: float = Variation.initial_samples,
        min_samples: float = Variation.min_samples,
        max_rate: float = Variation.max_rate,
        watch: int | None = Variation.watch,
        seed: int = Variation.seed,
        variant: Literal["paper", "released"] = "paper",
        budget: float | None = None,
        target: str | None = None,
        **options: Unpack[Options],
    ) -> None:
        if variant not in ("paper", "released"):
            raise ValueError(f"variant must be 'paper' or 'released', got {variant!r}.")
        share = check_budget(budget, target)
        gamma = default_gamma(share) if gamma is None else gamma
        rule = Variation if variant == "paper" else ReleasedVariation
        settings = (alpha, window, slices, start, initial_samples, min_samples, max_rate, watch, seed)
        when: When = rule(*settings) if share is None else Even(share)
        # Released: the PSF is dropped once its weight has fallen to γ⁶; the paper sets no limit.
        floor = 0.0 if variant == "paper" else check_fraction("gamma", gamma) ** 6
        super().__init__(base, model=model, **options, when=when, where=GlobalNorm(rho), between=Decayed(gamma, floor))


def default_gamma(budget: float | None = None) -> float:
    """Return γ if it is not given: the paper's 0.7, or what suits the gaps of a budget."""
    return 0.7 if budget is None else 1 - budget / 2
