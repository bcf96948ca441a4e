"""Who is told how far the benchmark is."""

from typing import Protocol

__all__ = ["NullProgress", "Progress"]


class Progress(Protocol):
    """Is told what is done and how far it is."""

    def begin(self, task: str, total: int) -> None:
        """A task of so many units begins; the one before has ended."""

    def advance(self, completed: int) -> None:
        """So many units of it are done."""


class NullProgress:
    """Shows nothing."""

    def begin(self, task: str, total: int) -> None:
        """Ignore the task."""

    def advance(self, completed: int) -> None:
        """Ignore how far it is."""
