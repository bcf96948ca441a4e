"""The study of flatness: how sharp the minima of runs are, and what PSF is along a run."""

__all__: list[str] = []
