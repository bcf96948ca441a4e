"""Our methods, a row each."""

from typing import Any

import vsam
from vsam.lab.methods.row import Method, base_alone, built_by
from vsam.lab.recipes.recipe import Recipe

__all__ = ["METHODS"]


def _every(recipe: Recipe, steps: int) -> int:
    """The number at the end of the method's name; 1 without one."""
    last = recipe.method.rpartition("-")[2]
    return int(last) if last.isdecimal() else 1


def _seed(recipe: Recipe, steps: int) -> int:
    return recipe.seed


def _total(recipe: Recipe, steps: int) -> int:
    return steps


def _asam_rho(recipe: Recipe, steps: int) -> Any:
    return recipe.value("asam.rho")


_RHO = "rho=0.02:0.5:log"
_VSAM_KEYS = ("rho", *(f"vsam.{name}" for name in ("alpha", "gamma", "window", "slices", "start", "variant")))
_VSAM_PAPER = (
    "Deng et al., Effective Gradient Sample Size via Variation Estimation for Accelerating Sharpness aware "
    "Minimization, 2024"
)

METHODS = (
    Method(
        "sgd",
        "SGD",
        "The base optimizer alone",
        "w ← w − η g",
        "1 pass a step",
        ("lr", "momentum", "weight_decay"),
        "Where the second gradient is affordable and the network overfits: sharpness-aware methods generalise better.",
        "Robbins and Monro, A Stochastic Approximation Method, 1951",
        base_alone,
        color="#808080",
        is_quantized=True,
    ),
    Method(
        "sam",
        "SAM",
        "The gradient at the worst nearby point, at every step",
        "e = ρ g/‖g‖,  w ← w − η ∇L(w + e)",
        "2 passes a step, a transient copy of the weights",
        ("rho",),
        "Where twice the time is too much (see vsam), or the network underfits: then it can only lose.",
        "Foret et al., Sharpness-Aware Minimization for Efficiently Improving Generalization, ICLR 2021",
        built_by(vsam.SAM, every=_every),
        search=_RHO,
        color="#0072b2",
        is_quantized=True,
    ),
    Method(
        "sam-5",
        "SAM-5",
        "SAM at every 5th step (any number works: sam-10, sam-2, …)",
        "as SAM at steps 1, 6, 11, …; w ← w − η g in between",
        "1.2 passes a step",
        ("rho",),
        "Where accuracy matters as much as speed: the paper finds most of SAM's gain lost.",
        _VSAM_PAPER + ", as a baseline",
        built_by(vsam.SAM, every=_every),
        search=_RHO,
        color="#56b4e9",
    ),
    Method(
        "sam-10",
        "SAM-10",
        "SAM at every 10th step",
        "as SAM at steps 1, 11, 21, …; w ← w − η g in between",
        "1.1 passes a step",
        ("rho",),
        "Where accuracy matters as much as speed: the paper finds most of SAM's gain lost.",
        _VSAM_PAPER + ", as a baseline",
        built_by(vsam.SAM, every=_every),
        search=_RHO,
        color="#3aa6a6",
    ),
    Method(
        "looksam-5",
        "LookSAM-5",
        "SAM at every 5th step, its orthogonal part reused in between",
        "gv = gs − (⟨gs, g⟩/‖g‖²) g;  w ← w − η (g + λ (‖g‖/‖gv‖) gv) in between",
        "1.2 passes a step, one parameter-sized buffer",
        ("rho", "looksam.scale"),
        "With λ = 0.7 on small CNNs: that value was published for vision transformers.",
        "Liu et al., Towards Efficient and Scalable Sharpness-Aware Minimization, CVPR 2022",
        built_by(vsam.LookSAM, "looksam", every=_every),
        search=f"{_RHO},looksam.scale=0.05:0.7:log",
        color="#009e73",
    ),
    Method(
        "esam",
        "ESAM",
        "SAM on a random part of the tensors and the samples that became worse",
        "e = ρ g_kept/‖g_kept‖/β on tensors kept with probability β; second gradient on the γ of samples with the "
        "largest loss increase",
        "1 + γ passes a step and a forward pass",
        ("rho", "esam.beta", "esam.gamma"),
        "For speed alone: the random tensors save almost nothing, and choosing samples costs a forward pass.",
        "Du et al., Efficient Sharpness-aware Minimization for Improved Training of Neural Networks, ICLR 2022",
        built_by(vsam.ESAM, "esam", seed=_seed),
        search=_RHO,
        color="#8a63d2",
    ),
    Method(
        "saf",
        "SAF",
        "One pass a step, each sample's prediction held near its own of some epochs ago",
        "loss = CE + λ τ² KL(softmax(z_old/τ) ‖ softmax(z/τ)), z_old the sample's logits E epochs ago",
        "1 pass a step; examples × (E + 1) × classes floats",
        ("saf.lag", "saf.temperature", "saf.weight", "saf.start_epoch"),
        "In runs of few epochs, where there is hardly a past, or with samples too many to remember.",
        "Du et al., Sharpness-Aware Training for Free, NeurIPS 2022",
        base_alone,
        search="saf.weight=0.05:2:log",
        color="#a8842c",
    ),
    Method(
        "mesa",
        "MESA",
        "One pass a step, predictions held near those of an average of past weights",
        "loss = CE + λ τ² KL(softmax(z_old/τ) ‖ softmax(z/τ)), z_old from an EMA of the weights",
        "1 pass and a forward pass a step; a copy of the model",
        ("mesa.decay", "mesa.temperature", "mesa.weight", "mesa.start_epoch"),
        "In short runs with the decay untouched: 0.9995 averages over 2,000 steps.",
        "Du et al., Sharpness-Aware Training for Free, NeurIPS 2022",
        base_alone,
        search="mesa.weight=0.1:4:log",
        color="#a4416b",
    ),
    Method(
        "ae-sam",
        "AE-SAM",
        "SAM where the gradient is large for its time",
        "sample iff ‖g‖² ≥ μ + c σ, with running mean μ and deviation σ, c from +1 to −1 over the run",
        "about 1.5 passes a step, a wait for ‖g‖ at every step",
        ("rho", "aesam.delta", "aesam.low", "aesam.high"),
        "In distributed runs that want to leave out work: it decides only after the first gradient.",
        "Jiang et al., An Adaptive Policy to Employ Sharpness-Aware Minimization, ICLR 2023",
        built_by(vsam.AESAM, "aesam", total_steps=_total),
        search=_RHO,
        color="#cc79a7",
    ),
    Method(
        "vsam",
        "vSAM",
        "SAM at sampled steps, more of them while the PSF varies more, its PSF reused in between",
        "PSF = gs − g;  w ← w − η (g + γ^age PSF) in between;  s ← s (1 + α ĉ_var + α ĉ_norm),  p = s/N",
        "1 + p passes a step, one parameter-sized buffer",
        _VSAM_KEYS,
        "In runs of few windows with α untouched: the law needs time to act, so α has to fit the length of the run.",
        _VSAM_PAPER,
        built_by(vsam.VSAM, "vsam", seed=_seed),
        search=f"{_RHO},vsam.alpha=0.05:0.5:log,vsam.gamma=0:0.95",
        color="#d55e00",
        is_quantized=True,
    ),
    Method(
        "vsam-a",
        "vSAM-A",
        "vSAM's sampling with the plain gradient in between",
        "as vSAM with γ = 0",
        "1 + p passes a step",
        _VSAM_KEYS,
        "For results: it is the ablation that shows what reuse is worth.",
        _VSAM_PAPER + ", as an ablation",
        built_by(vsam.VSAM, "vsam", seed=_seed, gamma=0.0),
        search=f"{_RHO},vsam.alpha=0.05:0.5:log",
        color="#e69f00",
    ),
    Method(
        "asam",
        "ASAM",
        "SAM with the radius measured in units of the weights",
        "t = |w| + η,  e = ρ t² g/‖t g‖,  w ← w − η ∇L(w + e)",
        "2 passes a step, a transient buffer",
        ("asam.rho", "asam.eta"),
        "With SAM's ρ: it wants about ten times as much.",
        "Kwon et al., ASAM: Adaptive Sharpness-Aware Minimization for Scale-Invariant Learning of Deep Neural "
        "Networks, ICML 2021",
        built_by(vsam.ASAM, "asam", rho=_asam_rho),
        search="asam.rho=0.2:5:log",
        color="#7d9a2b",
    ),
)
