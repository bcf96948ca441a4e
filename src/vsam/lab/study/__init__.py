"""The paper's tables and figures as studies, and verdicts on its claims."""

__all__: list[str] = []
