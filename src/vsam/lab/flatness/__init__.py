"""Pictures of flatness: resumable slices, figures, and a page."""

__all__: list[str] = []
