"""A real HTTP server on 127.0.0.1 that can ignore ranges, hang up early, pause, or refuse."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Behaviour:
    """A local server of files. `requests` collects the Range header of each request (or None)."""

    content: bytes
    knows_ranges: bool = True
    hang_up_after: list[int] = field(default_factory=list)
    status: int | None = None
    wrong_range: bool = False
    pause_after: int | None = None
    go_on: threading.Event = field(default_factory=threading.Event)
    requests: list[str | None] = field(default_factory=list)
    url: str = ""


@contextmanager
def serve(behaviour: Behaviour, name: str = "tiny.tar.gz") -> Iterator[Behaviour]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            asked = self.headers.get("Range")
            behaviour.requests.append(asked)
            if behaviour.status is not None:
                self.send_error(behaviour.status)
                return
            total, start = len(behaviour.content), 0
            if asked and behaviour.knows_ranges:
                start = int(asked.removeprefix("bytes=").removesuffix("-"))
                if start >= total:
                    self.send_response(416)
                    self.send_header("Content-Range", f"bytes */{total}")
                    self.end_headers()
                    return
                self.send_response(206)
                said = start + 1 if behaviour.wrong_range else start
                self.send_header("Content-Range", f"bytes {said}-{total - 1}/{total}")
            else:
                self.send_response(200)
            self.send_header("Content-Length", str(total - start))
            self.end_headers()
            stop = start + behaviour.hang_up_after.pop(0) if behaviour.hang_up_after else total
            if behaviour.pause_after is not None:
                self.wfile.write(behaviour.content[start : behaviour.pause_after])
                start = behaviour.pause_after
                behaviour.go_on.wait()
            with suppress(ConnectionError):  # whoever asked may have been killed
                self.wfile.write(behaviour.content[start:stop])

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    behaviour.url = f"http://127.0.0.1:{server.server_port}/{name}"
    try:
        yield behaviour
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
