"""Completion in bash, which splits `KEY=VALUE` into three words."""

import contextlib
import io
import os
import sys
from collections.abc import Callable, Sequence

__all__ = ["answer_bash", "joined"]


def answer_bash(run: Callable[[], object]) -> None:
    """Run the completion on rejoined words, and strip the prefix that bash already has as separate words."""
    words, place = os.environ["COMP_WORDS"].split("\n"), int(os.environ["COMP_CWORD"])
    words, place, before = joined(words, place)
    os.environ |= {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(place)}
    answer = io.StringIO()
    try:
        with contextlib.redirect_stdout(answer):
            run()
    finally:
        sys.stdout.writelines(line.removeprefix(before) for line in answer.getvalue().splitlines(keepends=True))


def joined(words: Sequence[str], place: int) -> tuple[list[str], int, str]:
    """Rejoin the words around a `=`: the words, the index of the one to complete, and the prefix that bash already has.

    Example:
        >>> joined(["vsam", "--set", "method", "=", "vs"], 4)
        (['vsam', '--set', 'method=vs'], 2, 'method=')
    """
    found: list[str] = []
    new_place, before = 0, ""
    for number, word in enumerate(words):
        is_part = bool(found) and (word == "=" or words[number - 1] == "=")
        start = found.pop() if is_part else ""
        found.append(start + word)
        if number == place:
            new_place = len(found) - 1
            before = found[-1] if word == "=" else start
    return found, new_place, before
