"""Measure how sharp the loss is around the weights of a model."""

import math
import random
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from vsam.checks import check_count, check_not_negative, check_positive
from vsam.sharpness import ascent, hessian
from vsam.sharpness.objective import Loss, Objective, Progress
from vsam.sharpness.results import Sharpness
from vsam.sharpness.session import Mode, check_batches, check_mode, untouched, unwrapped

PARTS = ("top_eigenvalues", "trace", "ascent", "worst", "random", "density")
"""What can be measured. The last one is measured only on request."""

Groups = Literal["layer"] | Mapping[str, Iterable[Tensor]]


def measure(
    model: nn.Module,
    loss: Loss,
    batches: Iterable[Any],
    rho: float = 0.05,
    *,
    what: Collection[str] = PARTS[:5],
    mode: Mode = "eval",
    adaptive: bool = False,
    eta: float = 0.01,
    groups: Groups | None = None,
    num_eigenvalues: int = 1,
    tolerance: float = 1e-2,
    max_iterations: int = 50,
    num_probes: int = 16,
    num_directions: int = 8,
    max_steps: int = 20,
    num_starts: int = 4,
    seed: int = 0,
    progress: Progress | None = None,
) -> Sharpness:
    """Measure how sharp the mean loss over batches is around the current weights, which stay unchanged.

    Args:
        model: the network. DDP modules measure the batches of all ranks, compiled ones run uncompiled.
        loss: `loss(model, batch)` returns the batch's mean loss and must call the model that it is passed.
        batches: a list or DataLoader, iterated once per pass, with the same shuffling and dropout each time.
        rho: ρ ≥ 0, the distance of `ascent`, `worst` and `random`.
        what: which of "top_eigenvalues", "trace", "ascent", "worst", "random", "density".
        mode: "eval" or "train" behaviour of BatchNorm and dropout, or "unchanged".
        adaptive: measure distances and curvature in units of |w| + eta, as ASAM does. ρ is then about ten times larger.
        eta: for the adaptive form.
        groups: "layer", or a dict of names and parameters, to measure each of them separately as well.
        num_eigenvalues: how many of the largest ones.
        tolerance: relative, of eigenvalues and worst case. Sampled averages count as converged at ten times that.
        max_iterations: largest number of Hessian-vector products for eigenvalues, and the nodes of the density.
        num_probes: Hessian-vector products for the trace.
        num_directions: pairs of opposite directions for `random`.
        max_steps: largest number of steps of projected ascent.
        num_starts: starting vectors of the density.
        seed: for all random vectors. No global generator is used.
        progress: called with stage, done and total.

    Cost: a Hessian-vector product takes two to four gradients over all batches. Memory is one vector per Lanczos
    iteration, and does not depend on the number of batches. Each group costs as much as the whole model.

    Example:
        >>> def loss(model, batch):
        ...     return torch.nn.functional.cross_entropy(model(batch[0]), batch[1])
        >>> found = measure(model, loss, [(inputs, targets)], rho=0.05)
        >>> found.top_eigenvalues.converged, found.worst.value >= found.ascent.value
        (True, True)
    """
    asked, unit = _check_what(what), check_not_negative("eta", eta) if adaptive else None
    rho, tolerance = check_not_negative("rho", rho), check_positive("tolerance", tolerance)
    num_eigenvalues = _count("num_eigenvalues", num_eigenvalues)
    max_iterations = _count("max_iterations", max_iterations, least=max(2, num_eigenvalues))
    num_probes = _count("num_probes", num_probes, least=2)
    num_directions = _count("num_directions", num_directions, least=2)
    max_steps = _count("max_steps", max_steps)
    num_starts = _count("num_starts", num_starts, least=2)
    check_count("seed", seed, least=0, why="it seeds a generator")
    check_batches(batches)
    inner = unwrapped(model)
    chosen = _groups(inner, groups)

    def measured(objective: Objective, prefix: str = "") -> Sharpness:
        def stage(part: str) -> Objective:
            # Each part has its own generator, so that no result depends on what else is measured.
            generator = torch.Generator().manual_seed(random.Random(f"{seed} {part}").getrandbits(62))
            return objective.stage(generator, partial(progress, prefix + part) if progress is not None else None)

        start, gradient = objective.gradient()
        if not math.isfinite(start.mean):
            raise ValueError(f"The loss at these weights is {start.mean}, so sharpness cannot be measured there.")
        found: dict[str, Any] = {}
        krylov, starts = hessian.Krylov(), [gradient]
        if "top_eigenvalues" in asked:
            limits = (num_eigenvalues, tolerance, max_iterations)
            found["top_eigenvalues"], krylov = hessian.eigenvalues(stage("top_eigenvalues"), *limits)
            found["smallest_eigenvalue"] = hessian.smallest(krylov, tolerance)
            starts += [krylov.top_vector(), -krylov.top_vector()]
        if "trace" in asked:
            found["trace"] = hessian.trace(stage("trace"), krylov, num_probes, 10 * tolerance)
        if "ascent" in asked:
            found["ascent"], found["batch_ascent"] = ascent.along_gradients(stage("ascent"), rho, start, gradient)
        if "worst" in asked:
            found["worst"] = ascent.worst(stage("worst"), rho, start, starts, max_steps, tolerance)
        if "random" in asked:
            found["random"] = ascent.random(stage("random"), rho, start, num_directions, 10 * tolerance)
        if "density" in asked:
            found["density"] = hessian.density(stage("density"), num_starts, max_iterations)
        sizes = (objective.size, start.num_samples, start.num_batches)
        return Sharpness(start.mean, gradient.norm().item(), rho, mode, adaptive, *sizes, **found)

    with untouched(inner, batches, check_mode(mode)) as rewind:
        objective = partial(Objective, model, loss, batches, rewind, eta=unit)
        found = measured(objective())
        if groups is None:
            return found
        layers = {name: measured(objective(weights=own), f"{name}: ") for name, own in chosen.items()}
    return replace(found, layers=layers)


def _count(name: str, value: object, least: int = 1) -> int:
    return check_count(name, value, least=least, why="fewer give no error estimate")


def _check_what(what: object) -> frozenset[Any]:
    asked = frozenset(what if isinstance(what, Collection) and not isinstance(what, str) else [what])
    if not asked or not asked.issubset(PARTS):
        got = repr(next(name for name in asked if name not in PARTS)) if asked else "nothing"
        raise ValueError(f"what must be some of {', '.join(PARTS)}, got {got}.")
    return asked


def _groups(model: nn.Module, groups: Groups | None) -> dict[str, list[nn.Parameter]]:
    """Return the trainable parameters of each group."""
    known = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    chosen: dict[str, list[Any]] = {}
    if groups is None or groups == "layer":
        for name, parameter in known.items():
            chosen.setdefault(name.rpartition(".")[0] or "(model)", []).append(parameter)
        return chosen
    if not isinstance(groups, Mapping):
        raise ValueError(f"groups must be 'layer' or a dict of names and lists of parameters, got {groups!r}.")
    chosen, trainable = {name: list(own) for name, own in groups.items()}, set(known.values())
    for name, own in chosen.items():
        if not own or not trainable.issuperset(own):
            raise ValueError(f"groups[{name!r}] must hold one or more trainable parameters of model.")
    return chosen
