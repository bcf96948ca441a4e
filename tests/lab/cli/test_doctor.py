"""`vsam doctor` as a user runs it: what it prints, and its exit codes."""

import json

import pytest

from lab.command import assert_refused, vsam
from lab.subject.files import write

pytestmark = pytest.mark.slow


def test_a_sound_file_exits_with_zero_and_the_cost(tmp_path):
    write(tmp_path)
    command = vsam("doctor", "mine.py", "--method", "sam-4", "--seconds", "0.1", folder=tmp_path)
    assert command.code == 0, command.stdout + command.stderr
    text = " ".join(command.stdout.split())
    assert "at 1.25 passes per step" in text
    assert "keeps no buffer between steps" in text
    assert text.endswith("Nothing looks wrong.")


def test_a_problem_exits_with_one_and_json_stays_alone(tmp_path):
    write(tmp_path, more="loss(model, batches[0]).backward()\n")
    command = vsam("doctor", "mine.py", "--seconds", "0", "--json", folder=tmp_path)
    assert command.code == 1
    content = json.loads(command.stdout)
    assert content["problems"] == 1
    assert {"ok", "problem"} <= {one["level"] for one in content["findings"]}


def test_the_machine_alone_is_looked_at_without_a_file(tmp_path):
    command = vsam("doctor", folder=tmp_path)
    assert command.code == 0, command.stdout
    assert all(word in command.stdout for word in ("versions", "device", "threads", "data", "Nothing looks wrong."))


def test_what_cannot_be_used_exits_with_two(tmp_path):
    path = write(tmp_path, ("model = ", "net = "))
    assert_refused(vsam("doctor", path, folder=tmp_path), 2, "It has net: write model = net.")
    assert_refused(vsam("doctor", "--method", "vsamm", folder=tmp_path), 2, "Did you mean 'vsam'?")
    path = write(tmp_path)
    assert_refused(vsam("doctor", path, "--set", "rho", folder=tmp_path), 2, "--set needs key=value, got 'rho'.")
    assert_refused(vsam("doctor", path, "--set", "rho=-1", folder=tmp_path), 2, "rho must not be negative")
