"""Every command on the pages is one that the program takes: options, settings, names, files, extras, targets."""

import re
import shlex
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

from pages.read import PAGES, ROOT, Block, blocks, prose
from vsam.lab.cli.app import app
from vsam.lab.methods import find_method
from vsam.lab.recipes.load import load_recipe
from vsam.lab.study.plan import STUDIES

COMMANDS: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined]
EXTRAS = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
PLACEHOLDER = re.compile(r"[A-Z][A-Z0-9.]*$")
SEPARATORS = {";", "&", "&&", "|"}


def in_blocks(page: str) -> Iterator[tuple[str, str]]:
    """The commands of a page's blocks, with where they are."""
    for block in blocks(page, "sh", "bash", ""):
        for line in block.text.replace("\\\n", " ").splitlines():
            yield str(block), line
    for block in blocks("docs/loops/torchrun.md", "diff") if page == "docs/loops/torchrun.md" else []:
        for line in block.text.splitlines():
            yield str(block), line[1:]


def in_words(page: str) -> Iterator[tuple[str, str]]:
    """The commands between backticks."""
    for command in re.findall(r"`((?:vsam|make|python|pip install|torchrun) [^`]+)`", prose(page)):
        yield page, command.replace("\n", " ")


def parts(line: str) -> Iterator[list[str]]:
    """The commands of a line, in words."""
    words: list[str] = []
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|")
    lexer.whitespace_split = True
    for word in [*lexer, ";"]:
        if word in SEPARATORS:
            if words:
                yield words
            words = []
        elif word != "…":
            words.append(word)


NOW = [page for page in PAGES if page != "CHANGELOG.md"]  # which also names commands that are gone
ALL = [(place, words) for page in NOW for place, line in (*in_blocks(page), *in_words(page)) for words in parts(line)]


@pytest.mark.parametrize(
    ("place", "words"), ALL, ids=lambda value: value if isinstance(value, str) else " ".join(value)
)
def test_a_command_is_one_that_exists(place: str, words: list[str]) -> None:
    while words and ("=" in words[0] or words[0] == "export"):  # settings of the environment
        words = words[1:]
    if not words:
        return
    program, *rest = words
    if program == "torchrun":
        rest = rest[rest.index("-m") :] if "-m" in rest else [word for word in rest if word.endswith(".py")]
        program = "python"
    if program == "python":
        if rest[:2] == ["-m", "vsam"]:
            check_vsam(rest[2:])
        elif rest and rest[0].endswith(".py"):
            assert (ROOT / rest[0]).is_file(), f"{place}: {rest[0]}"
        else:
            assert not rest or rest[0].startswith("-"), f"{place}: {rest}"
    elif program == "vsam":
        check_vsam(rest)
    elif program == "make":
        assert set(rest) <= TARGETS, f"{place}: make {rest}"
    elif program == "pip":
        assert rest[0] == "install"
        for extra in re.findall(r"\[([a-z,]+)\]", " ".join(rest)):
            assert set(extra.split(",")) <= EXTRAS, f"{place}: {extra}"
    elif program == "git":
        assert rest[0] == "clone", f"{place}: git {rest}"
    elif program != "cd":
        pytest.fail(f"{place}: what is {program}?")


def check_vsam(words: list[str]) -> None:
    """Parse a command as the program does, and look its names up."""
    if words[0].startswith("--"):
        assert words[0] in ("--help", "--version", "--install-completion", "--show-completion")
        return
    if PLACEHOLDER.match(words[0]):
        return
    command = COMMANDS[words[0]]
    context = command.context_class(command, info_name=words[0])
    given = [word for word in words[1:] if word != "--help"]
    if given and given[-1] in ("--json", "--set", "--use"):  # named in a sentence, without its value
        given.append("X" if given[-1] == "--json" else "seed=1")
    options, _, _ = command.make_parser(context).parse_args(given)
    is_extended = bool(options.get("use"))
    recipe = options.get("recipe") or "fashion-mini"
    if words[0] in ("train", "tune", "compare"):
        check_settings(recipe, options.get("changes") or [], is_extended)
    for methods in (options.get("methods"), options.get("method")):
        if methods and methods != "all" and not is_extended:
            for name in methods.split(","):
                assert PLACEHOLDER.match(name) or find_method(name)
    if words[0] == "study" and options.get("name"):
        assert options["name"] in STUDIES or PLACEHOLDER.match(options["name"])
    if words[0] == "explain" and options.get("method"):
        assert PLACEHOLDER.match(options["method"]) or find_method(options["method"])


def check_settings(recipe: str, changes: list[str], is_extended: bool) -> None:
    """Make the recipe that the command names, with its changes."""
    if recipe.endswith(".toml") or PLACEHOLDER.match(recipe):
        return
    known = [change for change in changes if not (is_extended and change.startswith(("method=", "model=", "own.")))]
    load_recipe(recipe, changes=tuple(known))


@pytest.mark.parametrize(
    "line",
    [
        "vsam trian",
        "vsam train --sed 1",
        "vsam train --set seeed=1",
        "vsam train no-such-recipe",
        "vsam compare --methods sgd,smm",
        "vsam explain vsamm",
        "vsam study table9",
        "python examples/no_such.py",
        "pip install 'vsam[labb]'",
        "make dcos",
        "git push",
        "rm -r runs",
    ],
)
def test_a_mistake_is_found(line: str) -> None:
    (words,) = parts(line)
    with pytest.raises(BaseException):  # noqa: B017, PT011 - whatever the program says
        test_a_command_is_one_that_exists("here", words)


def test_the_pages_have_commands() -> None:
    assert len(ALL) > 100
    assert isinstance(blocks("docs/lab.md", "sh")[0], Block)
