"""Start a real browser. Without one its tests are skipped with the reason, or fail if VSAM_BROWSER=required."""

import os
import shutil
from collections.abc import Iterator

import pytest

__all__ = ["browser"]

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def _missing(reason: str) -> None:
    if os.environ.get("VSAM_BROWSER") == "required":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def browser() -> Iterator[object]:
    """Chromium, started once."""
    try:
        from playwright.sync_api import Error, sync_playwright
    except ModuleNotFoundError:
        _missing("no browser tests: playwright is not installed (pip install playwright)")
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        _missing(f"no browser tests: there is no {', '.join(NAMES[:3])} (make browser)")
    with sync_playwright() as playwright:
        try:
            started = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"], timeout=120_000)
        except Error as error:
            _missing(f"no browser tests: {program} does not start: {str(error).splitlines()[0]}")
        yield started
        started.close()
