"""The page on design shows the step as it is, and names every file that it passes through."""

import inspect
import textwrap

from pages.read import ROOT, blocks
from vsam import SharpnessAware

PAGE = "docs/design.md"


def test_the_page_shows_the_generator_itself() -> None:
    (block,) = blocks(PAGE, "python")
    source = textwrap.dedent(inspect.getsource(SharpnessAware._sequence))
    assert block.text.strip() == source.strip(), f"paste SharpnessAware._sequence into {PAGE}"


def test_the_page_names_every_file_of_a_step_and_no_other() -> None:
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    table = text.partition("## The files of a step")[2].partition("Around them:")[0]
    named = {line.split("`")[1] for line in table.splitlines() if line.startswith("| `")}
    assert named == {path.name for path in (ROOT / "src/vsam/_step").glob("*.py")} - {"__init__.py"}
