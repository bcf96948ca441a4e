"""Reading runs and telling whether two are the same."""

import json
from pathlib import Path

import torch

from vsam.lab.recipes.load import load_recipe
from vsam.lab.rows import Row
from vsam.lab.train import Trainer, load_data

CPU = torch.device("cpu")
# Six steps an epoch, two epochs: the smallest run that has all that a run has.
QUICK_CHANGES = ("data.train=96", "data.test=50", "batch=16")


def quick_recipe(*changes):
    return load_recipe("fashion-mini", tiny=True, changes=(*QUICK_CHANGES, *changes))


def open_run(path: Path, *changes: str) -> Trainer:
    recipe = quick_recipe(*changes)
    return Trainer(recipe, path, load_data(recipe, None, CPU), CPU)


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def assert_same(first, second):
    """Equal to the bit, through all containers."""
    assert type(first) is type(second)
    if isinstance(first, torch.Tensor):
        assert first.dtype == second.dtype
        assert torch.equal(first, second)
    elif isinstance(first, dict):
        assert list(first) == list(second)
        assert_same(list(first.values()), list(second.values()))
    elif isinstance(first, list | tuple):
        assert len(first) == len(second)
        for one, other in zip(first, second, strict=True):
            assert_same(one, other)
    else:
        assert first == second


def without_time(line):
    """Return the files that are the same in every run of a recipe, however often it was saved and wherever it ran."""
    others = ("seconds", "ais", "turn", "date", "environment")
    return {name: value for name, value in line.items() if name not in others}


def assert_same_run(run, reference):
    ours, theirs = (torch.load(path / "checkpoint.pt", weights_only=True) for path in (run, reference))
    for name in ("model", "optimizer", "objective", "step", "generators"):
        assert_same(ours[name], theirs[name])
    for name in ("metrics.jsonl", "steps.jsonl"):
        assert [without_time(line) for line in lines(run / name)] == [
            without_time(line) for line in lines(reference / name)
        ]
    summaries = [json.loads((path / "summary.json").read_text()) for path in (run, reference)]
    assert [line["epoch"] for line in lines(run / "metrics.jsonl")] == list(range(summaries[0]["epochs"]))
    assert without_time(summaries[0]) == without_time(summaries[1])


def make_row(method="sam", seeds=3, **changes):
    numbers = {
        "accuracy": 71.234,
        "accuracy_std": 0.456,
        "best": 72.5,
        "best_std": 0.1,
        "samples": 1234.0,
        "ais": 2345.6,
    }
    ratios = {"ais_ratio_to_sam": 1.0, "speed_to_sgd": 0.521, "ideal_ratio": 1.0}
    settings = {"data": "cifar10", "model": "resnet8", "method": method, "seeds": seeds, "steps": 1234}
    settings |= {"label": method, "quartiles": (0.5, 0.54), "quartiles_to_sam": (0.9, 1.1)}
    return Row(**(settings | numbers | ratios | changes))
