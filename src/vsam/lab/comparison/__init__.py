"""Several runs side by side: trained in alternation, timed and tabulated."""

__all__: list[str] = []
