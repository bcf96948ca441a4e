"""Which parts cannot work together, and why."""

from collections.abc import Mapping, Sequence
from typing import Any

from vsam.parts import Between, When, Where

__all__ = ["check_mixture"]


def check_mixture(when: When, where: Where, between: Between, groups: Sequence[Mapping[str, Any]]) -> None:
    """Refuse a mixture whose gradient at a displaced point could not be taken, or would never be used."""
    known = where if where.knows_before else between.where
    if known is None:
        return
    name = type(known).__name__
    if when.decides_after:
        raise ValueError(
            f"when={when!r} decides after the first gradient, but {name} must know before it where to take it: use "
            "Always, Every, Even, Tail or Bernoulli."
        )
    if where.knows_before and (when.watch != 0 or between.keeps_memory or between.changes_sample):
        asking = f"when={when!r}" if when.watch != 0 else f"between={between!r}"
        raise ValueError(
            f"{asking} needs the PSF, but {type(where).__name__} takes one gradient per step, so there is none: use "
            "Every or Always, and Plain."
        )
    for part in (where, between.where):
        if part is not None and part.knows_before:
            part.check_groups(groups)  # type: ignore[attr-defined]
