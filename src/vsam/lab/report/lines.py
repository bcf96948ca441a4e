"""JSON that a killed process may have left cut, and that a person may have edited."""

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vsam.lab.runs.folder import number

__all__ = ["one_line", "printable", "read_json", "read_json_lines", "shortened"]

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


def read_json(path: Path) -> tuple[dict[str, Any] | None, str | None]:
    """The object in a file, or None; and what is wrong, or None. A file that is not there is not wrong."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None, None
    except OSError as error:
        return None, f"{path.name} cannot be read: {error.strerror}."
    except (ValueError, RecursionError) as error:
        return None, f"{path.name} is not valid JSON: {error}."
    if not isinstance(content, dict):
        return None, f"{path.name} must hold an object, got {type(content).__name__}."
    return content, None


def read_json_lines(path: Path, least: Mapping[str, float]) -> tuple[list[dict[str, Any]], str | None]:
    """The lines of a file up to the first that cannot be used; and what is wrong, or None.

    Args:
        path: of the file.
        least: numbers that a line must have, with the smallest value that each can be; `step` is one and must rise.
    """
    lines: list[dict[str, Any]] = []
    before = 0.0
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            for count, text in enumerate(file, start=1):
                line = _parse(text)
                if line is None:
                    return lines, f"{path.name} is cut at line {count:,}: it is used up to there."
                for name, smallest in least.items():
                    if not smallest <= number(line.get(name)) < math.inf:
                        wrong = f"{name} is {line.get(name)!r:.40}"
                        return lines, f"{path.name} is wrong at line {count:,} ({wrong}): it is used up to there."
                if not line["step"] > before:
                    wrong = f"step {line['step']} comes after {before:g}"
                    return lines, f"{path.name} is wrong at line {count:,} ({wrong}): it is used up to there."
                before = line["step"]
                lines.append(line)
    except FileNotFoundError:
        return lines, f"{path.name} is missing."
    except OSError as error:
        return lines, f"{path.name} cannot be read: {error.strerror}."
    return lines, None


def _parse(text: str) -> dict[str, Any] | None:
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return line if isinstance(line, dict) else None
