"""One finding of a check."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

__all__ = ["Finding", "note", "ok", "problem"]


@dataclass(frozen=True)
class Finding:
    """What was found, and what to do about it.

    Args:
        level: "ok", "note" for what may be intended, "problem" for what makes results wrong or stops training.
        subject: what was checked, in a word or two.
        text: what was found, and what to do.
    """

    level: Literal["ok", "note", "problem"]
    subject: str
    text: str

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def ok(subject: str, text: str) -> Finding:
    """Nothing is wrong."""
    return Finding("ok", subject, text)


def note(subject: str, text: str) -> Finding:
    """May be intended."""
    return Finding("note", subject, text)


def problem(subject: str, text: str) -> Finding:
    """Needs fixing."""
    return Finding("problem", subject, text)
