"""Training on several processes: their agreement, sharded tensors and checkpoints."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vsam.distributed.checkpoint import StatefulOptimizer

__all__ = ["StatefulOptimizer"]


def __getattr__(name: str) -> object:
    """Import `StatefulOptimizer` on first use: the optimizer itself imports modules of this package."""
    if name in __all__:
        from vsam.distributed import checkpoint

        return getattr(checkpoint, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
