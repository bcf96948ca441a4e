"""How much was run, said plainly, with the paper's size beside it."""

from functools import cache

import torch

from vsam.lab import data as data_room
from vsam.lab import models
from vsam.lab.report.groups import Group
from vsam.lab.tune.validation import HELD_OUT

__all__ = ["describe_scale", "is_small", "scale_line"]

# Paper: table 1, the smallest of its settings in every respect.
_PAPER_IMAGES, _PAPER_STEPS, _PAPER_PARAMETERS = 50_000, 78_200, 11_173_962


def describe_scale(group: Group) -> list[tuple[str, str]]:
    """Facts about a group as name and text."""
    return [
        ("Images", _images(group)),
        ("Network", _network(group)),
        ("Training", _training(group)),
        ("Runs", _runs(group)),
        ("Time", _time(group)),
    ]


def scale_line(group: Group) -> str:
    """The facts that decide the scale, in a line."""
    images, parameters = _num_images(group), _num_parameters(group)
    facts = [f"{parameters:,} parameters" if parameters else "", f"{images:,} training images" if images else ""]
    facts += [f"{group.steps:,} steps" if group.steps else "", _methods_and_seeds(group)]
    size = " – small scale" if is_small(group) else ""
    return ", ".join(fact for fact in facts if fact) + size


def is_small(group: Group) -> bool:
    """Whether anything is smaller than in the paper's smallest setting; what is not known counts as small."""
    found = (_num_images(group) or 0, group.steps, _num_parameters(group) or 0)
    return any(own < paper for own, paper in zip(found, (_PAPER_IMAGES, _PAPER_STEPS, _PAPER_PARAMETERS), strict=True))


def _num_images(group: Group) -> int | None:
    """Images in an epoch, if known."""
    given = _num_given(group)
    return given - given // HELD_OUT if given and group.is_validation else given


def _num_given(group: Group) -> int | None:
    """Training images of the recipe, those among them that a search holds out, if known."""
    recipe = group.runs[0].recipe
    if recipe is None:
        return None
    whole = _known(recipe.data.name)
    return recipe.data.train or (whole.num_train if whole else None)


def _num_parameters(group: Group) -> int | None:
    """Trainable parameters of the network, if known; of the full-precision one where it is quantized."""
    recipe = group.runs[0].recipe
    whole = _known(recipe.data.name) if recipe else None
    if recipe is None or whole is None or whole.num_classes is None or whole.image_shape is None:
        return None
    return _count(recipe.model, whole.num_classes, whole.image_shape[0])


def _images(group: Group) -> str:
    recipe = group.runs[0].recipe
    if recipe is None:
        return f"{group.data}; how many is not known"
    whole = _known(recipe.data.name)
    train, test = _num_images(group), recipe.data.test or (whole.num_test if whole else None)
    parts = [f"{train:,} for training" if train else "all for training", f"{test:,} for testing" if test else ""]
    if group.is_validation:
        given = _num_given(group)
        held_out = f"{given // HELD_OUT:,} other" if given else "a fifth of the"
        parts = [parts[0], f"{held_out} training images held out for validation, no test images"]
    if whole and whole.num_train and train and train < whole.num_train:
        parts[0] = f"{train:,} of {whole.num_train:,} for training"
    text = f"{group.data}: {', '.join(part for part in parts if part)}"
    return text + (f"; {recipe.data.noise:.0%} of the training labels are wrong" if recipe.data.noise else "")


def _network(group: Group) -> str:
    count, recipe = _num_parameters(group), group.runs[0].recipe
    bits = recipe.quantize if recipe else None
    text = group.model + (f", {count:,} parameters" if count else "")
    return text + (f", quantized to W{bits.weight_bits}A{bits.activation_bits}" if bits else "")


def _training(group: Group) -> str:
    run = group.runs[0]
    epochs = run.settings.get("epochs")
    text = f"{group.steps:,} steps" if group.steps else "steps not known"
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
    return text + ("; speeds of different hardware do not compare" if len(devices) > 1 else "")


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


@cache
def _known(name: str) -> data_room.Description | None:
    try:
        rows = data_room.describe()
    except OSError:  # the folder of the data sets, which a report can do without
        return None
    return next((row for row in rows if row.name == name), None)


@cache
def _count(model: str, num_classes: int, channels: int) -> int:
    with torch.device("meta"):
        network = models.build(model, num_classes, channels)
    return sum(parameter.numel() for parameter in network.parameters() if parameter.requires_grad)
