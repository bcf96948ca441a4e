"""Which combinations of parts have a name and a paper, and with which base optimizers."""

import torch
from torch.optim import Optimizer

from vsam.bases import bases_of
from vsam.between import Decayed, Orthogonal, Plain, SurrogateGap, Weighted
from vsam.parts import Between, DecidesAfter, Part, When, Where
from vsam.when import Always, Every, GradientThreshold, ReleasedVariation, Variation
from vsam.where import AdaptiveNorm, Friendly, GlobalNorm, Momentum, PartOfBatch, RandomSubset

__all__ = ["describe"]

_VSAM = "Deng et al., 2024"
_ESAM = "Du et al., ICLR 2022"
_PUBLISHED: dict[tuple[type[Part], ...], tuple[str, str]] = {
    (Always, GlobalNorm, Plain): ("SAM", "Foret et al., ICLR 2021"),
    (Every, GlobalNorm, Plain): ("SAM-k", f"{_VSAM}, as a baseline"),
    (Always, AdaptiveNorm, Plain): ("ASAM", "Kwon et al., ICML 2021"),
    (Always, RandomSubset, Plain): ("the weight perturbation of ESAM", _ESAM),
    (Every, GlobalNorm, Orthogonal): ("LookSAM", "Liu et al., CVPR 2022"),
    (GradientThreshold, GlobalNorm, Plain): ("AE-SAM", "Jiang et al., ICLR 2023"),
    (Variation, GlobalNorm, Decayed): ("vSAM", _VSAM),
    (Variation, GlobalNorm, Plain): ("vSAM-A", f"{_VSAM}, as an ablation"),
    (ReleasedVariation, GlobalNorm, Decayed): ("vSAM as the authors released it", _VSAM),
    (ReleasedVariation, GlobalNorm, Plain): ("vSAM-A as the authors released it", _VSAM),
    (Always, Momentum, Plain): ("MSAM", "Becker et al., 2024"),
    (Always, PartOfBatch, Plain): ("SAM with its ascent on a part of the batch", "Brock et al., ICML 2021"),
    (Always, Friendly, Plain): ("Friendly SAM", "Li et al., CVPR 2024"),
    (Always, GlobalNorm, SurrogateGap): ("GSAM", "Zhuang et al., ICLR 2022"),
    (Always, GlobalNorm, Weighted): ("the coupled form of WSAM", "Yue et al., KDD 2023"),
}
_ONLY_NORM: dict[tuple[type[Part], ...], tuple[str, str]] = {
    (Always, GlobalNorm, Plain): ("SAM-ON", "Mueller et al., NeurIPS 2023"),
    (Always, AdaptiveNorm, Plain): ("ASAM-ON", "Mueller et al., NeurIPS 2023"),
}
"""Those that perturb normalisation layers only."""
_OTHER_BASES: dict[tuple[str, type[Optimizer]], str] = {
    ("SAM", torch.optim.Adam): "Kwon et al., ICML 2021",
    ("SAM", torch.optim.AdamW): "Chen et al., ICLR 2022",
    ("ASAM", torch.optim.Adam): "Kwon et al., ICML 2021",
    ("LookSAM", torch.optim.AdamW): "Liu et al., CVPR 2022",
    ("GSAM", torch.optim.AdamW): "Zhuang et al., ICLR 2022",
    ("MSAM", torch.optim.AdamW): "Becker et al., 2024",
}
"""Who published a method with a base other than SGD; all were published with SGD."""


def describe(when: When, where: Where, between: Between, base: Optimizer | None = None, share: float = 1.0) -> str:
    """In plain words: what the combination does, what it costs, and whether it was published.

    Args:
        when, where, between: the parts.
        base: the base optimizer; its groups hold rho. Without it only the parts are described.
        share: the fraction of samples on which the second gradient is taken.
    """
    kinds = _kinds(when, where, between)
    name, reference = (_PUBLISHED if where.only is None else _ONLY_NORM).get(kinds, ("", ""))
    sentences = [f"{_capital(where.describe())} ({_radius(where, base)}), it {when.describe()}."]
    cost = "one pass per step plus one per sample, a transient copy of the weights at a sample"
    if where.knows_before:
        sentences[0] = sentences[0].replace("the second gradient", "the only gradient")
        cost = "one pass per step, a transient copy of the weights"
    if isinstance(where, PartOfBatch):
        cost = f"one pass per step plus {where.share:.3g} of one per sample, a transient copy of the weights"
    if share < 1:
        sentences.append(f"That is the gradient of {share:.0%} of the samples, those whose loss rose most.")
        cost += ", one more forward pass there"
        name, reference = ("ESAM", _ESAM) if name in ("SAM", "the weight perturbation of ESAM") else ("", "")
    if between.changes_sample:
        cost += " and of the gradient"
    is_idle = kinds[0] is Always and not between.changes_sample
    sentences.append("There are no steps in between." if is_idle else f"It {between.describe()}.")
    num_buffers = between.keeps_memory + where.keeps_memory
    if num_buffers:
        cost += ", one parameter-sized buffer" if num_buffers == 1 else ", two parameter-sized buffers"
    if isinstance(when, DecidesAfter):
        cost += ", one device sync per step for the gradient norm"
    return " ".join([*sentences, f"Cost: {cost}.", _origin(name, reference, bases_of(base) if base else [])])


def _origin(name: str, reference: str, bases: list[Optimizer]) -> str:
    others = [type(base) for base in bases if not isinstance(base, torch.optim.SGD)]
    around = " and ".join(dict.fromkeys(kind.__name__ for kind in others))
    if not name:
        return "Not a published combination: experimental."
    if not others:
        return f"Published as {name} ({reference})."
    if len(bases) == 1 and (by := _OTHER_BASES.get((name, others[0]))):
        return f"Published as {name} ({reference}), with {around} by {by}."
    return (
        f"Not a published combination: {name} ({reference}) was published with SGD, and we know of no paper that uses "
        f"it with {around}. Experimental."
    )


def _radius(where: Where, base: Optimizer | None) -> str:
    """The value of rho, by group if they differ."""
    groups = [group for group in base.param_groups if group.get("perturb", True)] if base else []
    radii = list(dict.fromkeys(group.get("rho", where.rho) for group in groups)) or [where.rho]
    return "rho = " + ", ".join(f"{radius:g}" for radius in radii) + (" by group" if len(radii) > 1 else "")


def _kinds(when: When, where: Where, between: Between) -> tuple[type[Part], ...]:
    """The types of the parts; one whose settings reduce it to a simpler part counts as that."""
    asked: type[Part] = Always if type(when) is Every and when.k == 1 else type(when)
    is_plain_place = (type(where) is RandomSubset and where.beta == 1) or (
        type(where) is Friendly and not where.keeps_memory
    )
    place: type[Part] = GlobalNorm if is_plain_place else type(where)
    if isinstance(where, Momentum) and where.sign > 0:
        place = Part  # type: ignore[type-abstract] # unpublished as far as we know
    rest: type[Part] = type(between)
    if between.changes_sample:
        return asked, place, rest
    if asked is Always or (type(between) in _REUSING and not between.keeps_memory) or type(between) in _COMBINING:
        rest = Plain  # if every step is sampled, nothing happens in between
    elif isinstance(between, Decayed) and between.floor != (between.gamma**6 if asked is ReleasedVariation else 0):
        rest = Part  # type: ignore[type-abstract] # not the reuse that was published
    return asked, place, rest


_REUSING, _COMBINING = (Decayed, Orthogonal), (SurrogateGap, Weighted)


def _capital(sentence: str) -> str:
    return sentence[0].upper() + sentence[1:]
