"""The figures for papers, drawn by matplotlib."""

__all__: list[str] = []
