"""A report's result in one sentence, and the dates of its runs."""

from collections import Counter
from collections.abc import Sequence
from datetime import date, datetime

from vsam.lab.comparison.rows import Row
from vsam.lab.report.groups import Group

__all__ = ["dates", "overall", "sentence"]

_MOST_NAMED = 4
_TINY = "A tiny run tests the program and says nothing about the methods."


def overall(groups: Sequence[Group]) -> str:
    """The report in one sentence: a single comparison's result, or how often each method was the most accurate."""
    tables = [group for group in groups if group.rows]
    if not tables:
        return "No run is finished yet."
    compared = [group for group in tables if len(group.rows) > 1 and not group.is_tiny]
    if len(compared) < 2:
        more = len(tables) - 1
        others = f" {more} more setting{'s are' if more > 1 else ' is'} below." if more else ""
        return f"{sentence([*compared, *tables][0])}{others}"
    best = Counter(_most_accurate(group.rows).label for group in compared).most_common()
    wins = ", ".join(f"{label} in {count}" for label, count in best[:_MOST_NAMED])
    rest = sum(count for _, count in best[_MOST_NAMED:])
    others = f", others in {rest}" if rest else ""
    few = " With one seed each, differences may be chance." if all(group.most_seeds < 2 for group in compared) else ""
    return f"Most accurate of {len(compared)} comparisons: {wins}{others}.{few}"


def sentence(group: Group) -> str:
    """A group's result: the most accurate method, and what others reached at which price."""
    if not group.rows:
        return "No run is finished yet."
    first = _most_accurate(group.rows)
    named = sorted((row for row in group.rows if row is not first), key=_interest)
    texts = [
        f"{first.label} reached {_accuracy(first)}{_price(first)}",
        *(f"{r.label} {_accuracy(r)}{_price(r)}" for r in named),
    ]
    rest = f"; {len(texts) - _MOST_NAMED} more methods are below" if len(texts) > _MOST_NAMED else ""
    seeds = "one seed, so differences may be chance" if group.most_seeds < 2 else f"mean of {_seeds(group)} seeds"
    end = f" {_TINY}" if group.is_tiny else ""
    return f"{'; '.join(texts[:_MOST_NAMED])}{rest} ({group.images} images, last epoch, {seeds}).{end}"


def dates(groups: Sequence[Group], today: date) -> str:
    """When the page was written and, if known, when its runs finished."""
    found = sorted({day for group in groups for run in group.finished if (day := _day(run.summary.get("date")))})
    written = f"Written on {_spelled(today)}"
    if not found:
        return f"{written}."
    span = _spelled(found[0]) if len(found) == 1 else f"{_spelled(found[0])} to {_spelled(found[-1])}"
    return f"{written}; runs finished on {span}." if len(found) == 1 else f"{written}; runs finished from {span}."


def _most_accurate(rows: Sequence[Row]) -> Row:
    return max(rows, key=lambda row: row.accuracy)


def _interest(row: Row) -> tuple[int, float]:
    """Sort key: the usual references first, then by accuracy."""
    known = ("vsam", "sam", "sgd")
    return (known.index(row.label) if row.label in known else len(known), -row.accuracy)


def _accuracy(row: Row) -> str:
    return f"{row.accuracy:.1f} ± {row.accuracy_std:.1f} %" if row.seeds > 1 else f"{row.accuracy:.1f} %"


def _price(row: Row) -> str:
    """For a method that samples some steps, how many, and how fast it is."""
    share = row.samples / row.steps
    if not 0 < share < 1:
        return ""
    speed = f" at {row.ais_ratio_to_sam:.2f} times SAM's speed" if row.ais_ratio_to_sam is not None else ""
    return f" with {share:.0%} of the second gradients{speed}"


def _seeds(group: Group) -> str:
    return " or ".join(str(count) for count in sorted({row.seeds for row in group.rows}))


def _day(text: object) -> date | None:
    try:
        return datetime.fromisoformat(text).date() if isinstance(text, str) else None
    except ValueError:
        return None


def _spelled(day: date) -> str:
    return f"{day.day} {day:%B %Y}"
