"""Metrics that do not count the second pass."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torchmetrics import Metric, MetricCollection

__all__ = ["metrics_kept"]


@contextmanager
def metrics_kept(module: nn.Module) -> Iterator[None]:
    """A context that restores all metrics of a module at its end."""
    restorers = [_restorer(inner) for inner in module.modules() if isinstance(inner, Metric | MetricCollection)]
    try:
        yield
    finally:
        for restore in restorers:
            restore()


def _restorer(metric: Any) -> Callable[[], None]:
    """Return what restores a metric. Tensors and lists stay the same objects: metrics of a collection share them."""
    attributes = dict(vars(metric))
    states = [attributes[name] for name in getattr(metric, "_defaults", ())]
    copies: list[Any] = [state.clone() if isinstance(state, Tensor) else list(state) for state in states]

    @torch.no_grad()
    def restore() -> None:
        vars(metric).update(attributes)
        for state, copy in zip(states, copies, strict=True):
            if isinstance(state, Tensor):
                state.copy_(copy)
            else:
                state[:] = copy

    return restore
