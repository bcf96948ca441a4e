"""User-defined methods, models and datasets, from a Python file."""

import hashlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, TypeVar

from vsam.lab.errors import RunError, UserError
from vsam.lab.files import read_regular

__all__ = [
    "GIVEN",
    "Plugin",
    "bring",
    "call",
    "explained",
    "find_plugin",
    "list_plugins",
    "load_file",
    "method",
    "model",
    "origins",
    "register",
    "settings_of",
    "use",
]

GIVEN = ("base", "model", "recipe", "rho", "seed", "total_steps")
"""Arguments that the function of a method may declare. Its other arguments are its settings."""

Kind = Literal["method", "model", "data"]
Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Plugin:
    """A user-defined method, model or dataset.

    Args:
        name: in recipes and lists.
        make: the user's function.
        origin: the file that it comes from, empty if it was registered by hand.
        checksum: of that file.
    """

    name: str
    make: Callable[..., Any]
    origin: str = ""
    checksum: str = ""

    @property
    def summary(self) -> str:
        """The first line of the function's docstring."""
        return (inspect.getdoc(self.make) or "User-defined").splitlines()[0].rstrip(".")


_known: dict[Kind, dict[str, Plugin]] = {"method": {}, "model": {}, "data": {}}
_origin: list[tuple[str, str]] = [("", "")]  # of what is being imported
_used: dict[str, str] = {}


def method(name: str) -> Callable[[Function], Function]:
    """Add a method: decorate a function that returns an optimizer, or one or more parts.

    The function receives those of `base`, `model`, `recipe`, `rho`, `seed` and `total_steps` that it declares as
    arguments. Its other arguments need defaults: they are its settings, `own.NAME` in recipes.

    Example:
        >>> @vsam.lab.method("every-third")
        ... def every_third(base, model, rho):
        ...     return vsam.SAM(base, model=model, rho=rho, every=3)
    """
    return register("method", name)


def model(name: str) -> Callable[[Function], Function]:
    """Add a model: decorate a function of `num_classes` and `in_channels`, or neither, that returns a module."""
    return register("model", name)


def register(kind: Kind, name: str) -> Callable[[Function], Function]:
    """Register something of a kind under an unused name."""

    def decorate(make: Function) -> Function:
        if not callable(make):
            raise UserError(f"@vsam.lab.{kind}({name!r}) must decorate a function, got {type(make).__name__}.")
        if not isinstance(name, str) or not _is_plain(name):
            raise UserError(
                f"A {kind} needs a plain name: printable, no slashes, colons or commas, and not 'all'. Got {name!r}."
            )
        origin, checksum = _origin[-1]
        before = _known[kind].get(name)
        if _is_ours(kind, name) or (before is not None and before.origin != origin):
            whose = f"from {before.origin}" if before is not None else "in vsam"
            raise UserError(f"A {kind} named {name!r} already exists {whose}. Choose another name.")
        _known[kind][name] = Plugin(name, make, origin, checksum)
        return make

    return decorate


def use(path: str | Path) -> str:
    """Import a Python file, register its decorated functions, and return its checksum."""
    module = load_file(path)
    if not any(plugin.origin == module.__file__ for found in _known.values() for plugin in found.values()):
        raise UserError(
            f"--use {path} registers nothing: decorate a function in it with @vsam.lab.method(NAME), "
            "@vsam.lab.model(NAME) or @vsam.lab.data(NAME)."
        )
    return _used[str(module.__file__)]


def load_file(path: str | Path) -> ModuleType:
    """Import a Python file and register its decorated functions, if it has any.

    Importing the same file twice changes nothing. A changed file replaces what it registered before. If the import
    fails, nothing changes.
    """
    file = Path(path).expanduser().resolve()
    try:
        checksum = f"sha256:{hashlib.sha256(read_regular(file)).hexdigest()}"
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from error
    if _used.get(str(file)) == checksum:
        return sys.modules[_module_name(file)]
    before = {kind: dict(found) for kind, found in _known.items()}
    for kind, found in before.items():
        _known[kind] = {name: plugin for name, plugin in found.items() if plugin.origin != str(file)}
    _origin.append((str(file), checksum))
    try:
        module = _execute(path, file)
    except BaseException:
        _known.update(before)
        raise
    finally:
        _origin.pop()
    _used[str(file)] = checksum
    return module


