"""Pictures of flatness: slices that go on after a kill, figures, and a page."""

__all__: list[str] = []
