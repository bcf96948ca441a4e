"""Names from files and users as displayable text: one function per format."""

import html
import re

from rich.text import Text

__all__ = ["for_csv", "for_latex", "for_markdown", "for_terminal", "one_line", "printable", "shortened"]

# Includes bidirectional controls, which can make text read as something else.
_CONTROL = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"$\sim$",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "√": r"$\surd$",
    "η": r"$\eta$",
    "ρ": r"$\rho$",
    "₀": r"$_0$",
    **{sign: rf"\{sign}" for sign in "&%$#_{}"},
}


def printable(value: object) -> str:
    """Any value as text. Characters that cannot be displayed become �."""
    return _CONTROL.sub("�", str(value))


def one_line(value: object) -> str:
    """Any value as text of one line."""
    return " ".join(printable(value).split())


def shortened(name: str, most: int) -> str:
    """A name of at most `most` characters, shortened in the middle if it is longer."""
    return name if len(name) <= most else f"{name[: most // 2]}…{name[len(name) - (most - 1) // 2 :]}"


def for_terminal(value: object) -> Text:
    """Text for rich, shown literally: no markup, no control characters."""
    return Text(printable(value).replace("\r", "�"))


def for_markdown(value: object) -> str:
    """Text for a line or a table cell of Markdown: it cannot end the cell, and is never HTML."""
    return re.sub(r"([\\`*_{}\[\]|#!])", r"\\\1", html.escape(one_line(value), quote=False))


def for_latex(value: object) -> str:
    """Text for a line or a table cell of LaTeX: no commands, no comments, and it cannot end the cell."""
    return "".join(_LATEX.get(sign, sign) for sign in one_line(value))


def for_csv(value: object) -> object:
    """A cell that no spreadsheet takes for a formula: such text gets a leading apostrophe. Numbers stay."""
    if not isinstance(value, str):
        return value
    text = printable(value)
    return f"'{text}" if text.lstrip().startswith(("=", "+", "-", "@")) or text[:1] in ("\t", "\r") else text
