"""The paper's lemma 2 against measurement: the average squared gradient norm over T.

python -m research.lemma2 --scale small

The lemma says (1/T) Σ E‖∇L(w_t) + γ ∇L^PSF(w_t)‖² ≤ C₁ + C₂ ln T under the learning rate η₀/t. What is wrong with it
is in docs/reproduction.md. SGD, SAM and vSAM run on `SmoothProblem`, where L is smooth and L, gradients and PSF
are bounded: under the lemma's rate with a large and a small η₀, under η₀/√t, and under η₀/√t with ρ₀/√t. No schedule
knows T, so one run gives the averages for all T. Finished runs are kept: rerun the command to resume.
"""

import argparse
import json
import math
import shlex
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn import functional

import vsam
from vsam.lab.data.fashion import load_fashion_mini
from vsam.lab.files import make_folder, write_atomically
from vsam.lab.jsonl import read_object
from vsam.lab.report.tables import markdown_table
from vsam.lab.study.run import write_files

__all__ = ["METHODS", "SCHEDULES", "Schedule", "SmoothProblem", "averages", "figures", "measure", "page", "slope"]

METHODS = ("sgd", "sam", "vsam")
SETTINGS: dict[str, float] = {"batch": 16, "rho": 0.5, "gamma": 0.7}
"""The batch, ρ₀, and γ, which is vSAM's and the lemma's."""

# vSAM's rule, set so that it samples from a fifth to most of the steps in such short runs.
_RULE: dict[str, Any] = {"alpha": 0.2, "window": 20, "start": 20, "initial_samples": 4, "watch": None}
_EVERY_STEP, _SPACING = 200, 1.01
# Images, seeds, and the horizons T.
SCALES: dict[str, tuple[int, int, tuple[int, ...]]] = {
    "tiny": (200, 2, (4, 12, 40)),
    "small": (1000, 3, (10, 30, 100, 300, 1_000, 3_000, 10_000)),
    "paper": (4000, 5, (10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 78_200)),
}
_MEANS = ("average", "gradient_average", "weighted_average", "samples")
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Schedule:
    """Decay of learning rate and radius: η₀/t^a and ρ₀/t^b."""

    name: str
    title: str
    eta: float
    power: float
    rho_power: float


SCHEDULES = (
    Schedule("lemma", "the lemma's η₀/t, η₀ = 100", 100.0, 1.0, 0.0),
    Schedule("lemma-small", "the lemma's η₀/t, η₀ = 10", 10.0, 1.0, 0.0),
    Schedule("root", "η₀/√t, η₀ = 100", 100.0, 0.5, 0.0),
    Schedule("root-radius", "η₀/√t and ρ₀/√t, η₀ = 100", 100.0, 0.5, 0.5),
)


@dataclass(frozen=True, eq=False)
class SmoothProblem:
    """Softmax regression with the Brier score: L(w) = mean over images of ‖softmax(w·x) − y‖², in float64.

    With ‖x‖ = 1 it is bounded, 0 ≤ L ≤ 2. Its gradients are, ‖∇L‖ ≤ √2, because ‖softmax′‖ ≤ 1/2 and ‖p − y‖ ≤ √2, and
    so are its second derivatives, because those of softmax are. Unlike that of cross-entropy, the loss is not convex.
    """

    features: Tensor
    targets: Tensor

    GRADIENT_BOUND = math.sqrt(2)
    """G₁ of the lemma, for any w and any batch."""

    @classmethod
    def from_images(cls, count: int) -> Self:
        """Return the problem on the first images that ship with the package, averaged to 7 × 7 pixels."""
        dataset = load_fashion_mini()
        images = functional.avg_pool2d(dataset.train_images[:count].double() / 255, 4).flatten(1)
        centred = functional.normalize(images - images.mean(0), dim=1)
        features = torch.cat([centred, torch.ones(len(centred), 1, dtype=torch.float64)], dim=1)
        targets = functional.one_hot(dataset.train_labels[:count], dataset.num_classes).double()
        return cls(functional.normalize(features, dim=1), targets)

    def begin(self, generator: torch.Generator) -> torch.nn.Parameter:
        """Return random weights near 0."""
        shape = self.features.shape[1], self.targets.shape[1]
        return torch.nn.Parameter(0.1 * torch.randn(shape, generator=generator, dtype=torch.float64))

    def draw(self, size: int, generator: torch.Generator) -> Self:
        """Return the problem on a batch, drawn with replacement, so that its gradient is unbiased."""
        chosen = torch.randint(len(self.features), (size,), generator=generator)
        return type(self)(self.features[chosen], self.targets[chosen])

    def loss(self, weights: Tensor) -> Tensor:
        """Return L(w)."""
        return (torch.softmax(self.features @ weights, dim=1) - self.targets).square().sum(1).mean()

    def gradients(self, weights: Tensor, rho: float) -> tuple[Tensor, Tensor]:
        """Return ∇L(w) and ∇L(w + ρ ∇L(w)/‖∇L(w)‖). The second minus the first is the PSF."""
        plain = self._gradient(weights.detach())
        return plain, self._gradient(weights.detach() + rho * plain / (plain.norm() + 1e-12))

    def _gradient(self, weights: Tensor) -> Tensor:
        at = weights.clone().requires_grad_()
        return torch.autograd.grad(self.loss(at), at)[0]


