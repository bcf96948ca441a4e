"""The paper's numbers as data, and verdicts on its claims from our runs."""

__all__: list[str] = []
