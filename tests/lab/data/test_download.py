"""Downloads from a real server on this machine."""

import hashlib
import multiprocessing
import random
import socket
import threading
import time

import pytest

from lab.data.server import Behaviour, serve
from vsam.lab.data import DataError
from vsam.lab.data.download import download

CONTENT = random.Random(0).randbytes(600_000)
CHECKSUM = f"md5:{hashlib.md5(CONTENT).hexdigest()}"


@pytest.fixture
def target(tmp_path):
    return tmp_path / "new" / "tiny.tar.gz"


@pytest.fixture
def part(target):
    target.parent.mkdir()
    return target.with_name("tiny.tar.gz.part")


def files(target):
    return sorted(path.name for path in target.parent.iterdir() if path.name != ".tiny.tar.gz.lock")


def test_a_file_arrives_whole_and_leaves_no_partial_one(target):
    with serve(Behaviour(CONTENT)) as server:
        download(server.url, target, CHECKSUM)
    assert target.read_bytes() == CONTENT
    assert files(target) == ["tiny.tar.gz"]
    assert server.requests == [None]


def test_a_partial_file_is_continued(target, part):
    part.write_bytes(CONTENT[:200_000])
    with serve(Behaviour(CONTENT)) as server:
        download(server.url, target, CHECKSUM)
    assert target.read_bytes() == CONTENT
    assert server.requests == ["bytes=200000-"]


def test_a_cut_connection_is_taken_up_where_it_broke(target):
    with serve(Behaviour(CONTENT, hang_up_after=[100_000, 50_000])) as server:
        download(server.url, target, CHECKSUM)
    assert target.read_bytes() == CONTENT
    assert server.requests == [None, "bytes=100000-", "bytes=150000-"]


def test_patience_is_renewed_by_every_bit_of_progress(target):
    with serve(Behaviour(CONTENT, hang_up_after=[1000, 0, 0, 1000, 0, 0, 1000])) as server:
        download(server.url, target, CHECKSUM)
    assert target.read_bytes() == CONTENT
    assert len(server.requests) == 8


def test_a_server_without_ranges_starts_over(target, part):
    part.write_bytes(CONTENT[:200_000])
    with serve(Behaviour(CONTENT, knows_ranges=False)) as server:
        download(server.url, target, CHECKSUM)
    assert target.read_bytes() == CONTENT
    assert server.requests == ["bytes=200000-"]


def test_a_connection_that_brings_nothing_more_is_given_up_and_keeps_what_came(target, part):
    with serve(Behaviour(CONTENT, hang_up_after=[100_000, 0, 0, 0, 0, 0])) as server:
        with pytest.raises(DataError, match=r"ended after 100,000 of 600,000 bytes.*Try again"):
            download(server.url, target, CHECKSUM)
        assert len(server.requests) == 4
        assert part.read_bytes() == CONTENT[:100_000]
        server.hang_up_after.clear()
        download(server.url, target, CHECKSUM)
    assert target.read_bytes() == CONTENT


@pytest.mark.parametrize("content", [CONTENT, CONTENT + b"more"])
def test_a_partial_file_that_is_as_long_or_longer_is_dropped(target, part, content):
    part.write_bytes(content)
    with serve(Behaviour(CONTENT)) as server:
        download(server.url, target, CHECKSUM)
    assert target.read_bytes() == CONTENT
    assert server.requests == [f"bytes={len(content)}-", None]


def test_a_wrong_checksum_is_refused_and_nothing_stays(target):
    with (
        serve(Behaviour(CONTENT[:-1] + b"?")) as server,
        pytest.raises(DataError, match=f"did not deliver the published file.*{CHECKSUM}"),
    ):
        download(server.url, target, CHECKSUM)
    assert files(target) == []


def test_a_damaged_partial_file_ends_in_an_error_and_the_next_try_succeeds(target, part):
    part.write_bytes(b"x" * 1000)
    with serve(Behaviour(CONTENT)) as server:
        with pytest.raises(DataError, match="checksum"):
            download(server.url, target, CHECKSUM)
        download(server.url, target, CHECKSUM)
    assert target.read_bytes() == CONTENT


def test_an_answer_for_another_range_is_not_written(target, part):
    part.write_bytes(CONTENT[:1000])
    with (
        serve(Behaviour(CONTENT, wrong_range=True)) as server,
        pytest.raises(DataError, match="'bytes 1001-599999/600000' when asked for bytes from 1000"),
    ):
        download(server.url, target, CHECKSUM)
    assert part.read_bytes() == CONTENT[:1000]


@pytest.mark.parametrize(("status", "requests"), [(404, 1), (503, 3)])
def test_a_refusal_names_the_address_and_only_a_busy_server_is_asked_again(target, status, requests):
    with serve(Behaviour(CONTENT, status=status)) as server:
        with pytest.raises(DataError, match=f"{server.url} could not be downloaded: .*{status}"):
            download(server.url, target, CHECKSUM)
        assert len(server.requests) == requests


def test_no_network_says_where_to_put_the_file(target):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/tiny.tar.gz"
        with pytest.raises(DataError, match=f"put the file into {target.parent} yourself"):
            download(url, target, CHECKSUM)


def test_without_a_terminal_one_line_says_what_is_downloaded(target, capsys):
    with serve(Behaviour(CONTENT)) as server:
        download(server.url, target, CHECKSUM)
    output = capsys.readouterr()
    assert (output.out, output.err) == ("", f"Downloading {server.url}\n")


def test_on_a_terminal_progress_is_a_bar(target, capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    with serve(Behaviour(CONTENT)) as server:
        download(server.url, target, CHECKSUM)
    error = capsys.readouterr().err
    assert "━" in error
    assert "600.0/600.0 kB" in error


@pytest.fixture
def other_process(target):
    """Another process that is half through the same download, and the server that it waits for."""
    part = target.with_name("tiny.tar.gz.part")
    with serve(Behaviour(CONTENT, pause_after=400_000)) as server:
        start = multiprocessing.get_context("forkserver").Process
        process = start(target=download, args=(server.url, target, CHECKSUM), daemon=True)
        process.start()
        while not (part.exists() and part.stat().st_size):
            assert process.exitcode is None
            time.sleep(0.01)
        yield process, server
        server.go_on.set()
        process.join(600)


def test_a_second_process_waits_and_fetches_nothing(target, other_process, capsys):
    process, server = other_process
    threading.Timer(0.3, server.go_on.set).start()
    download(server.url, target, CHECKSUM)
    assert target.read_bytes() == CONTENT
    assert server.requests == [None]
    assert capsys.readouterr().err == ""
    process.join(600)
    assert process.exitcode == 0
    assert files(target) == ["tiny.tar.gz"]


def test_a_second_process_goes_on_where_a_killed_one_stopped(target, other_process):
    process, server = other_process
    process.kill()
    process.join()
    server.pause_after = None
    download(server.url, target, CHECKSUM)
    assert target.read_bytes() == CONTENT
    assert server.requests == [None, "bytes=262144-"]
