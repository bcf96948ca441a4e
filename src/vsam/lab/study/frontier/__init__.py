"""Accuracy against price: SAM's accuracy for how little more than SGD."""

__all__: list[str] = []
