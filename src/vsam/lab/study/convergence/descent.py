"""One run on the smooth problem under a decaying learning rate, with the averages of the paper's Lemma 2 along it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim import Optimizer

import vsam
from vsam.lab.study.convergence.smooth import SmoothProblem

__all__ = ["METHODS", "SETTINGS", "Schedule", "averages"]

METHODS = ("sgd", "sam", "vsam")
SETTINGS: dict[str, float] = {"batch": 16, "rho": 0.5, "gamma": 0.7}
"""The batch, ρ₀, and γ, which is vSAM's and the lemma's."""

# vSAM's law, set so that it samples from a fifth to most of the steps in such short runs.
_LAW = {"alpha": 0.2, "window": 20, "start": 20, "initial_samples": 4, "watch": None}
_EVERY_STEP, _SPACING = 200, 1.01


@dataclass(frozen=True)
class Schedule:
    """How learning rate and radius decay: η₀/t^a and ρ₀/t^b.

    Args:
        name: in rows and folders.
        title: in the figure.
        eta: η₀ > 0.
        power: a ≥ 0.
        rho_power: b ≥ 0.
    """

    name: str
    title: str
    eta: float
    power: float
    rho_power: float


def averages(
    problem: SmoothProblem,
    schedule: Schedule,
    method: str,
    seed: int,
    horizons: Sequence[int],
    tell: Callable[[int], object] = lambda step: None,
) -> list[dict[str, float]]:
    """Run a method to the last horizon; returns for each horizon T the averages over the steps up to it.

    ∇L is that of all images. The first 200 steps are all measured, then steps one percent apart, each of which stands
    for itself and those since the previous one.

    Args:
        problem: what is minimised.
        schedule: of the learning rate and the radius.
        method: sgd, sam or vsam.
        seed: of the initial weights and the batches, which are the same for all methods, and of vSAM's draws.
        horizons: ascending.
        tell: called with the step number at every measured step.
    """
    generator = torch.Generator().manual_seed(seed)
    weights = problem.begin(generator)
    optimizer = _optimizer(method, weights, seed)
    measured = _measured(horizons)
    sums = _Sums()
    points = []
    for step in range(1, horizons[-1] + 1):
        rate, rho = schedule.eta * step**-schedule.power, SETTINGS["rho"] * step**-schedule.rho_power
        sums.wait(rate)
        if step in measured:
            sums.take(*problem.gradients(weights, rho))
            tell(step)
        optimizer.param_groups[0].update({"lr": rate} if method == "sgd" else {"lr": rate, "rho": rho})
        optimizer.step(_closure(problem.draw(int(SETTINGS["batch"]), generator), weights))
        if step in horizons:
            points.append({"horizon": step, **sums.means(), "samples": getattr(optimizer, "num_samples", 0)})
    return points


class _Sums:
    """The sums behind the averages; steps wait until the one that stands for them is measured."""

    def __init__(self) -> None:
        self._steps = self._rates = self._waiting_steps = self._waiting_rates = 0.0
        self._lemma = self._plain = self._weighted = 0.0

    def wait(self, rate: float) -> None:
        self._waiting_steps += 1
        self._waiting_rates += rate

    def take(self, plain: torch.Tensor, sharp: torch.Tensor) -> None:
        value = float((plain + SETTINGS["gamma"] * (sharp - plain)).square().sum())
        self._lemma += self._waiting_steps * value
        self._weighted += self._waiting_rates * value
        self._plain += self._waiting_steps * float(plain.square().sum())
        self._steps, self._rates = self._steps + self._waiting_steps, self._rates + self._waiting_rates
        self._waiting_steps = self._waiting_rates = 0.0

    def means(self) -> dict[str, float]:
        return {
            "average": self._lemma / self._steps,
            "gradient_average": self._plain / self._steps,
            "weighted_average": self._weighted / self._rates,
        }


def _optimizer(method: str, weights: torch.nn.Parameter, seed: int) -> Optimizer:
    base = torch.optim.SGD([weights], lr=1.0)
    if method == "sgd":
        return base
    if method == "sam":
        return vsam.SAM(base, rho=SETTINGS["rho"])
    return vsam.VSAM(base, rho=SETTINGS["rho"], gamma=SETTINGS["gamma"], seed=seed, **_LAW)  # type: ignore[arg-type]


def _closure(batch: SmoothProblem, weights: torch.nn.Parameter) -> Callable[[], Any]:
    def closure() -> Any:
        weights.grad = None
        loss = batch.loss(weights)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    return closure


def _measured(horizons: Sequence[int]) -> set[int]:
    steps, step = set(horizons), 1
    while step < horizons[-1]:
        steps.add(step)
        step = step + 1 if step < _EVERY_STEP else max(step + 1, int(step * _SPACING))
    return steps
