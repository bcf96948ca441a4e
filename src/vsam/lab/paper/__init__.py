"""The paper's numbers as data, and its claims judged by our runs."""

__all__: list[str] = []
