"""JSON files that a killed process may have truncated, or a person edited."""

import hashlib
import json
import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vsam.lab.files import is_too_deep, read_regular

__all__ = ["Lines", "number", "read_json", "read_json_lines"]

Lines = list[dict[str, Any]]
_STEP = {"step": 1.0}


def number(value: object) -> float:
    """The value as a number; NaN if it is not one."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.nan


def read_json(path: Path) -> tuple[dict[str, Any] | None, str | None]:
    """The object in a file, or None; and what is wrong, or None. A missing file is not an error."""
    try:
        content = json.loads(read_regular(path))
    except FileNotFoundError:
        return None, None
    except OSError as error:
        return None, f"{path.name} cannot be read: {error.strerror}."
    except (ValueError, RecursionError) as error:
        return None, f"{path.name} is not valid JSON: {error}."
    if not isinstance(content, dict):
        return None, f"{path.name} must contain an object, got {type(content).__name__}."
    if is_too_deep(content):
        return None, f"{path.name} is nested too deeply."
    return content, None


def read_json_lines(
    path: Path, least: Mapping[str, float] = _STEP, checksum: str | None = None
) -> tuple[Lines, str | None]:
    """The usable lines of a file; and what is wrong, or None. A bad line does not discard good ones.

    Args:
        path: of the file.
        least: numbers that a line must have, with their smallest values; `step` is one and must increase.
        checksum: of the complete file as written, if known.
    """
    try:
        content = read_regular(path)
    except FileNotFoundError:
        return [], f"{path.name} is missing."
    except OSError as error:
        return [], f"{path.name} cannot be read: {error.strerror}."
    texts = content.decode(errors="replace").removesuffix("\n").split("\n") if content else []
    found = [_parse(text, least) for text in texts]
    places = [place for place, line in enumerate(found) if isinstance(line, dict)]
    lines = [line for line in found if isinstance(line, dict)]
    rising = _rising([line["step"] for line in lines])
    wrong = {place: why for place, why in enumerate(found) if isinstance(why, str)}
    wrong |= {places[i]: f"step {lines[i]['step']} is out of order" for i in set(range(len(lines))).difference(rising)}
    return [lines[i] for i in rising], _complaint(path.name, len(texts), wrong, _is_whole(content, checksum))


def _complaint(name: str, total: int, wrong: Mapping[int, str], is_whole: bool) -> str | None:
    if wrong:
        first = min(wrong)
        what = f"{len(wrong):,} of {total:,} lines are unusable, first line {first + 1:,} ({wrong[first]})"
        return f"{name} is damaged: {what}. The rest are used."
    return None if is_whole else f"{name} is damaged: it was changed after it was written."


def _is_whole(content: bytes, checksum: str | None) -> bool:
    return checksum is None or f"sha256:{hashlib.sha256(content).hexdigest()}" == checksum


def _parse(text: str, least: Mapping[str, float]) -> dict[str, Any] | str:
    """The line, or why it is invalid."""
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):
        return "truncated, or not JSON"
    if not isinstance(line, dict) or is_too_deep(line):
        return "not a line of numbers"
    for name, smallest in least.items():
        if not smallest <= number(line.get(name)) < math.inf:
            return f"{name} is {line.get(name)!r:.40}"
    return line


def _rising(steps: Sequence[float]) -> list[int]:
    """The indices of the longest increasing sequence: one wrong step discards no others."""
    last: list[float] = []  # for each length, the smallest last step of such a sequence, and its index
    places: list[int] = []
    before: list[int] = []
    for place, step in enumerate(steps):
        length = bisect_left(last, step)
        before.append(places[length - 1] if length else -1)
        if last[length : length + 1] != [step]:  # of equal steps, the first
            last[length : length + 1], places[length : length + 1] = [step], [place]
    found = []
    place = places[-1] if places else -1
    while place >= 0:
        found.append(place)
        place = before[place]
    return found[::-1]
