"""How much was run, in plain words, compared with the paper's size."""

from vsam.lab.paper import numbers
from vsam.lab.report.groups import Group

__all__ = ["describe_scale", "is_small", "scale_line"]


def describe_scale(group: Group) -> list[tuple[str, str]]:
    """Facts about a group, as name and text."""
    return [
        ("Images", _images(group)),
        ("Network", _network(group)),
        ("Training", _training(group)),
        ("Runs", _runs(group)),
        ("Time", _time(group)),
    ]


def scale_line(group: Group) -> str:
    """The facts that decide the scale, in one line."""
    images, parameters = group.facts.train_images, group.facts.parameters
    facts = [f"{parameters:,} parameters" if parameters else "", f"{images:,} training images" if images else ""]
    facts += [f"{group.steps:,} steps" if group.steps else "", _methods_and_seeds(group)]
    size = " – small scale" if is_small(group) else ""
    return ", ".join(fact for fact in facts if fact) + size


def is_small(group: Group) -> bool:
    """Whether anything is smaller than in the paper's smallest setting; unknown counts as small."""
    found = (group.facts.train_images or 0, group.steps, group.facts.parameters or 0)
    papers = (numbers.NUM_IMAGES["train"], numbers.STEPS, numbers.FEWEST_PARAMETERS)
    return any(own < paper for own, paper in zip(found, papers, strict=True))


def _images(group: Group) -> str:
    facts, recipe = group.facts, group.runs[0].recipe
    train = f"{facts.train_images:,} for training" if facts.train_images else "all for training"
    if facts.train_images and facts.available_images and facts.train_images < facts.available_images:
        train = f"{facts.train_images:,} of {facts.available_images:,} for training"
    test = f"{facts.test_images:,} for testing" if facts.test_images else ""
    if group.is_validation:
        held_out = f"{facts.test_images:,} other" if facts.test_images else "a fifth of the"
        test = f"{held_out} training images held out for validation, no test images"
    if recipe is None and not facts.train_images:
        return f"{group.data}; number of images unknown"
    text = f"{group.data}: {', '.join(part for part in (train, test) if part)}"
    noise = recipe.data.noise if recipe else 0
    return text + (f"; {noise:.0%} of the training labels are wrong" if noise else "")


def _network(group: Group) -> str:
    count, recipe = group.facts.parameters, group.runs[0].recipe
    bits = recipe.quantize if recipe else None
    text = group.model + (f", {count:,} parameters" if count else "")
    return text + (f", quantized to W{bits.weight_bits}A{bits.activation_bits}" if bits else "")


def _training(group: Group) -> str:
    run = group.runs[0]
    epochs = run.settings.get("epochs")
    text = f"{group.steps:,} steps" if group.steps else "number of steps unknown"
    if isinstance(epochs, int):
        text = f"{epochs:,} epoch{'s' if epochs != 1 else ''}, {text}"
    return text + (f" of {run.recipe.batch:,} images" if run.recipe else "")


def _runs(group: Group) -> str:
    unfinished = len(group.runs) - len(group.finished)
    finished = f"{len(group.finished)} finished: {_methods_and_seeds(group)}" if group.rows else "none finished"
    return finished + (f"; {unfinished} unfinished" if unfinished else "")


def _methods_and_seeds(group: Group) -> str:
    counts = sorted({row.seeds for row in group.rows})
    seeds = " or ".join(str(count) for count in counts)
    methods = f"{len(group.rows)} method{'s' if len(group.rows) != 1 else ''}"
    return f"{methods} × {seeds} seed{'s' if counts != [1] else ''}" if counts else "no run finished"


def _time(group: Group) -> str:
    seconds = sum(run.summary["seconds"] for run in group.finished)
    devices = list(dict.fromkeys(_device(run.summary.get("environment")) for run in group.finished))
    if not devices:
        return "no run is finished"
    text = f"{_duration(seconds)} of training on {' and on '.join(devices)}"
    return text + ("; speeds on different hardware are not comparable" if len(devices) > 1 else "")


def _device(environment: object) -> str:
    if not isinstance(environment, dict) or "device" not in environment:
        return "unknown hardware"
    threads = environment.get("threads")
    is_cpu = str(environment["device"]).startswith("CPU")
    count = "1 thread" if threads == 1 else f"{threads} threads"
    return f"{environment['device']}" + (f" with {count}" if is_cpu and threads else "")


def _duration(seconds: float) -> str:
    for unit, length in (("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.1f} seconds"
