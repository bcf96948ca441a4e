"""Settings of Sphinx, which builds the site from the Markdown in this folder: `make docs`."""

import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(Path(__file__).parent / "_ext")]

from vsam.version import __version__  # noqa: E402

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
REPOSITORY = PYPROJECT["tool"]["hatch"]["metadata"]["hooks"]["custom"]["repository"]
"""Where the repository is on the web; empty while nobody knows. Its only place is pyproject.toml."""

SITEMAP = {
    "User guide": [
        *("guide", "first-steps", "coming-from", "choosing", "when", "when-not", "loops/*", "using", "is-it-working"),
        *("flatness", "costs", "gallery/index", "troubleshooting", "questions", "limits"),
    ],
    "Methods": ["methods/*", "reproduction"],
    "Lab": ["lab", "your-own", "tuning", "studies", "commands"],
    "API": ["api/*"],
    "Change it": ["design", "writing-a-part", "contributing", "changelog"],
}
"""The menu: pages in their order. `FOLDER/*` is the folder's README with its other pages below it. A page that is not
written yet is left out; a page that is written and not listed is a warning, and so an error."""

project = "vsam"
copyright = "the vsam authors, MIT license"
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "site_pages",
    "narrow_tables",
    "api_pages",
    "commands_page",
]
root_doc = "index"
exclude_patterns = ["_build", "_ext"]
source_suffix = {".md": "markdown"}

myst_heading_anchors = 4
nitpicky = True
nitpick_ignore_regex = [
    # Other packages' names: the site is built offline, so there is nothing to link to.
    ("py:.*", r"(abc|accelerate|collections|contextlib|datasets|lightning|pathlib|random|torch|transformers)\..*"),
    ("py:.*", r"(Dataset|IterableDataset|(nn\.)?Module|Optimizer|Tensor|Trainer)"),
    # Names of ours that only stand in signatures.
    ("py:.*", "Bases"),
    ("py:.*", r"vsam\.(wrapper\.Wrapper|bases\.Joined|lab\.plugins\.Function|wrapper\.Options)"),
    ("py:.*", r"vsam\.(parts\.Part|parts\.KnowsLength|selection\.Losses)"),
]
default_role = "literal"
maximum_signature_line_length = 90
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_default_options = {"members": True, "show-inheritance": True}
python_use_unqualified_type_names = True
napoleon_use_rtype = False
napoleon_custom_sections = ["Reduces to", "Cost", "Reference"]

html_theme = "furo"
html_title = f"vsam {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
