"""The named methods: each only chooses parts."""

from typing import Any, Literal, Unpack

from torch import nn

from vsam.between import Decayed, Orthogonal, Plain, SurrogateGap, Weighted
from vsam.budget import check_budget, default_gamma
from vsam.errors import check_fraction
from vsam.lightning_closure import NO_LOSSES, is_lightning
from vsam.optimizer import Bases, Options, SharpnessAware
from vsam.parameters import radii
from vsam.parts import When
from vsam.published import describe
from vsam.selection import Losses, Selection
from vsam.when import Always, Even, Every, GradientThreshold, ReleasedVariation, Variation
from vsam.where import AdaptiveNorm, Friendly, GlobalNorm, Momentum, PartOfBatch, RandomSubset
from vsam.wrapper import with_own_hooks

__all__ = ["AESAM", "ASAM", "ESAM", "GSAM", "MSAM", "SAM", "VSAM", "WSAM", "FriendlySAM", "LookSAM"]


class SAM(SharpnessAware):
    """Sharpness-aware minimization, and SAM-k with `every=k`.

    Args:
        base: a constructed optimizer.
        model: the network, for its BatchNorm statistics.
        rho: ρ ≥ 0, the radius.
        every: k, the steps from one sample to the next.
        only: "norm" to perturb the parameters of normalisation layers only (SAM-ON); it needs `model`.
        share: the fraction of the batch that gives the direction, in (0, 1]. Below 1 the closure takes it as its
            argument: see `PartOfBatch`.

    Cost: 1 + 1/k passes per step, 1 + share/k with a share.

    Example:
        >>> base = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> optimizer = SAM(base, model=model, rho=0.05)

    Reference: Foret et al., Sharpness-Aware Minimization for Efficiently Improving Generalization, ICLR 2021.
    """

    def __init__(
        self,
        base: Bases,
        *,
        model: nn.Module | None = None,
        rho: float = 0.05,
        every: int = 1,
        only: Literal["norm"] | None = None,
        share: float = 1.0,
        **options: Unpack[Options],
    ) -> None:
        when, part = Every(every), PartOfBatch(rho, share, only)
        chosen = Always() if when.k == 1 else when
        where = GlobalNorm(rho, only) if part.share == 1 else part
        super().__init__(base, model=model, **options, when=chosen, where=where)


