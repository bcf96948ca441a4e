"""The methods by the names that recipes and tables use: how to build each, and what to know about it."""

import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

import vsam
from vsam.lab.errors import UserError
from vsam.lab.recipes.recipe import Recipe

__all__ = ["METHODS", "Method", "build_optimizer", "find_method"]

Build = Callable[[Optimizer, nn.Module, Recipe, int], Optimizer]


@dataclass(frozen=True)
class Method:
    """A row of `vsam methods`, and the text of `vsam explain`.

    Args:
        name: in recipes and tables.
        summary: what it does, in one line.
        formula: what it computes.
        cost: in passes a step and memory.
        settings: the recipe's keys that it reads.
        avoid: when not to use it.
        reference: where it was published.
        build: wraps the base optimizer, given the network, the recipe and the number of steps of the run.
    """

    name: str
    summary: str
    formula: str
    cost: str
    settings: tuple[str, ...]
    avoid: str
    reference: str
    build: Build


def _every(name: str) -> int:
    return int(name.rpartition("-")[2])


def _sgd(base: Optimizer, model: nn.Module, recipe: Recipe, steps: int) -> Optimizer:
    return base


def _sam(base: Optimizer, model: nn.Module, recipe: Recipe, steps: int) -> Optimizer:
    every = 1 if recipe.method == "sam" else _every(recipe.method)
    return vsam.SAM(base, model=model, rho=recipe.rho, every=every)


def _asam(base: Optimizer, model: nn.Module, recipe: Recipe, steps: int) -> Optimizer:
    rho = 10 * recipe.rho if recipe.asam.rho is None else recipe.asam.rho
    return vsam.ASAM(base, model=model, rho=rho, eta=recipe.asam.eta)


def _looksam(base: Optimizer, model: nn.Module, recipe: Recipe, steps: int) -> Optimizer:
    every = _every(recipe.method)
    return vsam.LookSAM(base, model=model, rho=recipe.rho, every=every, scale=recipe.looksam.scale)


def _aesam(base: Optimizer, model: nn.Module, recipe: Recipe, steps: int) -> Optimizer:
    return vsam.AESAM(base, model=model, rho=recipe.rho, total_steps=steps, **recipe.aesam.model_dump())


def _esam(base: Optimizer, model: nn.Module, recipe: Recipe, steps: int) -> Optimizer:
    return vsam.ESAM(base, model=model, rho=recipe.rho, seed=recipe.seed, **recipe.esam.model_dump())


def _vsam(base: Optimizer, model: nn.Module, recipe: Recipe, steps: int) -> Optimizer:
    return vsam.VSAM(base, model=model, rho=recipe.rho, seed=recipe.seed, **recipe.vsam.model_dump())


def _vsam_a(base: Optimizer, model: nn.Module, recipe: Recipe, steps: int) -> Optimizer:
    settings = {**recipe.vsam.model_dump(), "gamma": 0.0}
    return vsam.VSAM(base, model=model, rho=recipe.rho, seed=recipe.seed, **settings)


_VSAM_KEYS = ("rho", *(f"vsam.{name}" for name in ("alpha", "gamma", "window", "slices", "start", "variant")))
_VSAM_PAPER = (
    "Deng et al., Effective Gradient Sample Size via Variation Estimation for Accelerating Sharpness aware "
    "Minimization, 2024"
)

