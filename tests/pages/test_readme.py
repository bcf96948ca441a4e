"""The README is one screen and its table of contents: short, in a fixed order, without a word before its meaning."""

import re

from pages.read import ROOT, prose

SECTIONS = [
    "What vSAM is",
    "SAM elsewhere and here",
    "Two commands",
    "Install",
    "Methods",
    "Loops",
    "When not to use it",
    "Limits",
]


def test_the_readme_is_short_and_in_order() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 150
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == SECTIONS
    assert text.index("```python") < text.index("![") < text.index("## ")


def test_the_first_screen_has_no_unexplained_symbol() -> None:
    text = prose("README.md")
    first = text.partition("## ")[0]
    assert not re.search(r"[α-ωΑ-Ω]|PSF|‖", first)
    assert text.index("*PSF*") == text.index("PSF") - 1


def test_pages_use_the_words_cost_rule_and_fraction() -> None:
    for path in (ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("docs/methods/*.md")):
        found = re.search(r"\b(price|law|rival|budgeted)\b", path.read_text(encoding="utf-8"), re.IGNORECASE)
        assert not found, f"{path.name} has {found}"
