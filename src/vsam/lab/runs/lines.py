"""JSON that a killed process may have left cut, and that a person may have edited."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["Lines", "number", "read_json", "read_json_lines"]

Lines = list[dict[str, Any]]
_STEP = {"step": 1.0}


def number(value: object) -> float:
    """The value as a number; NaN for everything that is none."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.nan


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


def read_json_lines(path: Path, least: Mapping[str, float] = _STEP) -> tuple[Lines, str | None]:
    """The lines of a file up to the first that cannot be used; and what is wrong, or None.

    Args:
        path: of the file.
        least: numbers that a line must have, with the smallest value that each can be; `step` is one and must rise.
    """
    lines: Lines = []
    before = 0.0
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            for count, text in enumerate(file, start=1):
                line = _parse(text)
                if line is None:
                    return lines, f"{path.name} is cut at line {count:,}: it is used up to there."
                if wrong := _flaw(line, least, before):
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


def _flaw(line: Mapping[str, Any], least: Mapping[str, float], before: float) -> str | None:
    for name, smallest in least.items():
        if not smallest <= number(line.get(name)) < math.inf:
            return f"{name} is {line.get(name)!r:.40}"
    return None if line["step"] > before else f"step {line['step']} comes after {before:g}"
