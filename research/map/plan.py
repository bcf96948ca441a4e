"""The plan: settings, searches, and the runs that come next given the results so far."""

import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

from vsam.lab.jsonl import dump_lines

__all__ = ["HERE", "Choice", "Plan", "Results", "Run", "Setting", "explore", "read_plan"]

HERE = Path(__file__).parent
Line = Mapping[str, Any]


@dataclass(frozen=True)
class Setting:
    """One cell of the map: a network, its data and its length.

    Args:
        name: of the setting.
        model: of the lab, or of `models.py`.
        train, epochs: the number of training images, and of passes over them.
        base: the base optimizer, `sgd` or `adamw`.
        data: the dataset.
        batch: images per step.
        augment: crop and flip.
        noise: the fraction of wrong training labels.
        lr, weight_decay, rho: lists that replace those of all settings; `rho` not that of MSAM.
        held_out, test, curve: as at the plan's top, which they replace.
    """

    name: str
    model: str
    train: int
    epochs: int
    base: str = "sgd"
    data: str = "cifar10"
    batch: int = 32
    augment: bool = False
    noise: float = 0.0
    lr: tuple[float, ...] = ()
    weight_decay: tuple[float, ...] = ()
    rho: tuple[float, ...] = ()
    held_out: int = 0
    test: int = 0
    curve: int = 0


@dataclass(frozen=True)
class Run:
    """One training run. `horizons` are those of the weight averages that follow it."""

    setting: str
    phase: str
    method: str
    seed: int
    lr: float
    weight_decay: float
    rho: float
    epochs: int
    horizons: tuple[float, ...] = ()

    @property
    def key(self) -> tuple[Any, ...]:
        """Identity of the run."""
        return tuple(asdict(self).values())


@dataclass(frozen=True)
class Choice:
    """A searched value, and whether it is still at an end of its list."""

    value: float
    is_at_end: bool


class Results:
    """The finished runs of one setting, a line each."""

    def __init__(self, lines: Iterable[Line] = ()) -> None:
        self.lines: dict[tuple[Any, ...], Line] = {}
        for line in lines:
            self.add(line)

    def add(self, line: Line) -> None:
        """Add a finished run."""
        run = line["run"]
        self.lines[Run(**{**run, "horizons": tuple(run["horizons"])}).key] = line

    def get(self, run: Run) -> Line | None:
        """Return the line of a run, if it is finished."""
        return self.lines.get(run.key)

    def text(self) -> str:
        """Return the text of the file."""
        return dump_lines(self.lines.values())


def explore(
    values: Sequence[float], score: Callable[[float], float | None], extensions: int
) -> tuple[list[float], Choice | None]:
    """Return the values that still need a score, or the best one. A list whose best value is at an end is extended.

    Example:
        >>> explore([0.1, 0.2, 0.4], {0.1: 1.0, 0.2: 2.0}.get, extensions=1)
        ([0.4], None)
        >>> explore([0.1, 0.2, 0.4], {0.1: 1.0, 0.2: 2.0, 0.4: 3.0}.get, extensions=1)
        ([0.8], None)
    """
    tried = sorted(values)
    left = {0: extensions, -1: extensions}
    while True:
        scores = {value: found for value in tried if (found := score(value)) is not None}
        if missing := [value for value in tried if value not in scores]:
            return missing, None
        best = max(tried, key=scores.__getitem__)
        end = {tried[0]: 0, tried[-1]: -1}.get(best)
        if end is None or not left[end]:
            return [], Choice(best, end is not None)
        left[end] -= 1
        new = tried[0] ** 2 / tried[1] if end == 0 else tried[-1] ** 2 / tried[-2]
        tried = sorted([*tried, float(f"{new:.4g}")])


