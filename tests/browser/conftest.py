"""A real browser; where there is none, its tests are skipped and say why, unless VSAM_BROWSER=required."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

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


class Opened:
    """A page that was opened from a file, and everything it complained about or asked for."""

    def __init__(self, context: object, path: Path) -> None:
        self.messages: list[str] = []
        self.requests: list[str] = []
        self.page = context.new_page()
        self.page.on("console", lambda message: self.messages.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.messages.append(f"error: {error}"))
        self.page.on("dialog", lambda dialog: (self.messages.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())

    def draw_all(self) -> int:
        """Scroll so that every figure is drawn; returns how many there are."""
        plots = self.page.locator(".plot")
        for number in range(plots.count()):
            plots.nth(number).scroll_into_view_if_needed()
            plots.nth(number).locator("svg").first.wait_for()
        return plots.count()


@pytest.fixture(scope="module")
def open_page(browser: object) -> Iterator[object]:
    """Opens a file in a window of its own: `open_page(path, width=1280, height=900, …)`."""
    contexts = []

    def open_it(path: Path, width: int = 1280, height: int = 900, **options: object) -> Opened:
        contexts.append(browser.new_context(viewport={"width": width, "height": height}, **options))
        contexts[-1].set_default_timeout(120_000)  # the machine may be busy
        return Opened(contexts[-1], path)

    yield open_it
    for context in contexts:
        context.close()
