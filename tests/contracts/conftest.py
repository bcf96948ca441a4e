"""The whole table is slow: of every promise, `make quick` tests a method of each kind, on a base with a state."""

from pathlib import Path

import pytest

_METHODS = ("sam", "vsam", "ae-sam", "esam")
"""One that always samples, one that decides before the gradient, one after it, and one that takes losses."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the rest of the table. A test that has none of these cases keeps its first one."""
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.path.parent == Path(__file__).parent and hasattr(item, "callspec"):
            tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for cases in tests.values():
        quick = [case for case in cases if _is_quick(case.callspec.params)] or cases[:1]  # type: ignore[attr-defined]
        for case in set(cases) - set(quick):
            case.add_marker(pytest.mark.slow)


def _is_quick(case: dict[str, object]) -> bool:
    return case.get("method", "sam") in _METHODS and str(case.get("base", "momentum")).endswith("momentum")
