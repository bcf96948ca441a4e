"""The page on commands: `<!-- commands -->` becomes the help of every command, as the program itself gives it."""

import inspect
import re
from typing import Any

from sphinx.application import Sphinx

COMMENT = "<!-- commands -->"
OPTION = re.compile(r"(?<![\w`-])(--[a-z][a-z-]*)")


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the extension."""
    app.connect("source-read", _read)
    return {"parallel_read_safe": True}


def _read(app: Sphinx, page: str, source: list[str]) -> None:
    if page == "commands":
        source[0] = source[0].replace(COMMENT, "\n\n".join(_sections()))


def _sections() -> list[str]:
    import typer

    from vsam.lab.cli.app import app

    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    return [_section(name, command) for name, command in commands.items()]


def _section(name: str, command: Any) -> str:
    rows = [_row(parameter) for parameter in command.params]
    table = "\n".join(["| argument or option | default | |", "|---|---|---|", *rows])
    return f"## vsam {name}\n\n{_marked(inspect.cleandoc(command.help or ''))}\n\n{table}"


def _row(parameter: Any) -> str:
    value = (parameter.metavar or parameter.name.upper()).strip("{}[].")
    names = ", ".join([*parameter.opts, *parameter.secondary_opts])
    if parameter.param_type_name == "argument":
        names = value
    elif not parameter.is_flag:
        names += f" {value}"
    default = parameter.default
    is_shown = isinstance(default, str | int | float) and not isinstance(default, bool)
    shown = f"`{default}`" if is_shown else "required" if parameter.required else ""
    return f"| `{names}` | {shown} | {_marked(parameter.help or '').replace('|', '&#124;')} |"


def _marked(text: str) -> str:
    """Options as code, so that their dashes stay."""
    return OPTION.sub(r"`\1`", text)