def averages(
    problem: SmoothProblem, schedule: Schedule, method: str, seed: int, horizons: Sequence[int]
) -> list[dict[str, float]]:
    """Run a method to the last horizon, and return for each horizon T the averages over the steps up to it.

    ∇L is that of all images. The first 200 steps are all measured, then steps one percent apart, each of which stands
    for itself and those since the previous one. Initial weights and batches are the same for all methods.
    """
    generator = torch.Generator().manual_seed(seed)
    weights = problem.begin(generator)
    optimizer = _optimizer(method, weights, seed)
    measured, points = _measured(horizons), []
    totals = dict.fromkeys(("steps", "rates", "average", "gradient_average", "weighted_average"), 0.0)
    waiting_steps = waiting_rates = 0.0  # of the steps that the next measured one stands for
    for step in range(1, horizons[-1] + 1):
        rate, rho = schedule.eta * step**-schedule.power, SETTINGS["rho"] * step**-schedule.rho_power
        waiting_steps, waiting_rates = waiting_steps + 1, waiting_rates + rate
        if step in measured:
            plain, sharp = problem.gradients(weights, rho)
            value = float((plain + SETTINGS["gamma"] * (sharp - plain)).square().sum())
            totals["average"] += waiting_steps * value
            totals["weighted_average"] += waiting_rates * value
            totals["gradient_average"] += waiting_steps * float(plain.square().sum())
            totals["steps"], totals["rates"] = totals["steps"] + waiting_steps, totals["rates"] + waiting_rates
            waiting_steps = waiting_rates = 0.0
        optimizer.param_groups[0].update({"lr": rate} if method == "sgd" else {"lr": rate, "rho": rho})
        batch = problem.draw(int(SETTINGS["batch"]), generator)

        def closure(batch: SmoothProblem = batch) -> Tensor:
            weights.grad = None
            loss = batch.loss(weights)
            loss.backward()
            return loss

        optimizer.step(closure)
        if step in horizons:
            means = {name: totals[name] / totals["steps"] for name in ("average", "gradient_average")}
            means["weighted_average"] = totals["weighted_average"] / totals["rates"]
            points.append({"horizon": step, **means, "samples": getattr(optimizer, "num_samples", 0)})
    return points


def _optimizer(method: str, weights: torch.nn.Parameter, seed: int) -> torch.optim.Optimizer:
    base = torch.optim.SGD([weights], lr=1.0)
    if method == "sgd":
        return base
    if method == "sam":
        return vsam.SAM(base, rho=SETTINGS["rho"])
    return vsam.VSAM(base, rho=SETTINGS["rho"], gamma=SETTINGS["gamma"], seed=seed, **_RULE)


def _measured(horizons: Sequence[int]) -> set[int]:
    steps, step = set(horizons), 1
    while step < horizons[-1]:
        steps.add(step)
        step = step + 1 if step < _EVERY_STEP else max(step + 1, int(step * _SPACING))
    return steps


def measure(scale: str, out: Path) -> dict[str, Any]:
    """Measure every schedule × method × seed that is missing, and return the study's record.

    A row is a method at a horizon T under a schedule: `average` is the lemma's, with γ = 0.7 for all methods, and
    `average_std` its deviation over seeds, `gradient_average` that of ‖∇L‖², `weighted_average` the lemma's with
    weights η_t. `trivial_bound` holds without any step, `samples` are the second gradients up to T.
    """
    images, seeds, horizons = SCALES[scale]
    problem = SmoothProblem.from_images(images)
    rows = []
    for schedule in SCHEDULES:
        for method in METHODS:
            cells = []
            for seed in range(seeds):
                path = out / "lemma2" / scale / schedule.name / method / f"seed-{seed}.json"
                settings = {**asdict(schedule), **SETTINGS, "method": method, "seed": seed, "horizons": list(horizons)}
                cell = read_object(path)
                if cell.get("settings") != settings:
                    make_folder(path.parent)
                    cell = {"settings": settings, "points": averages(problem, schedule, method, seed, horizons)}
                    write_atomically(path, json.dumps(cell, indent=1) + "\n")
                    print(path)
                cells.append(cell["points"])
            rows += _rows(schedule.name, method, cells)
    return {"study": "lemma2", "scale": scale, "rows": rows}


