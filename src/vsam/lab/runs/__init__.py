"""One run and its folder: training, saving, resuming and reading."""

__all__: list[str] = []
