"""Names that came from a file, as text that can be shown."""

import re

__all__ = ["one_line", "printable", "shortened"]

# Characters that turn the direction of the text around them are among these: they can make it say something else.
_CONTROL = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


def printable(value: object) -> str:
    """Any value as text; what can be shown nowhere becomes �."""
    return _CONTROL.sub("�", str(value))


def one_line(value: object) -> str:
    """Any value as text of one line."""
    return " ".join(printable(value).split())


def shortened(name: str, most: int) -> str:
    """A name of at most so many characters, without its middle if it is longer."""
    return name if len(name) <= most else f"{name[: most // 2]}…{name[len(name) - (most - 1) // 2 :]}"
