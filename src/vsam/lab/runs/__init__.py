"""One run and its folder: trained, saved, continued and read."""

__all__: list[str] = []
