"""The lab: data, models, recipes and training around the library, extensible by users."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vsam.lab.plugins import method, model, use

__all__ = ["method", "model", "use"]


def __getattr__(name: str) -> Any:
    """Import `method`, `model`, `use` and `data` lazily. `data` is a package that doubles as a decorator."""
    if name in __all__:
        return getattr(importlib.import_module("vsam.lab.plugins"), name)
    if name == "data":
        return importlib.import_module("vsam.lab.data")
    raise AttributeError(f"module 'vsam.lab' has no attribute {name!r}")
