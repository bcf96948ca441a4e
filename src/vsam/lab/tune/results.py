"""The results of a search: its trials, the best of them, and their standard error."""

import csv
import io
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from vsam.lab.text import for_csv
from vsam.lab.tune.plan import Plan
from vsam.lab.tune.space import Value

__all__ = ["Result", "best_first", "count_states", "read_result", "standard_error", "to_csv", "to_json"]


@dataclass(frozen=True)
class Result:
    """A trial.

    Args:
        number: from 0; trial 0 tried the recipe's own settings if they are within the ranges.
        state: `complete`, `pruned`, `failed`, `running` or `waiting`.
        settings: what it tried.
        accuracy: on held-out training images after its last epoch, in percent, mean over seeds; None if it has none.
        epochs: how many it trained.
        loss: on the held-out images, likewise.
        samples: second gradients per run, mean over seeds.
        steps: per run.
        seconds: of training, all seeds together.
        device: what it was trained on.
        error: why it failed, or None.
    """

    number: int
    state: str
    settings: dict[str, Value]
    accuracy: float | None
    epochs: int
    loss: float | None = None
    samples: float | None = None
    steps: int | None = None
    seconds: float | None = None
    device: str | None = None
    error: str | None = None

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.state in ("complete", "pruned", "failed")


def read_result(trial: FrozenTrial, plan: Plan) -> Result:
    """Optuna's trial as a result."""
    facts = trial.user_attrs.get("facts", {}) if trial.state.is_finished() else {}
    has_failed = trial.state == TrialState.FAIL or "error" in facts
    reported = trial.intermediate_values
    return Result(
        number=trial.number,
        state="failed" if has_failed else trial.state.name.lower(),
        settings={one.key: trial.params[one.key] for one in plan.space if one.key in trial.params},
        accuracy=reported[max(reported)] if reported else None,
        epochs=max(reported, default=0),
        **facts,
    )


def best_first(results: Sequence[Result]) -> list[Result]:
    """The completed trials; ties in accuracy are broken by loss, then by number."""
    complete = [result for result in results if result.state == "complete" and result.accuracy is not None]
    return sorted(complete, key=lambda one: (-(one.accuracy or 0), math.inf if one.loss is None else one.loss))


def count_states(results: Sequence[Result]) -> str:
    """Like `20 trials: 13 complete, 6 pruned, 1 failed`."""
    counts = {state: sum(one.state == state for one in results) for state in dict.fromkeys(r.state for r in results)}
    order = ("complete", "pruned", "failed", "running", "waiting")
    parts = [f"{counts[state]} {state}" for state in order if state in counts]
    return f"{len(results)} trial{'s' if len(results) != 1 else ''}: {', '.join(parts)}"


def standard_error(accuracy: float, num_images: int) -> float:
    """Of an accuracy in percent, measured on `num_images` images."""
    share = min(max(accuracy / 100, 0.0), 1.0)
    return 100 * math.sqrt(share * (1 - share) / num_images)


def to_json(plan: Plan, command: str, results: Sequence[Result], num_validation: int) -> str:
    """Everything about the search, for programs."""
    best = best_first(results)
    record: dict[str, Any] = {
        "command": command,
        "recipe": plan.recipe.name,
        "method": plan.recipe.method,
        "search": [str(one) for one in plan.space],
        "seeds": plan.seeds,
        "validation_images": num_validation,
        "best": best[0].number if best else None,
        "trials": [asdict(result) for result in results],
    }
    return json.dumps(record, indent=2, ensure_ascii=False) + "\n"


def to_csv(plan: Plan, results: Sequence[Result]) -> str:
    """One line per trial and one column per setting, for spreadsheets."""
    keys = [one.key for one in plan.space]
    rows = [asdict(result) for result in results]
    names = [name for name in Result.__dataclass_fields__ if name != "settings"]
    names[2:2] = keys
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, fieldnames=names, lineterminator="\n")
    writer.writeheader()
    lines = (row | row.pop("settings") for row in rows)
    writer.writerows({name: for_csv(value) for name, value in line.items()} for line in lines)
    return buffer.getvalue()
