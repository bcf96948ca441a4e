"""The lab: data, models, recipes and training around the library, open to what users bring."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vsam.lab.own import method, model, use

__all__ = ["method", "model", "use"]


def __getattr__(name: str) -> Any:
    """`vsam.lab.method`, `model`, `use`, and `data`, a package that is a decorator too; imported when asked for."""
    if name in __all__:
        return getattr(importlib.import_module("vsam.lab.own"), name)
    if name == "data":
        return importlib.import_module("vsam.lab.data")
    raise AttributeError(f"module 'vsam.lab' has no attribute {name!r}")
