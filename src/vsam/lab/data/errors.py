"""The error for data that is missing, damaged or asked for in the wrong way."""

__all__ = ["DataError"]


class DataError(ValueError):
    """Something about the user's data or request is wrong; the message says what to do."""