class Plan:
    """The rules of a plan file.

    Args:
        content: of the file.
    """

    def __init__(self, content: Mapping[str, Any]) -> None:
        self.content = content
        shared = {name: content[name] for name in ("held_out", "test", "curve")}
        self.settings: dict[str, Setting] = {}
        for name, row in content["setting"].items():
            lists = {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
            self.settings[name] = Setting(name, **{**shared, **lists})

    @cached_property
    def methods(self) -> tuple[str, ...]:
        """The methods whose rho is searched."""
        return tuple(self.content["method"])

    def seeds(self, setting: Setting) -> list[int]:
        """Return all seeds of a setting's confirming runs."""
        more = self.content["more_seeds"] if setting.name in self.content["eight_seeds"] else []
        return [*self.content["seeds"], *more]

    def choose(self, setting: Setting, done: Results) -> tuple[list[Run], dict[str, Choice]]:
        """Return the tuning runs that can start now, and what is chosen: by setting of the base, and rho by method."""
        base = self.content["base"][setting.base]
        rates, decays = setting.lr or base["lr"], setting.weight_decay or base["weight_decay"]
        chosen: dict[str, Choice] = {}
        for name, values, at in [
            ("lr", rates, lambda value: ("base", value, decays[1], 0.0)),
            ("weight_decay", decays, lambda value: ("base", chosen["lr"].value, value, 0.0)),
        ]:
            missing, choice = self._explore(setting, done, values, at)
            if choice is None:
                return missing, chosen
            chosen[name] = choice
        lr, weight_decay = chosen["lr"].value, chosen["weight_decay"].value
        chosen["horizon"] = self._choose_horizon(setting, done, lr, weight_decay)
        runs: list[Run] = []
        for method, row in self.content["method"].items():
            values = row["rho"] if method == "msam-adaptive" else setting.rho or row["rho"]
            at = lambda rho, method=method: (method, lr, weight_decay, rho)  # noqa: E731
            missing, choice = self._explore(setting, done, values, at)
            runs += missing
            if choice is not None:
                chosen[method] = choice
        return runs, chosen

    def confirming(self, setting: Setting, chosen: Mapping[str, Choice], seeds: Iterable[int]) -> list[Run]:
        """Return the runs with the chosen settings."""
        lr, weight_decay = chosen["lr"].value, chosen["weight_decay"].value
        runs = []
        for seed in seeds:
            own = ("base", seed, lr, weight_decay, 0.0)
            runs.append(Run(setting.name, "confirm", *own, setting.epochs, (chosen["horizon"].value,)))
            runs.append(Run(setting.name, "confirm", *own, 2 * setting.epochs))
            for method in self.methods:
                rho = chosen[method].value
                runs.append(Run(setting.name, "confirm", method, seed, lr, weight_decay, rho, setting.epochs))
        return runs

    def due(self, setting: Setting, done: Results, *, all_seeds: bool = True) -> list[Run]:
        """Return the runs that can start now. None if the setting is finished."""
        runs, chosen = self.choose(setting, done)
        if not runs:
            seeds = self.seeds(setting) if all_seeds else self.content["seeds"]
            runs = self.confirming(setting, chosen, seeds)
        return [run for run in runs if done.get(run) is None]

    def _explore(
        self, setting: Setting, done: Results, values: Sequence[float], at: Callable[[float], tuple[Any, ...]]
    ) -> tuple[list[Run], Choice | None]:
        """Return the runs of a search that are missing, or its choice."""

        def runs(value: float) -> list[Run]:
            return self._trials(setting, *at(value))

        def score(value: float) -> float | None:
            lines = [done.get(run) for run in runs(value)]
            return _mean(line["held_out_accuracy"] for line in lines if line) if all(lines) else None

        missing, choice = explore(values, score, self.content["extensions"])
        return [run for value in missing for run in runs(value) if done.get(run) is None], choice

    def _trials(self, setting: Setting, method: str, lr: float, weight_decay: float, rho: float) -> list[Run]:
        horizons = tuple(self.content["horizons"]) if method == "base" else ()
        return [
            Run(setting.name, "tune", method, seed, lr, weight_decay, rho, setting.epochs, horizons)
            for seed in self.content["tuning_seeds"]
        ]

    def _choose_horizon(self, setting: Setting, done: Results, lr: float, weight_decay: float) -> Choice:
        lines = [done.get(run) for run in self._trials(setting, "base", lr, weight_decay, 0.0)]
        scores = {
            horizon: _mean(line["averages"][place]["held_out_accuracy"] for line in lines if line)
            for place, horizon in enumerate(self.content["horizons"])
        }
        return Choice(max(scores, key=scores.__getitem__), is_at_end=False)


def _mean(values: Iterable[float]) -> float:
    """Return the mean, equal for equal sums."""
    return round(fmean(values), 6)


def read_plan(path: Path = HERE / "plan.toml") -> Plan:
    """Read a plan file."""
    return Plan(tomllib.loads(path.read_text(encoding="utf-8")))
