"""Names from files are text in every format: nothing in them is a command, a formula, markup or a cell's end."""

import io
import re

import pytest
from rich.console import Console

from vsam.lab.text import for_csv, for_latex, for_markdown, for_terminal, one_line, printable

NASTY = [
    "a\n\\write18{touch x}",
    "a%b\rc",
    "x[/a]b",
    "\x1b[31mred\x9b1m",
    "a|b",
    "![x](http://y)",
    "$\\bad$",
    "\u202eabc",
]


@pytest.mark.parametrize("name", NASTY)
def test_a_terminal_shows_and_does_not_obey(name):
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system="truecolor")
    console.print(for_terminal(name))
    shown = console.file.getvalue()
    assert not re.search(r"[\x1b\x9b\r\u202e]", shown)
    assert "[/a]" in shown or "[/a]" not in name


@pytest.mark.parametrize("name", NASTY)
def test_latex_takes_everything_as_text_of_one_line(name):
    escaped = for_latex(name)
    assert "\n" not in escaped
    assert "\r" not in escaped
    commands = re.findall(r"\\[a-z]+|\\.", escaped)
    assert set(commands) <= {r"\textbackslash", r"\%", r"\_", r"\$", r"\{", r"\}", r"\#", r"\&"}
    assert not re.search(r"(?<!\\)[%&#_]", escaped)


def test_signs_of_ours_are_written_as_latex_knows_them():
    assert for_latex("71.2 ± 0.4, ~1.5 η₀") == r"71.2 $\pm$ 0.4, $\sim$1.5 $\eta$$_0$"


@pytest.mark.parametrize("name", NASTY)
def test_markdown_has_one_cell_and_no_link_and_no_html(name):
    escaped = for_markdown(f"<b>{name}")
    assert "\n" not in escaped
    assert not re.search(r"(?<!\\)[|\[\]*_`!]", escaped)
    assert "<" not in escaped


@pytest.mark.parametrize("name", ["=HYPERLINK(1)", "+1", "-1", "@x", "\t=1", "\r=1", " =1"])
def test_a_spreadsheet_gets_no_formula(name):
    assert for_csv(name) == f"'{printable(name)}"
    assert for_csv("resnet8") == "resnet8"
    assert for_csv(-1.5) == -1.5
    assert for_csv(None) is None


def test_a_line_stays_one():
    assert one_line("a\n b\u2028c\x00") == "a b c�"
