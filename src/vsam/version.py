"""The version, where the command finds it without importing torch."""

__all__ = ["__version__"]

__version__ = "0.1.0"
