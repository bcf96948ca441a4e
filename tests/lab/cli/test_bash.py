"""Completion in bash, which takes `KEY=VALUE` for three words."""

import sys

import pytest

from vsam.lab.cli import main
from vsam.lab.cli.bash import joined


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("vsam tra", (["vsam", "tra"], 1, "")),
        ("vsam train --set method = vs", (["vsam", "train", "--set", "method=vs"], 3, "method=")),
        ("vsam train --set method =", (["vsam", "train", "--set", "method="], 3, "method=")),
        ("vsam train --set method = sam fas", (["vsam", "train", "--set", "method=sam", "fas"], 4, "")),
    ],
)
def test_what_is_around_an_equals_sign_is_one_word(words, expected):
    assert joined(words.split(), len(words.split()) - 1) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("vsam train --set method = vs", ["vsam", "vsam-a", "vsam-budget"]),
        ("vsam train --set optimizer =", ["sgd", "adamw"]),
        ("vsam train --set method = sam fas", ["fashion-mini"]),
        ("vsam tu", ["tune"]),
    ],
)
def test_bash_asks_and_is_answered(monkeypatch, capsys, line, expected):
    words = line.split()
    for name, value in (("_VSAM_COMPLETE", "complete_bash"), ("COMP_WORDS", "\n".join(words))):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
    monkeypatch.setenv("TERMINAL_WIDTH", "")
    monkeypatch.setattr(sys, "argv", ["vsam"])
    with pytest.raises(SystemExit):
        main()
    assert capsys.readouterr().out.split() == expected
