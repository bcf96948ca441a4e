"""Pages opened in a real browser, and everything they complain about or ask for."""

from collections.abc import Iterator
from pathlib import Path

import pytest


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
