"""The losses of a slice in a file, point by point, so that a killed grid can resume."""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Any

from vsam.lab.errors import RunError
from vsam.lab.files import append, read_regular, write_atomically

__all__ = ["GridFile"]

_AT_ONCE = 8
"""Points written at once: a kill loses at most these."""


class GridFile(MutableMapping[tuple[int, ...], float]):
    """Losses by position on a grid, stored in a JSON-lines file as `vsam.sharpness.landscape` computes them.

    Args:
        folder: of all grids.
        settings: everything that affects the losses, including the checkpoint's checksum; they determine the file
            name, so that other settings never read its points.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        text = json.dumps(settings, sort_keys=True)
        self.path = folder / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.jsonl"
        self._points = dict(self._read())
        self._waiting: list[str] = []
        lines = [text, *(json.dumps([*place, loss]) for place, loss in self._points.items())]
        write_atomically(self.path, "".join(f"{line}\n" for line in lines))  # drops a line truncated by a kill

    def __getitem__(self, place: tuple[int, ...]) -> float:
        return self._points[place]

    def __setitem__(self, place: tuple[int, ...], loss: float) -> None:
        self._points[place] = loss
        self._waiting.append(json.dumps([*place, loss]) + "\n")
        if len(self._waiting) >= _AT_ONCE:
            self.flush()

    def __delitem__(self, place: tuple[int, ...]) -> None:
        del self._points[place]

    def __iter__(self) -> Iterator[tuple[int, ...]]:
        return iter(self._points)

    def __len__(self) -> int:
        return len(self._points)

    def flush(self) -> None:
        """Write pending points."""
        if self._waiting:
            text, self._waiting = "".join(self._waiting), []
            try:
                append(self.path, text)
            except OSError as error:
                raise RunError(f"{self.path} could not be written: {error.strerror}. Make room and rerun.") from error

    def _read(self) -> Iterator[tuple[tuple[int, ...], float]]:
        try:
            lines = read_regular(self.path).decode(errors="replace").splitlines()[1:]
        except OSError:
            return
        for line in lines:
            try:
                *place, loss = json.loads(line)
                if all(type(i) is int for i in place) and isinstance(loss, float) and not math.isnan(loss):
                    yield tuple(place), loss
            except (ValueError, TypeError):  # truncated by a kill
                continue
