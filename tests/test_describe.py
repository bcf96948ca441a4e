"""`describe` names what was published and admits what was not."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

import vsam
from vsam import (
    AdaptiveNorm,
    Always,
    Decayed,
    Every,
    GlobalNorm,
    GradientThreshold,
    Orthogonal,
    Plain,
    ReleasedVariation,
    Variation,
)
from vsam.registry import METHODS, describe

NORMALISED = nn.Sequential(nn.Linear(2, 1), nn.LayerNorm(1))
PUBLISHED = {name: row for name, row in METHODS.items() if row.paper}
OTHERS: dict[str, tuple[Callable[[torch.optim.Optimizer], vsam.SharpnessAware], str]] = {
    "vSAM as the authors released it": (lambda base: vsam.VSAM(base, variant="released"), "Deng et al., 2024"),
    "vSAM-A as the authors released it": (
        lambda base: vsam.VSAM(base, variant="released", gamma=0),
        "Deng et al., 2024",
    ),
    "ASAM-ON": (lambda base: vsam.ASAM(base, model=NORMALISED, only="norm"), "Mueller et al., NeurIPS 2023"),
    "the weight perturbation of ESAM": (lambda base: vsam.ESAM(base, gamma=1), "Du et al., ICLR 2022"),
    "ESAM": (lambda base: vsam.ESAM(base, beta=1), "Du et al., ICLR 2022"),
}


def _make(name: str, base: torch.optim.Optimizer) -> vsam.SharpnessAware:
    needed = {"total_steps": 100} if name == "ae-sam" else {}
    return vsam.create(name, base, model=NORMALISED if name == "sam-on" else None, **needed)


# settings that reduce a mixture to a published one
REDUCED: list[tuple[vsam.When, vsam.Where, vsam.Between, str]] = [
    (Every(1), GlobalNorm(), Plain(), "SAM"),
    (Every(1), GlobalNorm(), Orthogonal(), "SAM"),
    (Always(), GlobalNorm(), Decayed(), "SAM"),
    (Every(5), GlobalNorm(), Orthogonal(0), "SAM-k"),
    (Every(5), GlobalNorm(), Decayed(0), "SAM-k"),
    (Every(1), AdaptiveNorm(), Plain(), "ASAM"),
    (Always(), GlobalNorm(), vsam.SurrogateGap(0), "SAM"),
    (Every(5), GlobalNorm(), vsam.Weighted(0.5), "SAM-k"),
    (GradientThreshold(9), GlobalNorm(), Decayed(0), "AE-SAM"),
    (Variation(), GlobalNorm(), Plain(), "vSAM-A"),
    (ReleasedVariation(), GlobalNorm(), Decayed(0.9, 0.9**6), "vSAM as the authors released it"),
]

FREE: list[tuple[vsam.When, vsam.Where, vsam.Between]] = [
    (Variation(), AdaptiveNorm(), Decayed()),
    (Variation(), GlobalNorm(), Orthogonal()),
    (Every(5), GlobalNorm(), Decayed()),
    (vsam.Even(0.2), GlobalNorm(), Decayed()),
    (vsam.Tail(0.2, 100), GlobalNorm(), Decayed()),
    (Always(), vsam.Momentum(0.05, sign=1), Plain()),
    (Every(5), GlobalNorm(), vsam.Displaced(vsam.Momentum(0.05, sign=1))),
    (Every(5), AdaptiveNorm(), Plain()),
    (GradientThreshold(9), GlobalNorm(), Decayed()),
    (ReleasedVariation(), GlobalNorm(), Decayed(0.7)),  # the program stops at γ⁶
    (Variation(), GlobalNorm(), Decayed(0.7, 0.7**6)),  # the paper does not
]


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_named_method_says_its_name_and_reference(name: str) -> None:
    row, base = PUBLISHED[name], torch.optim.SGD(NORMALISED.parameters(), lr=0.1, momentum=0.9)
    words = _make(name, base).describe()
    assert f"Published as {row.known_as or row.title} ({row.paper}" in words
    assert row.note in words
    assert "experimental" not in words


@pytest.mark.parametrize("name", OTHERS)
def test_other_combinations_of_a_paper_have_names_too(name: str) -> None:
    make, reference = OTHERS[name]
    words = make(torch.optim.SGD(NORMALISED.parameters(), lr=0.1, momentum=0.9)).describe()
    assert f"Published as {name} ({reference}" in words


@pytest.mark.parametrize("name", ["vsam", "vsam-a", "sam-5", "ae-sam"])
def test_a_base_that_no_paper_covers_is_said(name: str) -> None:
    words = _make(name, torch.optim.AdamW(nn.Linear(2, 1).parameters())).describe()
    assert "Published as" not in words
    assert f"Not a published combination: {PUBLISHED[name].known_as or PUBLISHED[name].title} (" in words
    assert words.endswith("we know of no paper that uses it with AdamW. Experimental.")


@pytest.mark.parametrize(("name", "base"), [(name, base) for name, row in PUBLISHED.items() for base in row.bases])
def test_a_base_that_the_row_has_is_published(name: str, base: str) -> None:
    words = _make(name, getattr(torch.optim, base)(nn.Linear(2, 1).parameters())).describe()
    assert words.endswith(f", with {base} by {PUBLISHED[name].bases[base]}.")


def test_a_base_that_another_paper_covers_is_named_with_it() -> None:
    sam = vsam.SAM(torch.optim.AdamW(nn.Linear(2, 1).parameters())).describe()
    assert sam.endswith("Published as SAM (Foret et al., ICLR 2021), with AdamW by Chen et al., ICLR 2022.")


def test_one_foreign_base_of_several_is_enough() -> None:
    one, two = nn.Linear(2, 1), nn.Linear(2, 1)
    bases = [torch.optim.SGD(one.parameters()), torch.optim.AdamW(two.parameters())]
    assert vsam.SAM(bases).describe().endswith("with AdamW. Experimental.")
    both = [torch.optim.SGD(one.parameters()), torch.optim.SGD(two.parameters())]
    assert "Published as SAM" in vsam.SAM(both).describe()


def test_rho_is_named_as_the_groups_have_it_now() -> None:
    layers = [nn.Linear(2, 1), nn.Linear(2, 1), nn.Linear(2, 1)]
    groups = [{"params": list(layer.parameters())} for layer in layers]
    optimizer = vsam.SAM(torch.optim.SGD([*groups[:2], groups[2] | {"perturb": False}], lr=0.1), rho=0.07)
    assert optimizer.describe().startswith("At a distance rho along the gradient (rho = 0.07), it takes")
    optimizer.param_groups[1]["rho"] = 0.2
    optimizer.param_groups[2]["rho"] = 9.0  # which is not perturbed
    assert "(rho = 0.07, 0.2 by group)" in optimizer.describe()


@pytest.mark.parametrize(("when", "where", "between", "name"), REDUCED)
def test_a_mixture_that_reduces_to_a_published_one_says_so(
    when: vsam.When, where: vsam.Where, between: vsam.Between, name: str
) -> None:
    assert f"Published as {name} (" in describe(when, where, between)


@pytest.mark.parametrize(("when", "where", "between"), FREE)
def test_a_free_mixture_says_experimental(when: vsam.When, where: vsam.Where, between: vsam.Between) -> None:
    words = describe(when, where, between)
    assert words.endswith("Not a published combination: experimental.")
    assert "Published as" not in words


def test_somebody_elses_part_of_the_same_name_is_not_the_published_one() -> None:
    class Foreign(Plain):
        pass

    Foreign.__name__ = "Plain"
    assert "experimental" in describe(Every(5), GlobalNorm(), Foreign())


@pytest.mark.parametrize("when", [Always(), Every(5), GradientThreshold(9), Variation(), ReleasedVariation()])
@pytest.mark.parametrize("where", [GlobalNorm(), AdaptiveNorm()])
@pytest.mark.parametrize("between", [Plain(), Decayed(), Decayed(0), Decayed(0.7, 0.1), Orthogonal()])
def test_the_sentences_are_whole_and_the_cost_is_told(
    when: vsam.When, where: vsam.Where, between: vsam.Between
) -> None:
    words = describe(when, where, between)
    sentences = words.split(". ")
    assert len(sentences) == 4
    assert words.endswith(".")
    assert all(sentence[0].isupper() for sentence in sentences)
    assert "  " not in words
    assert ("device sync per step for the gradient norm" in words) == isinstance(when, GradientThreshold)
    assert ("no steps in between" in words) == isinstance(when, Always)
    assert ("parameter-sized buffer" in words) == between.num_buffers


@pytest.mark.parametrize("between", [Plain(), Decayed(), Orthogonal()])
def test_every_step_is_described_as_always(between: vsam.Between) -> None:
    assert describe(Every(1), GlobalNorm(), between) == describe(Always(), GlobalNorm(), between)


@pytest.mark.parametrize("between", [Decayed(0), Orthogonal(0)])
def test_a_part_that_reuses_nothing_is_described_as_plain(between: vsam.Between) -> None:
    assert describe(Every(5), GlobalNorm(), between) == describe(Every(5), GlobalNorm(), Plain())
