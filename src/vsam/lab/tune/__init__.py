"""Hyperparameter search: settings of a method chosen on held-out training images, never on the test images."""

__all__: list[str] = []
