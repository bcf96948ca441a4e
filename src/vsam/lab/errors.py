"""The two ways in which the lab fails: by what the user gave, and while running."""

from vsam.lab.data.errors import DataError

__all__ = ["DataError", "RunError", "UserError"]


class UserError(ValueError):
    """What the user gave cannot work; the message says what to do. Exit code 2."""


class RunError(RuntimeError):
    """Something failed while running; the message says what, and how to go on. Exit code 1."""