@contextmanager
def explained(file: str | Path, what: str) -> Iterator[None]:
    """Turn an exception in a user's file into an error that names its line. What the file prints goes to stderr."""
    try:
        with redirect_stdout(sys.stderr):
            yield
    except (UserError, RunError):
        raise
    except (Exception, SystemExit) as error:
        lines = [one.lineno for one in traceback.extract_tb(error.__traceback__) if one.filename == str(file)]
        line = getattr(error, "lineno", None) if isinstance(error, SyntaxError) else lines[-1] if lines else None
        where = f" on line {line}" if line else ""
        reason = str(error).strip() or "no message"
        raise UserError(f"{file}: {what}{where}: {type(error).__name__}: {reason}. Fix the file.") from error


def bring(files: object, folder: Path = Path()) -> None:
    """Import the files that a recipe names, as a list or with checksums, which must match.

    Args:
        files: the recipe's `use`.
        folder: which relative paths are relative to.
    """
    wanted = dict.fromkeys(files, "") if isinstance(files, list) else files
    if not isinstance(wanted, dict) or not all(isinstance(part, str) for pair in wanted.items() for part in pair):
        raise UserError(f'use must be a list of files, e.g. use = ["own.py"], got {files!r:.80}.')
    for file, checksum in wanted.items():
        found = use(folder / file)
        if checksum and found != checksum:
            raise UserError(
                f"{file} has changed: its checksum is {found}, but {checksum} was used. Restore the file, or retrain "
                "with another --out."
            )


def find_plugin(kind: Kind, name: str) -> Plugin | None:
    """Return what the user registered under that name, if anything."""
    return _known[kind].get(name)


def list_plugins(kind: Kind) -> list[Plugin]:
    """Return all of a kind, in order of registration."""
    return list(_known[kind].values())


def origins(**names: str) -> dict[str, str]:
    """Return the files that the named ones come from, with their checksums. Names are given by kind."""
    found = [find_plugin(kind, names[kind]) for kind in _known if kind in names]
    return {plugin.origin: plugin.checksum for plugin in found if plugin is not None and plugin.origin}


def call(plugin: Plugin, given: Mapping[str, Any], **settings: Any) -> Any:
    """Call the user's function with those of the given values that it declares, and with its own settings."""
    parameters = inspect.signature(plugin.make).parameters
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    chosen = {name: value for name, value in given.items() if name in parameters or takes_all}
    try:
        return plugin.make(**chosen, **settings)
    except TypeError as error:
        if error.__traceback__ is not None and error.__traceback__.tb_next is not None:
            raise  # raised inside the function
        called = ", ".join(given)
        raise UserError(f"{plugin.name!r} of {plugin.origin}: {error}. It is called with {called}.") from error


def _module_name(file: Path) -> str:
    return f"vsam_plugin_{file.stem}"


def _execute(path: str | Path, file: Path) -> ModuleType:
    name = _module_name(file)
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise UserError(f"{path}: give a Python file with a name ending in .py.")
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    if str(file.parent) not in sys.path:
        sys.path.append(str(file.parent))  # last, so that a file next to it does not shadow a package
    with explained(file, "the import failed"):
        spec.loader.exec_module(module)
    return module


def settings_of(plugin: Plugin) -> dict[str, Any]:
    """Return the settings of a user's method with their defaults."""
    parameters = inspect.signature(plugin.make).parameters
    settings = {name: parameter.default for name, parameter in parameters.items() if name not in GIVEN}
    if missing := [name for name, default in settings.items() if default is inspect.Parameter.empty]:
        raise UserError(
            f"Method {plugin.name!r} of {plugin.origin}: its argument {missing[0]!r} needs a default. Only these do "
            f"not: {', '.join(GIVEN)}."
        )
    return settings


def _is_plain(name: str) -> bool:
    """Return True if the name works on the command line, in comma-separated lists and as a folder."""
    strange = any(sign in name for sign in "/\\:,") or not name.isprintable()
    return bool(name) and not strange and name == name.strip() and name not in ("all", ".", "..")


def _is_ours(kind: Kind, name: str) -> bool:
    """Return True if vsam itself has something of that name."""
    if kind == "method":
        from vsam.lab.methods import is_ours

        return is_ours(name)
    if kind == "model":
        from vsam.lab.models import is_known

        return is_known(name)
    from vsam.lab.data.catalog import LISTED

    return name in LISTED
