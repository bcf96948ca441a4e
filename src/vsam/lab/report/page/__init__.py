"""The report's page: one HTML file with tables and interactive figures."""

__all__: list[str] = []
