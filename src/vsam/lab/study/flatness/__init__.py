"""The study of flatness: how sharp the minima of runs are, and how PSF evolves along a run."""

__all__: list[str] = []
