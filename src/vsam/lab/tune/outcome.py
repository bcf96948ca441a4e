"""The result of a search: its trials as JSON and as a picture, and the best as a recipe."""

import io
import json
import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import tomli_w
from optuna.trial import FrozenTrial

from vsam.lab.statistics import standard_error
from vsam.lab.tune.search import Search
from vsam.lab.tune.space import Value, change, own_values

__all__ = ["Row", "best_first", "caution", "count_states", "draw", "rows_of", "standing", "to_json", "to_recipe"]

_STATES = ("complete", "pruned", "failed", "running", "waiting")
Row = Mapping[str, Any]


def rows_of(search: Search) -> list[dict[str, Any]]:
    """Return the trials in plain types. Accuracies are those on the held-out images after the last epoch."""
    return [_row(search, trial) for trial in search.trials()]


def _row(search: Search, trial: FrozenTrial) -> dict[str, Any]:
    facts = trial.user_attrs.get("facts", {}) if trial.state.is_finished() else {}
    reported = trial.intermediate_values
    return {
        "number": trial.number,
        "state": "failed" if "error" in facts else trial.state.name.lower(),
        "settings": search.values(trial),
        "accuracy": reported[max(reported)] if reported else None,
        "epochs": max(reported, default=0),
        **{name: facts.get(name) for name in ("loss", "samples", "steps", "seconds", "device", "error")},
    }


def best_first(rows: Sequence[Row]) -> list[Row]:
    """Return the completed trials. Ties in accuracy are broken by loss, then by number."""
    complete = [row for row in rows if row["state"] == "complete"]
    return sorted(complete, key=lambda row: (-row["accuracy"], math.inf if row["loss"] is None else row["loss"]))


def count_states(rows: Sequence[Row]) -> str:
    """Return text like `20 trials: 13 complete, 6 pruned, 1 failed`."""
    counts = {state: sum(row["state"] == state for row in rows) for state in _STATES}
    parts = [f"{count} {state}" for state, count in counts.items() if count]
    return f"{len(rows)} trial{'s' if len(rows) != 1 else ''}: {', '.join(parts)}"


def to_json(search: Search, command: str, rows: Sequence[Row]) -> str:
    """Return everything about the search, for programs."""
    best = best_first(rows)
    record: dict[str, Any] = {
        "command": command,
        "recipe": search.recipe.name,
        "method": search.recipe.ran,
        "search": [str(one) for one in search.space],
        "seeds": search.seeds,
        "validation_images": len(search.dataset.test_images),
        "best": best[0]["number"] if best else None,
        "trials": rows,
    }
    return json.dumps(record, indent=2, ensure_ascii=False) + "\n"


def to_recipe(search: Search, command: str, rows: Sequence[Row]) -> str:
    """Return a recipe file with the settings of the best trial. At least one must be complete."""
    best = best_first(rows)[0]
    recipe = change(search.recipe, best["settings"], name=f"{search.recipe.name}-tuned")
    minutes = sum(row["seconds"] or 0 for row in rows) / 60
    paragraphs = {
        "Command": command,
        "Hardware": best["device"] or "unknown",
        "Time": f"{minutes:,.1f} minutes of training, all trials together",
        "Found": f"{count_states(rows)}. {standing(search, rows)}",
        "Caution": caution(search, rows),
    }
    title = f"{search.recipe.name} with the settings that a search found for {search.recipe.ran}."
    lines = [f"# {_line(title)}", "#"]
    for heading, text in paragraphs.items():
        lines += textwrap.wrap(_line(text), 108, initial_indent=f"# {heading:10}", subsequent_indent=f"# {'':10}")
    return "\n".join(lines) + "\n" + tomli_w.dumps(recipe.plain())


def standing(search: Search, rows: Sequence[Row]) -> str:
    """Compare the best trial with the recipe's own settings and the runner-up."""
    best, *others = best_first(rows)
    runs = "one run" if search.seeds == 1 else f"the mean of {search.seeds} runs"
    text = (
        f"The best was trial {best['number']} with {best['accuracy']:.2f} % on {len(search.dataset.test_images):,} "
        f"held-out training images after the last epoch, {runs}, with {best['samples']:,.0f} second gradients in "
        f"{best['steps']:,} steps: {settings_text(best['settings'])}."
    )
    own = own_values(search.recipe, search.space)
    tried = next((row for row in rows if len(own) == len(search.space) and row["settings"] == own), None)
    if tried is best:
        text += " These are the recipe's own settings."
    elif tried is not None and tried["accuracy"] is not None:
        ended = "" if tried["state"] == "complete" else f" ({tried['state']})"
        text += f" The recipe's own settings, trial {tried['number']}, reached {tried['accuracy']:.2f} %{ended}."
    if others:
        behind, second = best["accuracy"] - others[0]["accuracy"], others[0]
        text += (
            f" Runner-up: trial {second['number']}, {behind:.2f} points behind: {settings_text(second['settings'])}."
        )
    return text


def caution(search: Search, rows: Sequence[Row]) -> str:
    """Say why the best trial may not be the best setting."""
    complete, count = best_first(rows), len(search.dataset.test_images)
    return (
        f"An accuracy on {count:,} images has a standard error of about "
        f"{standard_error(complete[0]['accuracy'], count):.1f} points, and "
        f"{'a single seed adds' if search.seeds == 1 else 'few seeds add'} that of training: smaller differences "
        f"mean nothing, and the best of {len(complete)} looks better than it is. Trials trained on four fifths of the "
        "images. The test images were not used: compare on them, with several seeds."
    )


def settings_text(settings: Mapping[str, Value]) -> str:
    """Return text like `rho=0.2, vsam.alpha=0.1`."""
    return ", ".join(f"{key}={value:.4g}" for key, value in settings.items())


def draw(search: Search) -> bytes:
    """Draw Optuna's slice plot: accuracy on the held-out images against each setting, as a PNG."""
    import warnings

    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt
    from optuna.visualization.matplotlib import plot_slice

    with warnings.catch_warnings(action="ignore"), plt.style.context("default"):  # it is called experimental
        axes = plot_slice(search.study, params=[one.key for one in search.space], target_name="validation accuracy, %")
    figure: Any = axes.flat[0].figure if hasattr(axes, "flat") else axes.figure
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150, bbox_inches="tight", metadata={"Software": None})
    plt.close(figure)
    return buffer.getvalue()


def _line(text: str) -> str:
    """Put text on one line, whatever a file name contains: a line break would end the comment."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
