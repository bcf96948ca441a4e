"""Measure how sharp the loss is around the weights of a model."""

import math
import random as python_random
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from vsam.errors import check_count, check_not_negative, check_positive
from vsam.sharpness import ascent, hessian
from vsam.sharpness.hessian import Krylov, Report
from vsam.sharpness.lemma import lemma1
from vsam.sharpness.losses import Losses
from vsam.sharpness.objective import Loss, Objective, Progress
from vsam.sharpness.results import Sharpness
from vsam.sharpness.session import Mode, check_batches, check_mode, untouched, unwrapped

__all__ = ["PARTS", "measure"]

PARTS = ("top_eigenvalues", "trace", "ascent", "worst", "random", "density", "lemma1")
"""What can be measured; the last two only on request."""

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
        model: the network; DDP modules measure the batches of all ranks, compiled ones run uncompiled.
        loss: `loss(model, batch)` returns the batch's mean loss; call the model that it is passed.
        batches: a list or DataLoader, iterated once per pass, with the same shuffling and dropout each time.
        rho: ρ ≥ 0, the distance of `ascent`, `worst` and `random`.
        what: which of "top_eigenvalues", "trace", "ascent", "worst", "random", "density", "lemma1".
        mode: "eval" or "train" behaviour of BatchNorm and dropout, or "unchanged".
        adaptive: measure distances and curvature in units of |w| + eta, as ASAM does; ρ is then about ten times larger.
        eta: for the adaptive form.
        groups: "layer", or a dict of names and parameters, to measure each of them separately as well.
        num_eigenvalues: how many of the largest ones.
        tolerance: relative, of eigenvalues and worst case; sampled averages count as converged at ten times that.
        max_iterations: largest number of Hessian-vector products for eigenvalues; also the nodes of the density.
        num_probes: Hessian-vector products for the trace.
        num_directions: pairs of opposite directions for `random`.
        max_steps: largest number of steps of projected ascent.
        num_starts: starting vectors of the density.
        seed: for all random vectors; no global generator is used.
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
    settings = _Settings(
        rho=check_not_negative("rho", rho),
        what=_check_what(what),
        mode=check_mode(mode),
        eta=check_not_negative("eta", eta) if adaptive else None,
        num_eigenvalues=_count("num_eigenvalues", num_eigenvalues),
        tolerance=check_positive("tolerance", tolerance),
        max_iterations=_count("max_iterations", max_iterations, least=max(2, num_eigenvalues)),
        num_probes=_count("num_probes", num_probes, least=2),
        num_directions=_count("num_directions", num_directions, least=2),
        max_steps=_count("max_steps", max_steps),
        num_starts=_count("num_starts", num_starts, least=2),
        seed=check_count("seed", seed, least=0, why="it seeds a generator"),
        progress=progress or (lambda stage, done, total: None),
    )
    check_batches(batches)
    inner = unwrapped(model)
    names = _names(inner, groups)
    with untouched(inner, batches, settings.mode) as rewind:
        objective = partial(Objective, model, loss, batches, rewind, eta=settings.eta)
        found = _measure(objective(), settings)
        if groups is None:
            return found
        layers = {name: _measure(objective(names=own), settings, f"{name}: ") for name, own in names.items()}
    return replace(found, layers=layers)


@dataclass(frozen=True)
class _Settings:
    rho: float
    what: frozenset[str]
    mode: Mode
    eta: float | None
    num_eigenvalues: int
    tolerance: float
    max_iterations: int
    num_probes: int
    num_directions: int
    max_steps: int
    num_starts: int
    seed: int
    progress: Progress

    def generator(self, part: str) -> torch.Generator:
        """Each part draws from its own generator, so that no result depends on what else is measured."""
        return torch.Generator().manual_seed(python_random.Random(f"{self.seed} {part}").getrandbits(62))


def _measure(objective: Objective, settings: _Settings, prefix: str = "") -> Sharpness:
    start, gradient = objective.gradient()
    if not math.isfinite(start.mean):
        raise ValueError(f"The loss at these weights is {start.mean}, so sharpness cannot be measured there.")
    parts = _Parts(objective, settings, start, gradient, lambda part: partial(settings.progress, prefix + part))
    found: dict[str, Any] = {}
    for part in PARTS:
        if part in settings.what:
            found |= getattr(parts, part)()
    return Sharpness(
        loss=start.mean,
        gradient_norm=gradient.norm().item(),
        rho=settings.rho,
        mode=settings.mode,
        adaptive=settings.eta is not None,
        num_parameters=objective.size,
        num_samples=start.num_samples,
        num_batches=start.num_batches,
        **found,
    )


