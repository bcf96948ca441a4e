"""The version: the build reads it here."""

__all__ = ["__version__"]

__version__ = "0.3.0"
