"""The command, called in this process."""

import sys

import pytest

from vsam.lab.cli import main


@pytest.fixture
def call(monkeypatch, capsys, tmp_path):
    """Run the command here, in an empty folder. Any exit but a plain one fails the test."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["vsam", *arguments])
        with pytest.raises(SystemExit) as exit:
            main()
        captured = capsys.readouterr()
        return exit.value.code or 0, captured.out, captured.err

    return call