class _Parts:
    """The parts of a measurement, each a method that returns the fields it fills."""

    def __init__(
        self,
        objective: Objective,
        settings: _Settings,
        start: Losses,
        gradient: Tensor,
        report: Callable[[str], Report],
    ) -> None:
        self._objective, self._settings, self._start, self._gradient = objective, settings, start, gradient
        self._report = report
        self._krylov = Krylov([], [], [])
        self._starts = [gradient]

    def top_eigenvalues(self) -> dict[str, Any]:
        own, part = self._settings, "top_eigenvalues"
        limits = (own.num_eigenvalues, own.tolerance, own.max_iterations)
        found, krylov = hessian.eigenvalues(self._objective, *limits, own.generator(part), self._report(part))
        top = krylov.vector(krylov.ritz()[1][:, 0])
        self._krylov, self._starts = krylov, [self._gradient, top, -top]
        return {part: found, "smallest_eigenvalue": hessian.smallest(krylov, own.tolerance)}

    def trace(self) -> dict[str, Any]:
        own, limits = self._settings, (self._settings.num_probes, 10 * self._settings.tolerance)
        generator, report = own.generator("trace"), self._report("trace")
        return {"trace": hessian.trace(self._objective, self._krylov, *limits, generator, report)}

    def ascent(self) -> dict[str, Any]:
        along = ascent.ascent(self._objective, self._settings.rho, self._start, self._gradient)
        self._report("ascent")(1, 2)
        each = ascent.batch_ascent(self._objective, self._settings.rho)
        self._report("ascent")(2, 2)
        return {"ascent": along, "batch_ascent": each}

    def worst(self) -> dict[str, Any]:
        own, limits = self._settings, (self._settings.max_steps, self._settings.tolerance)
        drawn = self._objective.random(own.generator("worst"))
        starts = [*self._starts, drawn, torch.zeros_like(drawn)]  # the weights themselves are in the ball
        return {"worst": ascent.worst(self._objective, own.rho, self._start, starts, *limits, self._report("worst"))}

    def random(self) -> dict[str, Any]:
        own, limits = self._settings, (self._settings.num_directions, 10 * self._settings.tolerance)
        generator, report = own.generator("random"), self._report("random")
        return {"random": ascent.random(self._objective, own.rho, self._start, *limits, generator, report)}

    def density(self) -> dict[str, Any]:
        own, report = self._settings, self._report("density")
        limits = (own.num_starts, own.max_iterations)
        return {"density": hessian.density(self._objective, *limits, own.generator("density"), report)}

    def lemma1(self) -> dict[str, Any]:
        own, report = self._settings, self._report("lemma1")
        return {"lemma1": lemma1(self._objective, own.rho, self._gradient, own.max_iterations, report)}


def _count(name: str, value: object, least: int = 1) -> int:
    return check_count(name, value, least=least, why="fewer give no error estimate")


def _check_what(what: object) -> frozenset[str]:
    asked = {what} if isinstance(what, str) else set(what) if isinstance(what, Collection) else {what}
    unknown = [name for name in asked if name not in PARTS]
    if unknown or not asked:
        got = repr(unknown[0]) if unknown else "nothing"
        raise ValueError(f"what must be some of {', '.join(PARTS)}, got {got}.")
    return frozenset(asked)


def _names(model: nn.Module, groups: Groups | None) -> dict[str, list[str]]:
    """For each group, the names of its trainable parameters."""
    known = {parameter: name for name, parameter in model.named_parameters() if parameter.requires_grad}
    if groups is None or groups == "layer":
        found: dict[str, list[str]] = {}
        for name in known.values():
            found.setdefault(name.rpartition(".")[0] or "(model)", []).append(name)
        return found
    if not isinstance(groups, Mapping):
        raise ValueError(f"groups must be 'layer' or a dict of names and lists of parameters, got {groups!r}.")
    chosen = {name: list(parameters) for name, parameters in groups.items()}
    for name, parameters in chosen.items():
        if not parameters or any(parameter not in known for parameter in parameters):
            raise ValueError(f"groups[{name!r}] must hold one or more trainable parameters of model.")
    return {name: [known[parameter] for parameter in parameters] for name, parameters in chosen.items()}  # type: ignore[index]
