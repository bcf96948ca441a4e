"""JSON and JSON-lines files that a person may have edited or a disk damaged."""

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from vsam.lab.files import is_too_deep, read_regular

__all__ = ["Lines", "dump_lines", "number", "read_lines", "read_object"]


class Lines(list[dict[str, Any]]):
    """The lines of a file up to the first unusable one.

    `problem` is a sentence on why the rest cannot be used, or empty.
    """

    problem: str = ""


def dump_lines(lines: Iterable[Mapping[str, Any]]) -> str:
    """Return the text of a JSON-lines file."""
    return "".join(json.dumps(line) + "\n" for line in lines)


def read_lines(path: Path, required: Iterable[str] = ("step",)) -> Lines:
    """Read a JSON-lines file. Its steps must increase.

    Args:
        path: the file.
        required: keys of finite, non-negative numbers that every line needs. `step` is one of them.
    """
    found = Lines()
    try:
        content = read_regular(path).decode(errors="replace")
    except OSError as error:
        found.problem = f"{path.name} is missing."
        if not isinstance(error, FileNotFoundError):
            found.problem = f"{path.name} cannot be read: {error.strerror}."
        return found
    last = 0.0
    for place, text in enumerate(content.splitlines(), start=1):
        line = _parse(text)
        wrong = next((name for name in required if not 0 <= number(line.get(name)) < math.inf), None)
        if wrong is not None or not line["step"] > last:
            reason = f"{wrong} is {line.get(wrong)!r:.40}" if wrong else f"step {line['step']!r:.40} is out of order"
            reason = reason if line else "truncated, or not an object"
            found.problem = f"{path.name} is damaged at line {place:,} ({reason}): it is used up to there."
            break
        last = line["step"]
        found.append(line)
    return found


def read_object(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file, empty if there is no file. A `ValueError` says what is wrong with it."""
    try:
        text = read_regular(path)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ValueError(f"{path.name} cannot be read: {error.strerror}.") from error
    if not (found := _parse(text)):
        raise ValueError(f"{path.name} is damaged: it is not a JSON object.")
    return found


def number(value: object) -> float:
    """Return the value as a float, NaN if it is not a number."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.nan


def _parse(text: str | bytes) -> dict[str, Any]:
    """Return the object in a text, empty if it holds none."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) and not is_too_deep(found) else {}