METHODS = (
    Method(
        "sgd",
        "The base optimizer alone",
        "w ← w − η g",
        "1 pass a step",
        ("lr", "momentum", "weight_decay"),
        "Where the second gradient is affordable and the network overfits: sharpness-aware methods generalise better.",
        "Robbins and Monro, A Stochastic Approximation Method, 1951",
        _sgd,
    ),
    Method(
        "sam",
        "The gradient at the worst nearby point, at every step",
        "e = ρ g/‖g‖,  w ← w − η ∇L(w + e)",
        "2 passes a step, a transient copy of the weights",
        ("rho",),
        "Where twice the time is too much (see vsam), or the network underfits: then it can only lose.",
        "Foret et al., Sharpness-Aware Minimization for Efficiently Improving Generalization, ICLR 2021",
        _sam,
    ),
    Method(
        "sam-5",
        "SAM at every 5th step (any number works: sam-10, sam-2, …)",
        "as SAM at steps 1, 6, 11, …; w ← w − η g in between",
        "1.2 passes a step",
        ("rho",),
        "Where accuracy matters as much as speed: the paper finds most of SAM's gain lost.",
        _VSAM_PAPER + ", as a baseline",
        _sam,
    ),
    Method(
        "sam-10",
        "SAM at every 10th step",
        "as SAM at steps 1, 11, 21, …; w ← w − η g in between",
        "1.1 passes a step",
        ("rho",),
        "Where accuracy matters as much as speed: the paper finds most of SAM's gain lost.",
        _VSAM_PAPER + ", as a baseline",
        _sam,
    ),
    Method(
        "looksam-5",
        "SAM at every 5th step, its orthogonal part reused in between",
        "gv = gs − (⟨gs, g⟩/‖g‖²) g;  w ← w − η (g + λ (‖g‖/‖gv‖) gv) in between",
        "1.2 passes a step, one parameter-sized buffer",
        ("rho", "looksam.scale"),
        "With λ = 0.7 on small CNNs: that value was published for vision transformers.",
        "Liu et al., Towards Efficient and Scalable Sharpness-Aware Minimization, CVPR 2022",
        _looksam,
    ),
    Method(
        "esam",
        "SAM on a random part of the tensors and the samples that became worse",
        "e = ρ g_kept/‖g_kept‖/β on tensors kept with probability β; second gradient on the γ of samples with the "
        "largest loss increase",
        "1 + γ passes a step and a forward pass",
        ("rho", "esam.beta", "esam.gamma"),
        "For speed alone: the random tensors save almost nothing, and choosing samples costs a forward pass.",
        "Du et al., Efficient Sharpness-aware Minimization for Improved Training of Neural Networks, ICLR 2022",
        _esam,
    ),
    Method(
        "saf",
        "One pass a step, each sample's prediction held near its own of some epochs ago",
        "loss = CE + λ τ² KL(softmax(z_old/τ) ‖ softmax(z/τ)), z_old the sample's logits E epochs ago",
        "1 pass a step; samples × (E + 1) × classes floats",
        ("saf.lag", "saf.temperature", "saf.weight", "saf.start_epoch"),
        "In runs of few epochs, where there is hardly a past, or with samples too many to remember.",
        "Du et al., Sharpness-Aware Training for Free, NeurIPS 2022",
        _sgd,
    ),
    Method(
        "mesa",
        "One pass a step, predictions held near those of an average of past weights",
        "loss = CE + λ τ² KL(softmax(z_old/τ) ‖ softmax(z/τ)), z_old from an EMA of the weights",
        "1 pass and a forward pass a step; a copy of the model",
        ("mesa.decay", "mesa.temperature", "mesa.weight", "mesa.start_epoch"),
        "In short runs with the decay untouched: 0.9995 averages over 2,000 steps.",
        "Du et al., Sharpness-Aware Training for Free, NeurIPS 2022",
        _sgd,
    ),
    Method(
        "ae-sam",
        "SAM where the gradient is large for its time",
        "sample iff ‖g‖² ≥ μ + c σ, with running mean μ and deviation σ, c from +1 to −1 over the run",
        "about 1.5 passes a step, a wait for ‖g‖ at every step",
        ("rho", "aesam.delta", "aesam.low", "aesam.high"),
        "In distributed runs that want to leave out work: it decides only after the first gradient.",
        "Jiang et al., An Adaptive Policy to Employ Sharpness-Aware Minimization, ICLR 2023",
        _aesam,
    ),
    Method(
        "vsam",
        "SAM at sampled steps, more of them while the PSF varies more, its PSF reused in between",
        "PSF = gs − g;  w ← w − η (g + γ^age PSF) in between;  s ← s (1 + α ĉ_var + α ĉ_norm),  p = s/N",
        "1 + p passes a step, one parameter-sized buffer",
        _VSAM_KEYS,
        "In runs of few windows with α untouched: the law needs time to act, so α has to fit the length of the run.",
        _VSAM_PAPER,
        _vsam,
    ),
    Method(
        "vsam-a",
        "vSAM's sampling with the plain gradient in between",
        "as vSAM with γ = 0",
        "1 + p passes a step",
        _VSAM_KEYS,
        "For results: it is the ablation that shows what reuse is worth.",
        _VSAM_PAPER + ", as an ablation",
        _vsam_a,
    ),
    Method(
        "asam",
        "SAM with the radius measured in units of the weights",
        "t = |w| + η,  e = ρ t² g/‖t g‖,  w ← w − η ∇L(w + e)",
        "2 passes a step, a transient buffer",
        ("asam.rho", "asam.eta"),
        "With SAM's ρ: it wants about ten times as much.",
        "Kwon et al., ASAM: Adaptive Sharpness-Aware Minimization for Scale-Invariant Learning of Deep Neural "
        "Networks, ICML 2021",
        _asam,
    ),
)


def find_method(name: str) -> Method:
    """The method called `name`; `sam-K` and `looksam-K` take any K of at least 1."""
    by_name = {method.name: method for method in METHODS}
    if name in by_name:
        return by_name[name]
    if re.fullmatch(r"(sam|looksam)-[1-9][0-9]*", name):
        return by_name[f"{name.partition('-')[0]}-5"]
    near = difflib.get_close_matches(name, by_name, n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise UserError(f"There is no method {name!r}.{hint} Known: {', '.join(by_name)}.")


def build_optimizer(model: nn.Module, recipe: Recipe, steps: int) -> Optimizer:
    """The recipe's base optimizer, wrapped by its method."""
    groups: list[dict[str, Any]] = [{"params": list(model.parameters()), "weight_decay": recipe.weight_decay}]
    if recipe.quantize is not None:
        perturb_steps = recipe.quantize.perturb_steps
        groups = vsam.quantize.parameter_groups(model, recipe.weight_decay, perturb_steps=perturb_steps)
    if recipe.optimizer == "sgd":
        base: Optimizer = torch.optim.SGD(groups, lr=recipe.lr, momentum=recipe.momentum)
    else:
        base = torch.optim.AdamW(groups, lr=recipe.lr)
    try:
        return find_method(recipe.method).build(base, model, recipe, steps)
    except ValueError as error:
        raise UserError(f"{recipe.method}: {error}") from error
