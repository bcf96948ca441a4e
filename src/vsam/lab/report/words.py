"""A report's results and sizes in plain words."""

from collections import Counter
from collections.abc import Sequence

from vsam.lab.recipes.recipe import BASES
from vsam.lab.report.groups import Group
from vsam.lab.rows import Row
from vsam.lab.run import Run
from vsam.lab.statistics import difference

__all__ = ["overall", "result", "size"]

_MOST_NAMED = 4
_TINY = "A tiny run tests the program and says nothing about the methods."


def overall(groups: Sequence[Group]) -> str:
    """Return the report in a sentence: the only comparison's result, or how often each method was most accurate."""
    tables = [group for group in groups if group.rows]
    compared = [group for group in tables if len(group.rows) > 1 and not group.is_tiny]
    if not tables:
        return "No run is finished yet."
    if len(compared) < 2:
        num_others = len(tables) - 1
        more = f" {num_others} more table{'s' if num_others > 1 else ''} below." if num_others else ""
        return f"{result([*compared, *tables][0])}{more}"
    best = Counter(max(group.rows, key=lambda row: row.accuracy).label for group in compared).most_common()
    wins = ", ".join(f"{label} in {count}" for label, count in best[:_MOST_NAMED])
    others = f", others in {sum(count for _, count in best[_MOST_NAMED:])}" if len(best) > _MOST_NAMED else ""
    return f"Most accurate of {len(compared)} comparisons: {wins}{others}. Each section says whether it is decided."


def result(group: Group) -> str:
    """Return a group's result: each method's accuracy, its cost, and whether it differs from the reference."""
    if not group.rows:
        return "No run is finished yet."
    rows = sorted(group.rows, key=lambda row: -row.accuracy)
    reference = next((row for name in (*BASES, "sam") for row in rows if row.method == name), rows[0])
    named = [f"{row.label} {_accuracy(row)}{_cost(row)}" for row in rows[:_MOST_NAMED]]
    rest = f", and {len(rows) - len(named)} more below" if len(rows) > len(named) else ""
    counts = sorted({row.seeds for row in rows})
    seeds = (
        f"mean of {' or '.join(map(str, counts))} seeds" if counts != [1] else "one seed, so differences may be chance"
    )
    start = f"{group.images.capitalize()} accuracy after the last epoch, {seeds}"
    tiny = f" {_TINY}" if group.is_tiny else ""
    return f"{start}: {'; '.join(named)}{rest}.{_decisions(group, rows, reference)}{tiny}"


def size(group: Group) -> str:
    """Return what was run, in a sentence: images, network, training, runs, time and hardware."""
    run = group.all_runs[0]
    facts, recipe = run.summary, run.recipe
    keys = ("train_images", "available_images", "test_images", "parameters")
    train, total, test, parameters = (value if isinstance(value := facts.get(key), int) else 0 for key in keys)
    parts = [f"recipe {group.recipe}"]
    if train and test:
        whole = f" of {total:,}" if total > train else ""
        parts.append(f"{train:,}{whole} training images, {test:,} {group.images} images")
    if recipe and recipe.data.noise:
        parts.append(f"{recipe.data.noise:.0%} of the training labels are wrong")
    parts += [f"{parameters:,} parameters"] if parameters else []
    parts.append(f"{run.num_epochs:,} epochs" + (f", {group.steps:,} steps" if group.steps else ""))
    if recipe:
        base = {"sgd": "SGD", "adamw": "AdamW"}[recipe.optimizer]
        parts.append(f"batches of {recipe.batch:,}; base optimizer {base}, learning rate {recipe.lr:g}")
        if recipe.quantize:
            parts.append(f"quantized to W{recipe.quantize.weight_bits}A{recipe.quantize.activation_bits}")
    if group.finished:
        seconds = sum(run.summary["seconds"] for run in group.finished)
        devices = list(dict.fromkeys(_device(run) for run in group.finished))
        days = sorted({str(run.summary.get("date", ""))[:10] for run in group.finished} - {""})
        parts.append(f"{_duration(seconds)} of training on {' and on '.join(devices)}")
        parts += [f"finished {days[-1]}"] if days else []
        if len(devices) > 1:
            parts.append("speeds on different hardware are not comparable")
    unfinished = len(group.all_runs) - len(group.finished)
    parts += [f"{unfinished} unfinished, drawn dotted"] if unfinished else []
    return f"{parts[0].capitalize()}; {'; '.join(parts[1:])}."


def _accuracy(row: Row) -> str:
    averaged = "" if row.averaged is None else f" (averaged weights {row.averaged:.1f} %)"
    return (f"{row.accuracy:.1f} ± {row.accuracy_std:.1f} %" if row.seeds > 1 else f"{row.accuracy:.1f} %") + averaged


def _cost(row: Row) -> str:
    """Return what a method that samples some steps costs."""
    return f" at {2 / row.ideal_ratio:.2f} passes per step" if 0 < row.samples < row.steps else ""


def _decisions(group: Group, rows: Sequence[Row], reference: Row) -> str:
    """Return which differences to the reference are decided, empty for too few seeds."""
    said: dict[bool, list[str]] = {True: [], False: []}
    theirs = _accuracies(group, reference)
    for row in rows:
        found = None if row is reference else difference(_accuracies(group, row), theirs)
        if found is not None:
            said[found.is_decided].append(f"{row.label} {found.mean:+.2f} ({found.low:+.2f} to {found.high:+.2f})")
    if not any(said.values()):
        return ""
    parts = [
        f"{word}: {', '.join(texts)}"
        for word, texts in (("decided", said[True]), ("not decided", said[False]))
        if texts
    ]
    return f" Difference to {reference.label} with its 95 % interval, {'; '.join(parts)}."


def _accuracies(group: Group, row: Row) -> dict[int, float]:
    return {run.seed: run.summary["accuracy"] for run in group.of(row.label)}


def _device(run: Run) -> str:
    environment = run.summary.get("environment")
    if not isinstance(environment, dict) or "device" not in environment:
        return "unknown hardware"
    threads, device = environment.get("threads"), str(environment["device"])
    return (
        f"{device}, {threads} thread{'s' if threads != 1 else ''}" if device.startswith("CPU") and threads else device
    )


def _duration(seconds: float) -> str:
    for unit, length in (("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.1f} seconds"
