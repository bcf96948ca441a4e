"""Where the command `vsam` begins: outside the package, because importing that loads torch."""

import importlib
import importlib.util
import os
import sys
import types

__all__ = ["main", "postpone"]


def main() -> None:
    """Run the command with threads that sleep while they wait, and with torch only where it is needed.

    Threads that spin make training many times slower as soon as anything else runs on the machine (13 times on two
    cores). OpenMP reads the setting when torch is loaded; a user's own setting wins.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    postpone("vsam")
    try:
        from vsam.lab.cli import main as run

        run()
    except KeyboardInterrupt:  # while the imports last; a command says more about it itself
        print("Interrupted.", file=sys.stderr)
        sys.exit(1)


def postpone(name: str) -> None:
    """Run a package's `__init__` only when one of its names is first asked for; its modules can be imported before.

    The library's `__init__` imports torch, which takes seconds; help, lists and completions need nothing of it. Other
    programs that import the library are not concerned.
    """
    if name in sys.modules:
        return
    spec = importlib.util.find_spec(name)
    assert spec is not None
    package = importlib.util.module_from_spec(spec)
    package.__class__ = _Postponed
    sys.modules[name] = package


class _Postponed(types.ModuleType):
    def __getattr__(self, name: str) -> object:
        # A module of the package is that module alone: its own imports may be what is going on.
        if importlib.util.find_spec(f"{self.__name__}.{name}") is not None:
            return importlib.import_module(f"{self.__name__}.{name}")
        package: types.ModuleType = self
        package.__class__ = types.ModuleType
        assert self.__spec__ is not None
        assert self.__spec__.loader is not None
        self.__spec__.loader.exec_module(self)
        return getattr(self, name)
