"""The best settings as a complete recipe, with a header on how they were found and how far to trust them."""

import textwrap
from collections.abc import Mapping, Sequence

import tomli_w

from vsam.lab.tune.plan import Plan
from vsam.lab.tune.results import Result, best_first, count_states, standard_error
from vsam.lab.tune.space import Value, change

__all__ = ["caution", "settings_text", "standing", "to_recipe"]


def to_recipe(plan: Plan, command: str, results: Sequence[Result], num_validation: int) -> str:
    """A recipe file with the settings of the best trial; at least one must be complete."""
    best = best_first(results)[0]
    recipe = change(plan.recipe, best.settings, name=f"{plan.recipe.name}-tuned")
    minutes = sum(result.seconds or 0 for result in results) / 60
    paragraphs = {
        "Command": command,
        "Hardware": best.device or "unknown",
        "Time": f"{minutes:,.1f} minutes of training, all trials together",
        "Found": f"{count_states(results)}. {standing(plan, results, num_validation)}",
        "Caution": caution(plan, results, num_validation),
    }
    title = f"{_line(plan.recipe.name)} with the settings that a search found for {plan.recipe.method}."
    lines = [f"# {title}", "#"]
    for heading, text in paragraphs.items():
        lines += textwrap.wrap(_line(text), 108, initial_indent=f"# {heading:10}", subsequent_indent=f"# {'':10}")
    settings = recipe.plain() | ({"tiny": plan.tiny} if plan.tiny else {})
    return "\n".join(lines) + "\n" + tomli_w.dumps(settings)


def standing(plan: Plan, results: Sequence[Result], num_validation: int) -> str:
    """How good the best trial was, compared with the recipe's own settings and the runner-up."""
    best, *others = best_first(results)
    runs = "one run" if plan.seeds == 1 else f"the mean of {plan.seeds} runs"
    cost = "" if best.samples is None else f", with {best.samples:,.0f} second gradients in {best.steps:,} steps"
    text = (
        f"The best was trial {best.number} with {best.accuracy:.2f} % on {num_validation:,} held-out training images "
        f"after the last epoch, {runs}{cost}: {settings_text(best.settings)}."
    )
    own = next((result for result in results if result.number == 0 and plan.tries_own), None)
    if own is best:
        text += " These are the recipe's own settings."
    elif own is not None and own.accuracy is not None:
        ended = "" if own.state == "complete" else f" ({own.state})"
        text += f" The recipe's own settings, trial 0, reached {own.accuracy:.2f} %{ended}."
    if others:
        second = others[0]
        behind = (best.accuracy or 0) - (second.accuracy or 0)
        text += f" Runner-up: trial {second.number}, {behind:.2f} points behind: {settings_text(second.settings)}."
    return text


def caution(plan: Plan, results: Sequence[Result], num_validation: int) -> str:
    """Why the best trial may not be the best setting."""
    complete = best_first(results)
    error = standard_error(complete[0].accuracy or 0, num_validation)
    return (
        f"An accuracy on {num_validation:,} images has a standard error of about {error:.1f} points, and "
        f"{'a single seed adds' if plan.seeds == 1 else 'few seeds add'} that of training: smaller differences "
        f"mean nothing, and the best of {len(complete)} looks better than it is. Trials trained on four fifths of the "
        "images. The test images were not used: compare on them, with several seeds."
    )


def settings_text(settings: Mapping[str, Value]) -> str:
    """Like `rho=0.2, vsam.alpha=0.1`."""
    return ", ".join(f"{key}={value:.4g}" for key, value in settings.items())


def _line(text: str) -> str:
    """On one line, whatever a file name contains: a line break would end the comment."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