def _rows(schedule: str, method: str, cells: Sequence[Any]) -> list[dict[str, Any]]:
    """Return the means over seeds, one row per horizon."""
    rows = []
    for points in zip(*cells, strict=True):
        each = [point["average"] for point in points]
        settings = {"method": method, "schedule": schedule, "horizon": points[0]["horizon"], "seeds": len(points)}
        means = {name: statistics.fmean(point[name] for point in points) for name in _MEANS}
        spread = {"average_std": statistics.stdev(each), "trivial_bound": SmoothProblem.GRADIENT_BOUND**2}
        rows.append({**settings, **means, **spread, "seed_list": list(range(len(points))), "averages": each})
    return rows


def slope(rows: Sequence[Row], schedule: str, method: str) -> float:
    """Return the power of T by which the lemma's average changes over the last decade: −0.5 if it falls like 1/√T."""
    found = [row for row in rows if (row["schedule"], row["method"]) == (schedule, method)]
    first, last = next(row for row in found if 10 * row["horizon"] >= found[-1]["horizon"]), found[-1]
    return math.log(last["average"] / first["average"]) / math.log(last["horizon"] / first["horizon"])


def page(content: Row) -> str:
    """Return a page with a line per schedule and method. The lemma gets no verdict: no curve could contradict it."""
    rows = content["rows"]
    horizons = list(dict.fromkeys(row["horizon"] for row in rows))
    lines = [["learning rate", "method", *(f"T = {horizon:,}" for horizon in horizons), "power of T"]]
    sentences = ""
    for schedule in SCHEDULES:
        powers = {method: slope(rows, schedule.name, method) for method in METHODS}
        said = ", ".join(f"T^{power:+.2f} for {method}" for method, power in powers.items())
        sentences += f"- Under {schedule.title}, the average goes like {said} over the last decade of T.\n"
        for method in METHODS:
            own = [row for row in rows if (row["schedule"], row["method"]) == (schedule.name, method)]
            means = [f"{row['average']:.1e} ± {row['average_std']:.0e}" for row in own]
            lines.append([schedule.title, method, *means, f"{powers[method]:+.2f}"])
    head = f"Scale: {content['scale']}. {rows[0]['seeds']} seeds, mean ± deviation."
    return f"# The average of lemma 2 over T\n\n{head}\n\n{markdown_table(lines, left=2)}\n{sentences}"


def figures(content: Row) -> dict[str, Any]:
    """Return the lemma's average over T, a figure per schedule, with the range over seeds and the shape of a bound."""
    from vsam.lab.report.figures import Curve, curves, styles_for

    found = {}
    for schedule in SCHEDULES:
        lines = []
        for method in METHODS:
            own = [row for row in content["rows"] if (row["schedule"], row["method"]) == (schedule.name, method)]
            x = [math.log10(row["horizon"]) for row in own]
            y, low, high = ([f(row["averages"]) for row in own] for f in (statistics.fmean, min, max))
            lines.append(Curve(method, x, y, low, high))
        horizons = [row["horizon"] for row in own]
        name = "(1 + ln T)/√T" if schedule.power == 0.5 else "1 + ln T"
        shape = [(1 + math.log(one)) / (one**0.5 if schedule.power == 0.5 else 1) for one in horizons]
        lines.append(Curve(name, x, [lines[0].y[0] * value / shape[0] for value in shape]))
        axes = {"x": "log₁₀ T", "y": "average of lemma 2", "is_log": True, "is_count": False}
        found[f"lemma2-{schedule.name}"] = curves(lines, styles_for((*METHODS, name)), **axes)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is missing, and write numbers, tables and figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=tuple(SCALES), default="small")
    parser.add_argument("--out", type=Path, help="default: studies/SCALE")
    given = parser.parse_args(arguments)
    out = given.out or Path("studies") / given.scale
    content = measure(given.scale, out)
    content["command"] = shlex.join(
        ["python", "-m", "research.lemma2", *(sys.argv[1:] if arguments is None else arguments)]
    )
    for path in write_files(content, out, page(content), figures(content)):
        print(path)


if __name__ == "__main__":
    main()
