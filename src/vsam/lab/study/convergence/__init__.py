"""Lemma 2 of the paper tried on a smooth problem."""

__all__: list[str] = []
