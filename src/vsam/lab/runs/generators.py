"""Separate random states per run, so that interleaved runs do not affect each other."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

__all__ = ["own_generators"]


@contextmanager
def own_generators(states: dict[str, Tensor] | None, device: torch.device) -> Iterator[Callable[[], dict[str, Tensor]]]:
    """Use these states of the global generators within the block; yields a function that reads them."""
    is_cuda = device.type == "cuda"
    with torch.random.fork_rng([device] if is_cuda else []):
        if states is not None:
            torch.set_rng_state(states["cpu"])
            if is_cuda:
                torch.cuda.set_rng_state(states["cuda"], device)

        def current() -> dict[str, Tensor]:
            cuda = {"cuda": torch.cuda.get_rng_state(device)} if is_cuda else {}
            return {"cpu": torch.get_rng_state(), **cuda}

        yield current
