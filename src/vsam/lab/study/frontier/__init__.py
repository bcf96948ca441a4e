"""Accuracy against price: how little more than SGD's price buys SAM's accuracy."""

__all__: list[str] = []
