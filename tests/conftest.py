"""Fixtures and settings of all tests."""

from pathlib import Path

import hypothesis
import pytest
import torch

from browser_fixture import browser as browser  # started once for all rooms that open pages

_SLOW = (
    "lab/models/test_blocks.py",
    "lab/models/test_forward.py",
    "lab/report/test_figures.py",
    "test_costs.py",
    "test_golden.py",
    "test_oracles_follow.py",
    "test_oracles_follow_fused.py",
    "test_results.py",
    "test_step_cost.py",
    "when/test_long_runs.py",
)
"""Files whose tests train, draw or count for seconds: `make quick` keeps one test of each, the first."""

# Tests run side by side: more threads than cores make all of them slower by a factor.
torch.set_num_threads(1)
# A busy machine is no failure, and the same examples every time are no surprise.
hypothesis.settings.register_profile("vsam", deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("vsam")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all but the first test of the slow files."""
    files = {Path(__file__).parent / name for name in _SLOW}
    seen: set[Path] = set()
    for item in items:
        if item.path in seen:
            item.add_marker(pytest.mark.slow)
        elif item.path in files:
            seen.add(item.path)
