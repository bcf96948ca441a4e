"""The user's own methods, models and datasets, from a file or an installed package."""

import hashlib
import importlib.metadata
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar

from vsam.lab.errors import UserError
from vsam.lab.files import read_regular

__all__ = ["GROUP", "Own", "call", "find_own", "list_own", "method", "model", "origins", "register", "use"]

GROUP = "vsam.lab"
"""The entry point group through which an installed package registers its own."""

Kind = Literal["method", "model", "data"]
Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Own:
    """A method, model or dataset of the user's own.

    Args:
        name: in recipes and lists.
        make: the user's function.
        origin: the file or package it comes from; empty if it was registered by hand.
        version: the file's checksum, or the package's version.
    """

    name: str
    make: Callable[..., Any]
    origin: str = ""
    version: str = ""

    @property
    def summary(self) -> str:
        """The first line of the function's docstring."""
        return (inspect.getdoc(self.make) or "Your own").splitlines()[0].rstrip(".")


_known: dict[Kind, dict[str, Own]] = {"method": {}, "model": {}, "data": {}}
_origin: list[tuple[str, str]] = [("", "")]  # of what is being imported
_used: dict[str, str] = {}


def method(name: str) -> Callable[[Function], Function]:
    """Add a method of your own: decorate a function that returns an optimizer, or one or more parts.

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


def _is_plain(name: str) -> bool:
    """Whether the name works on the command line, in comma-separated lists and as a folder."""
    strange = any(sign in name for sign in "/\\:,") or not name.isprintable()
    return bool(name) and not strange and name == name.strip() and name not in ("all", ".", "..")


def register(kind: Kind, name: str) -> Callable[[Function], Function]:
    """Register something of a kind under an unused name."""

    def decorate(make: Function) -> Function:
        if not callable(make):
            raise UserError(f"@vsam.lab.{kind}({name!r}) must decorate a function, got {type(make).__name__}.")
        if not isinstance(name, str) or not _is_plain(name):
            raise UserError(
                f"A {kind} needs a plain name: printable, no slashes, colons or commas, and not 'all'. Got {name!r}."
            )
        origin, version = _origin[-1]
        before = _known[kind].get(name)
        if _is_ours(kind, name) or (before is not None and before.origin != origin):
            whose = f"from {before.origin}" if before is not None else "in vsam"
            raise UserError(f"A {kind} named {name!r} already exists {whose}. Choose another name.")
        _known[kind][name] = Own(name, make, origin, version)
        return make

    return decorate


def use(path: str | Path) -> str:
    """Import a Python file and register its decorated functions; returns its checksum.

    Importing the same file twice changes nothing; a changed file replaces what it registered before.
    """
    file = Path(path).expanduser().resolve()
    try:
        checksum = f"sha256:{hashlib.sha256(read_regular(file)).hexdigest()}"
    except OSError as error:
        raise UserError(f"--use {path}: the file cannot be read: {error.strerror}.") from error
    if _used.get(str(file)) == checksum:
        return checksum
    with _importing(str(file), checksum) as added:
        name = f"vsam_own_{file.stem}"
        spec = importlib.util.spec_from_file_location(name, file)
        if spec is None or spec.loader is None:
            raise UserError(f"--use {path}: give a Python file with a name ending in .py.")
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except UserError:
            raise
        except (Exception, SystemExit) as error:
            lines = [one.lineno for one in traceback.extract_tb(error.__traceback__) if one.filename == str(file)]
            where = f" on line {lines[-1]}" if lines else ""
            reason = f"{type(error).__name__}: {error}"
            raise UserError(f"--use {path}: the import failed{where}: {reason}. Fix the file.") from error
        if not added():
            raise UserError(
                f"--use {path} registers nothing: decorate a function in it with @vsam.lab.method(NAME), "
                "@vsam.lab.model(NAME) or @vsam.lab.data(NAME)."
            )
    _used[str(file)] = checksum
    return checksum


def find_own(kind: Kind, name: str) -> Own | None:
    """What the user registered under that name, if anything."""
    load_packages()
    return _known[kind].get(name)


def list_own(kind: Kind) -> list[Own]:
    """All of a kind, in order of registration."""
    load_packages()
    return list(_known[kind].values())


def origins(**names: str) -> dict[str, str]:
    """The files and packages that the named ones come from, with checksums or versions; names are given by kind."""
    found = [find_own(kind, names[kind]) for kind in _known if kind in names]
    return {own.origin: own.version for own in found if own is not None and own.origin}


def call(own: Own, given: Mapping[str, Any], **settings: Any) -> Any:
    """Call the user's function with those of the given values that it declares, and its own settings."""
    parameters = inspect.signature(own.make).parameters
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    chosen = {name: value for name, value in given.items() if name in parameters or takes_all}
    try:
        return own.make(**chosen, **settings)
    except TypeError as error:
        if error.__traceback__ is not None and error.__traceback__.tb_next is not None:
            raise  # raised inside the function
        raise UserError(f"{own.name!r} of {own.origin}: {error}. It is called with {', '.join(given)}.") from error


@cache
def load_packages() -> None:
    """Import what installed packages register through entry points."""
    for point in importlib.metadata.entry_points(group=GROUP):
        package = point.dist.name if point.dist else point.value
        with _importing(package, f"version {point.dist.version if point.dist else '?'}"):
            try:
                point.load()
            except Exception as error:
                raise UserError(
                    f"The installed package {package} cannot be imported: {type(error).__name__}: {error}. Fix or "
                    f"uninstall it (entry point {point.name!r} of group {GROUP!r})."
                ) from error


@contextmanager
def _importing(origin: str, version: str) -> Iterator[Callable[[], bool]]:
    """Give this origin to everything registered in the block; if the import fails, none of it stays."""
    before = {kind: dict(found) for kind, found in _known.items()}
    for found in _known.values():
        for name in [name for name, own in found.items() if own.origin == origin]:
            del found[name]
    _origin.append((origin, version))
    try:
        yield lambda: any(own.origin == origin for found in _known.values() for own in found.values())
    except BaseException:
        _known.update(before)
        raise
    finally:
        _origin.pop()


def _is_ours(kind: Kind, name: str) -> bool:
    """Whether vsam itself has something of that name."""
    if kind == "method":
        from vsam.lab.methods import is_ours

        return is_ours(name)
    if kind == "model":
        from vsam.lab.models import is_known

        return is_known(name)
    from vsam.lab.data.catalog import LISTED

    return name in LISTED
