"""Several runs beside each other: trained in turns, timed and tabulated."""

__all__: list[str] = []
