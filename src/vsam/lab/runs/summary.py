"""The content of a finished run's `summary.json`."""

from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from vsam.lab.runs.environment import describe_environment
from vsam.lab.runs.facts import Facts
from vsam.lab.runs.network import count_parameters

if TYPE_CHECKING:
    from vsam.lab.runs.train import Run

__all__ = ["summarise"]


def summarise(run: "Run", metrics: dict[str, Any]) -> dict[str, Any]:
    """The summary of a run, given the metrics of its last epoch."""
    recipe, dataset, num_train = run.recipe, run.dataset, len(run.dataset.train_images)
    facts = Facts(
        parameters=count_parameters(run.training.model),
        train_images=num_train,
        available_images=dataset.num_available or num_train,
        test_images=len(dataset.test_images),
        split=dataset.split,
        role=recipe.role,
    )
    return {
        "recipe": recipe.name,
        "data": dataset.name,
        "model": recipe.model,
        "method": recipe.method,
        "label": recipe.label,
        "seed": recipe.seed,
        "epochs": recipe.epochs,
        "steps": run.total_steps,
        "accuracy": metrics["test_accuracy"],
        "best": run.best,
        "samples": run.training.num_samples,
        "price": run.training.price,
        "skipped": run.training.num_skipped,
        "ais": num_train * recipe.epochs / run.seconds,
        "seconds": run.seconds,
        "ranks": run.ranks.size,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        **asdict(facts),
        "environment": describe_environment(run.device),
    }
