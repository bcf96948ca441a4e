"""Published methods name their paper. All other mixtures are called experimental."""

import itertools
from typing import Any

import pytest
import torch
from torch import nn

import vsam
from contract_table import LOOPING, METHODS
from trajectory.training import Training
from vsam import (
    AdaptiveNorm,
    Always,
    Decayed,
    Every,
    GlobalNorm,
    GradientThreshold,
    Orthogonal,
    Plain,
    RandomSubset,
    ReleasedVariation,
    Variation,
)
from vsam.registry import describe

# normalised names → as what the mixture was published; all others never were
PUBLISHED = {
    ("always", "global", "plain"): "SAM",
    ("every", "global", "plain"): "SAM-k",
    ("always", "adaptive", "plain"): "ASAM",
    ("always", "subset", "plain"): "the weight perturbation of ESAM",
    ("every", "global", "orthogonal"): "LookSAM",
    ("threshold", "global", "plain"): "AE-SAM",
    ("variation", "global", "decayed"): "vSAM",
    ("variation", "global", "plain"): "vSAM-A",
    ("released", "global", "stopping"): "vSAM as the authors released it",
    ("released", "global", "plain"): "vSAM-A as the authors released it",
}
PARTS: list[list[tuple[str, Any]]] = [
    [
        ("always", Always()),
        ("always", Every(1)),
        ("every", Every(5)),
        ("threshold", GradientThreshold(100)),
        ("variation", Variation()),
        ("released", ReleasedVariation()),
    ],
    [
        ("global", GlobalNorm()),
        ("global", RandomSubset(beta=1.0)),
        ("adaptive", AdaptiveNorm()),
        ("subset", RandomSubset()),
    ],
    [
        ("plain", Plain()),
        ("plain", Decayed(0.0)),
        ("plain", Orthogonal(0.0)),
        ("decayed", Decayed(0.7)),
        ("stopping", Decayed(0.7, floor=0.7**6)),
        ("orthogonal", Orthogonal()),
    ],
]
"""Name the parts. A part whose setting reduces it to another one gets that one's name."""


def test_exactly_the_published_mixtures_are_called_so() -> None:
    found = set()
    for (when, one), (where, two), (between, three) in itertools.product(*PARTS):
        names = (when, where, "plain" if when == "always" else between)  # then no step lies in between
        words, name = describe(one, two, three), PUBLISHED.get(names)
        assert ("experimental" in words) is (name is None), (names, words)
        assert name is None or f"Published as {name} (" in words, (names, words)
        found.add(names)
    assert found > PUBLISHED.keys()


@pytest.mark.parametrize("method", METHODS)
def test_only_the_budget_is_experimental(method: str) -> None:
    words = METHODS[method](torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1)).describe()
    assert ("Published as" in words) is (method != "budget")
    assert ("experimental" in words) is (method == "budget")


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({}, "ESAM"),
        ({"beta": 1.0}, "ESAM"),
        ({"gamma": 1.0}, "the weight perturbation of ESAM"),
        ({"beta": 1.0, "gamma": 1.0}, "SAM"),
    ],
)
def test_each_half_of_esam_has_its_name(settings: dict[str, float], name: str) -> None:
    words = vsam.ESAM(torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1), **settings).describe()
    assert f"Published as {name} (" in words
    assert ("whose loss rose most" in words) is (settings.get("gamma") is None)
    assert ("of the tensors" in words) is (settings.get("beta") is None)


def test_samples_chosen_in_another_mixture_are_experimental() -> None:
    words = describe(Variation(), RandomSubset(), Decayed(), share=0.5)
    assert words.endswith("Not a published combination: experimental.")
    assert "50% of the samples" in words


@pytest.mark.parametrize("kind", ["saf", "mesa"])
def test_a_trajectory_loss_is_experimental_with_a_second_gradient_only(kind: str) -> None:
    for optimizer in ("sgd", "adamw", "fused"):
        run = Training(kind, optimizer)
        assert run.objective is not None
        assert run.objective.describe(run.optimizer) == run.objective.describe()
        assert f"Published as {kind.upper()} (Du et al., NeurIPS 2022)." in run.objective.describe()
    for optimizer in LOOPING:
        run = Training(kind, optimizer)
        assert run.objective is not None
        assert run.objective.describe(run.optimizer).endswith("not with a second gradient: experimental.")


class _Every(Every):
    pass


class _RandomSubset(RandomSubset):
    pass


class _Decayed(Decayed):
    pass


@pytest.mark.parametrize(
    "parts",
    [
        (_Every(1), GlobalNorm(), Plain()),
        (Always(), _RandomSubset(beta=1.0), Plain()),
        (Every(5), GlobalNorm(), _Decayed(0.0)),
    ],
    ids=repr,
)
def test_what_a_derived_part_makes_of_a_setting_is_not_known(parts: Any) -> None:
    assert "experimental" in describe(*parts)