class ASAM(SharpnessAware):
    """Adaptive SAM: the radius is measured in units of the weights.

    Args:
        base: a constructed optimizer.
        model: the network, for its BatchNorm statistics.
        rho: ρ ≥ 0, about ten times SAM's.
        eta: η ≥ 0, lets weights near zero move.
        only: "norm" to perturb the parameters of normalisation layers only; it needs `model`.

    Cost: two passes per step.

    Reference: Kwon et al., ASAM: Adaptive Sharpness-Aware Minimization for Scale-Invariant Learning of Deep Neural
    Networks, ICML 2021.
    """

    def __init__(
        self,
        base: Bases,
        *,
        model: nn.Module | None = None,
        rho: float = 0.5,
        eta: float = 0.01,
        only: Literal["norm"] | None = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(base, model=model, **options, where=AdaptiveNorm(rho, eta, only))


class FriendlySAM(SharpnessAware):
    """Friendly SAM: perturb along the batch-specific part of the gradient, without what all batches share.

    Args:
        base: a constructed optimizer.
        model: the network, for its BatchNorm statistics.
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
        model: nn.Module | None = None,
        rho: float = 0.05,
        sigma: float = 1.0,
        decay: float = 0.9,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(base, model=model, **options, where=Friendly(rho, sigma, decay))


class GSAM(SharpnessAware):
    """Surrogate-gap SAM: also shrink the gap between the perturbed and the plain loss.

    Args:
        base: a constructed optimizer.
        model: the network, for its BatchNorm statistics.
        rho: ρ ≥ 0, the radius.
        alpha: α ≥ 0, the weight of the gap.

    Reduces to: `SAM` with α = 0.
    Cost: two passes per step, transient copies of the weights and the gradient.

    Reference: Zhuang et al., Surrogate Gap Minimization Improves Sharpness-Aware Training, ICLR 2022.
    """

    def __init__(
        self,
        base: Bases,
        *,
        model: nn.Module | None = None,
        rho: float = 0.05,
        alpha: float = 0.4,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(base, model=model, **options, where=GlobalNorm(rho), between=SurrogateGap(alpha))


class MSAM(SharpnessAware):
    """Momentum-SAM: take the only gradient further along the momentum, so that no second pass is needed.

    `step` needs a closure, and returns the loss at w + e. Outside of the closure the weights are at w.

    Args:
        base: a constructed optimizer with momentum: SGD, Adam or AdamW.
        model: the network, for its BatchNorm statistics.
        rho: ρ ≥ 0, the radius; much larger than SAM's, tune it separately.
        sign: −1 is MSAM; 1 perturbs along the averaged gradient, with SAM's own ρ: experimental.

    Cost: one pass per step, a transient copy of the weights.

    Reference: Becker et al., Momentum-SAM: Sharpness Aware Minimization without Computational Overhead, 2024.
    """

    def __init__(
        self,
        base: Bases,
        *,
        model: nn.Module | None = None,
        rho: float = 3.0,
        sign: int = -1,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(base, model=model, **options, where=Momentum(rho, sign))


class WSAM(SharpnessAware):
    """Weighted SAM, in its coupled form: weigh the sharpness separately from the plain loss.

    Args:
        base: a constructed optimizer.
        model: the network, for its BatchNorm statistics.
        rho: ρ ≥ 0, the radius; small, since the PSF counts γ/(1 − γ) times.
        gamma: γ in [0, 1), the weight of the sharpness.

    Reduces to: `SAM` with γ = ½; the base optimizer with γ = 0.
    Cost: two passes per step, transient copies of the weights and the gradient.

    Reference: Yue et al., Sharpness-Aware Minimization Revisited: Weighted Sharpness as a Regularization Term, KDD
    2023.
    """

    def __init__(
        self,
        base: Bases,
        *,
        model: nn.Module | None = None,
        rho: float = 0.05,
        gamma: float = 0.9,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(base, model=model, **options, where=GlobalNorm(rho), between=Weighted(gamma))


class LookSAM(SharpnessAware):
    """Sample every k-th step and reuse the orthogonal part of that gradient in between.

    Args:
        base: a constructed optimizer.
        model: the network, for its BatchNorm statistics.
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
        model: nn.Module | None = None,
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
        base: a constructed optimizer.
        model: the network, for its BatchNorm statistics.
        rho: ρ ≥ 0, the radius.
        total_steps: T, the length of the run.
        delta: δ in [0, 1), how slowly mean and variance move.
        low: the threshold in standard deviations at the end of the run.
        high: the threshold at its start.

    Cost: about 1.5 passes per step, and one device sync per step for the gradient norm.

    Reference: Jiang et al., An Adaptive Policy to Employ Sharpness-Aware Minimization, ICLR 2023.
    """

    def __init__(
        self,
        base: Bases,
        *,
        total_steps: int,
        model: nn.Module | None = None,
        rho: float = 0.05,
        delta: float = 0.9,
        low: float = -1.0,
        high: float = 1.0,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(
            base, model=model, **options, when=GradientThreshold(total_steps, delta, low, high), where=GlobalNorm(rho)
        )


class ESAM(SharpnessAware):
    """Efficient SAM: perturb a random subset of tensors, take the second gradient where per-sample losses rose most.

    Args:
        base: a constructed optimizer.
        model: the network, for its BatchNorm statistics.
        rho: ρ ≥ 0, the radius.
        beta: β in (0, 1], the fraction of tensors that are perturbed (SWP); 1 turns that off.
        gamma: γ in (0, 1], the fraction of samples in the second gradient (SDS); 1 turns that off.
        seed: for the private generator that draws the tensors.

    Reduces to: `SAM` with β = γ = 1.
    Cost: two passes per step, the second on a fraction γ of the batch, and a forward pass to choose it. Dropout masks
    and batch statistics of the subset are not those of the batch.

    Example:
        >>> def losses(keep=None):
        ...     x, y = (inputs, targets) if keep is None else (inputs[keep], targets[keep])
        ...     return torch.nn.functional.cross_entropy(model(x), y, reduction="none")
        >>> loss = optimizer.step(losses)

    Reference: Du et al., Efficient Sharpness-aware Minimization for Improved Training of Neural Networks, ICLR 2022.
    """

    _settings = ("gamma",)

    def __init__(
        self,
        base: Bases,
        *,
        model: nn.Module | None = None,
        rho: float = 0.05,
        beta: float = 0.6,
        gamma: float = 0.5,
        seed: int = 0,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(base, model=model, **options, where=RandomSubset(rho, beta, seed))
        self.gamma = check_fraction("gamma", gamma, zero=False)

    @with_own_hooks
    def step(self, losses: Losses | None = None, *, scaler: Any = None, closure: Losses | None = None) -> Any:
        """Take one step; returns the mean loss of the first pass.

        Args:
            losses: `losses(keep=None)` returns the vector of per-sample losses of the batch, or of the indices `keep`,
                and does not call `backward`. It is called three times: with gradient, without, and on the subset.
            scaler: what scales the losses; `vsam.amp.GradScaler` passes itself.
            closure: another name for `losses`, which Fabric and Lightning use.
        """
        losses = closure if losses is None else losses
        if losses is None:
            raise RuntimeError(
                "ESAM needs per-sample losses: pass step() a function losses(keep=None) that returns the vector of "
                "losses of the batch, or of the indices keep, and does not call backward."
            )
        if not callable(losses):
            raise ValueError(f"losses must be a function, got {type(losses).__name__}: see the example of vsam.ESAM.")
        if is_lightning(losses):
            raise RuntimeError(NO_LOSSES)
        is_moving = any(radii(self.param_groups, self.where.rho))
        # If nothing moves, no sample's loss rises: keep all of them, as the base optimizer does.
        scale = (lambda loss: loss) if scaler is None else scaler.scale
        return self._step(Selection(losses, self.gamma if is_moving else 1.0, scale), scaler)

    def perturb(self, *, scaler: Any = None) -> bool:
        """Not supported: choosing samples needs their losses, which only `step(losses)` gets."""
        raise RuntimeError("ESAM chooses samples by their losses, so it has no perturb(): call step(losses).")

    def describe(self) -> str:
        """In plain words: what this method does, what it costs, and where it was published."""
        return describe(self.when, self.where, self.between, self.base, self.gamma)


class VSAM(SharpnessAware):
    """Variation-based SAM: sample more often while the PSF varies more, reuse it with decay in between.

    Args:
        base: a constructed optimizer.
        model: the network, for its BatchNorm statistics and the order of its layers.
        rho: ρ ≥ 0, the radius.
        alpha: α ≥ 0, how strongly the sampling rate follows the variation; it has to fit the length of the run.
        gamma: γ in [0, 1], how much of the PSF is left after each step; 0 is the ablation vSAM-A. Default: 0.7; with a
            budget, 1 − budget/2, so that a PSF still has about 0.6 of its weight at the next sample.
        window: N, the number of steps between updates of the rate.
        slices: M, the number of slices of the sorted norms.
        start: the number of first steps, all sampled.
        initial_samples: s₁, samples per window after the start.
        min_samples: lower bound of s.
        max_rate: the largest fraction of a window's steps that are sampled.
        watch: how many of the last parameter tensors the law looks at; None for all.
        seed: for the private generator that draws.
        variant: "paper" for what the paper prints, "released" for what the authors' program does.
        budget: in (0, 1], the fraction of steps that take the second gradient. It is met to within one sample for any
            model, data and length of the run; samples are evenly spread, at most ⌈1/budget⌉ steps apart. The law is
            not used then: of the settings above only `rho` and `gamma` apply.
        target: the same as a speed in multiples of SAM's, such as "1.6x", from 1 to below 2; the budget is
            2/target − 1.
        total_steps: T, the length of the run, needed with `budget` or `target`.

    Cost: 1 + rate passes per step, one parameter-sized buffer.

    Example:
        >>> base = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)
        >>> optimizer = VSAM(base, model=model, rho=0.05, alpha=0.1, gamma=0.7, start=1173)

    Reference: Deng et al., Effective Gradient Sample Size via Variation Estimation for Accelerating Sharpness aware
    Minimization, 2024.
    """

    def __init__(
        self,
        base: Bases,
        *,
        model: nn.Module | None = None,
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
        total_steps: int | None = None,
        **options: Unpack[Options],
    ) -> None:
        if variant not in ("paper", "released"):
            raise ValueError(f"variant must be 'paper' or 'released', got {variant!r}.")
        law = Variation if variant == "paper" else ReleasedVariation
        when: When = law(alpha, window, slices, start, initial_samples, min_samples, max_rate, watch, seed)
        share = check_budget(budget, target, total_steps, variant)
        gamma = default_gamma(share) if gamma is None else gamma
        if share is not None:
            assert total_steps is not None
            when = Even(share, total_steps)
        # Released: the PSF is dropped once its weight has fallen to γ⁶; the paper sets no limit.
        floor = 0.0 if variant == "paper" else check_fraction("gamma", gamma) ** 6
        super().__init__(base, model=model, **options, when=when, where=GlobalNorm(rho), between=Decayed(gamma, floor))
