"""Interfaces for showing the progress of runs."""

from collections.abc import Sequence
from typing import Any, Protocol

__all__ = ["NullProgress", "Progress"]


class Progress(Protocol):
    """Shows the progress of a comparison."""

    def begin(self, cells: Sequence[tuple[str, int, int, int]]) -> None:
        """All cells are known: method, seed, steps done, total steps."""

    def advance(self, method: str, seed: int, step: int) -> None:
        """A cell has reached a step."""

    def epoch(self, method: str, seed: int, metrics: dict[str, Any]) -> None:
        """A cell has finished an epoch."""


class NullProgress:
    """Shows nothing."""

    def begin(self, cells: Sequence[tuple[str, int, int, int]]) -> None:
        """Nothing."""

    def advance(self, method: str, seed: int, step: int) -> None:
        """Nothing."""

    def epoch(self, method: str, seed: int, metrics: dict[str, Any]) -> None:
        """Nothing."""
