"""Hyperparameter search: a method's settings, chosen on held-out training images, never on test images."""

__all__: list[str] = []
