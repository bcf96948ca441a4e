"""Lemma 2 of the paper, tested on a smooth problem."""

__all__: list[str] = []
