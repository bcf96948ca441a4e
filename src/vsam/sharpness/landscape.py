"""Slices through the loss: along filter-normalised random directions, or on the line to another state dict."""

from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from vsam.errors import check_count, check_number
from vsam.sharpness.objective import Loss, Objective, Progress
from vsam.sharpness.session import Mode, check_batches, check_mode, untouched, unwrapped

__all__ = ["Landscape", "landscape"]

_Known = MutableMapping[tuple[int, ...], float]


@dataclass(frozen=True)
class Landscape:
    """The loss on a grid.

    Args:
        axes: the positions along each direction, one tensor per dimension.
        losses: one dimension per axis.
        mode: how BatchNorm and dropout behaved.
        kind: "random directions, filter-normalised" or "line to another state dict".
    """

    axes: tuple[Tensor, ...]
    losses: Tensor
    mode: str
    kind: str


def landscape(
    model: nn.Module,
    loss: Loss,
    batches: Iterable[Any],
    *,
    dimensions: int = 1,
    num_points: int = 21,
    span: tuple[float, float] | None = None,
    to: Mapping[str, Any] | None = None,
    mode: Mode = "eval",
    seed: int = 0,
    progress: Progress | None = None,
    known: _Known | None = None,
) -> Landscape:
    """Compute the mean loss over batches on a line or a plane through the weights, which stay unchanged.

    Each random direction is scaled filter by filter to the norm of the weights, and is zero on biases and normalisation
    layers (Li et al., Visualizing the Loss Landscape of Neural Nets, NeurIPS 2018). The same seed gives the same
    directions before scaling, so that several runs share their axes.

    Args:
        model, loss, batches, mode, progress: as in `measure`.
        dimensions: 1 or 2 random directions; 1 with `to`.
        num_points: per axis; an odd number includes the weights themselves.
        span: the first and the last position on each axis; (-1, 1) if not given, with `to` (0, 1).
        to: a state dict of the same network: the line runs from the weights, at 0, to it, at 1. Frozen parameters and
            floating-point buffers, such as BatchNorm's statistics, are interpolated too.
        seed: for the directions.
        known: losses by grid index, such as (3, 0): they are not computed again, and each new one is added. Saved to a
            file, it lets an interrupted grid resume, with the same settings.

    Cost: one forward pass over all batches per point, and two parameter-sized vectors.

    Example:
        >>> def loss(model, batch):
        ...     return torch.nn.functional.cross_entropy(model(batch[0]), batch[1])
        >>> slice = landscape(model, loss, [(inputs, targets)], dimensions=2, num_points=5)
        >>> slice.losses.shape
        torch.Size([5, 5])
    """
    most = 1 if to is not None else 2
    why = "the line to another state dict has one dimension" if to is not None else "a slice is a line or a plane"
    check_count("dimensions", dimensions, least=1, most=most, why=why)
    check_count("num_points", num_points, least=2, why="a line has two ends")
    first, last = span if span is not None else (0.0, 1.0) if to is not None else (-1.0, 1.0)
    axis = torch.linspace(
        check_number("span[0]", first), check_number("span[1]", last), num_points, dtype=torch.float64
    )
    inner, report = unwrapped(model), progress or (lambda stage, done, total: None)
    check_batches(batches)
    found: _Known = {} if known is None else known
    with untouched(inner, batches, check_mode(mode)) as rewind:
        if to is not None:
            line = _Line(inner, to, rewind)
            losses = _on_line(Objective(model, loss, batches, line.place), line, axis, found, report)
            return Landscape((axis,), losses, mode, "line to another state dict")
        objective = Objective(model, loss, batches, rewind)
        generator = torch.Generator().manual_seed(seed)
        directions = [_direction(objective, generator) for _ in range(dimensions)]
        losses = _on_grid(objective, directions, axis, found, report)
    return Landscape((axis,) * dimensions, losses, mode, "random directions, filter-normalised")


def _on_grid(objective: Objective, directions: list[Tensor], axis: Tensor, known: _Known, report: Progress) -> Tensor:
    losses = torch.empty((len(axis),) * len(directions), dtype=torch.float64)
    for done, positions in enumerate(product(range(len(axis)), repeat=len(directions)), 1):
        if positions not in known:
            moves = [axis[i].item() * direction for i, direction in zip(positions, directions, strict=True)]
            known[positions] = objective.value(torch.stack(moves).sum(0)).mean
        losses[positions] = known[positions]
        report("landscape", done, losses.numel())
    return losses


def _direction(objective: Objective, generator: torch.Generator) -> Tensor:
    """A random direction whose filters have the norms of the weights' filters, zero where there are no filters."""
    parts = []
    for weight, part in objective.with_weights(objective.random(generator)):
        if weight.ndim < 2:
            parts.append(torch.zeros_like(part).reshape(-1))
            continue
        filters, own = part.flatten(1), weight.flatten(1)
        lengths = own.norm(dim=1, keepdim=True) / (filters.norm(dim=1, keepdim=True) + 1e-10)
        parts.append((filters * lengths).reshape(-1))
    return torch.cat([part.to(objective.device, objective.dtype) for part in parts])


class _Line:
    """The weights and buffers on the line from the current ones to another state dict's."""

    def __init__(self, model: nn.Module, to: Mapping[str, Any], rewind: Callable[[], None]) -> None:
        self.position, self._rewind = 0.0, rewind
        targets = {_plain(name): value for name, value in to.items()}
        own = {_plain(name): v for name, v in model.state_dict().items()}
        for name, value in own.items():
            other = targets.get(name)
            if not isinstance(other, Tensor) or other.shape != value.shape:
                got = "none" if other is None else f"{tuple(other.shape)}" if isinstance(other, Tensor) else repr(other)
                raise ValueError(
                    f"to must be a state dict of the same network: it needs {name} of shape {tuple(value.shape)}, got "
                    f"{got}. From a checkpoint, pass the entry with the weights, such as checkpoint['model']."
                )
        self._pairs = [(v, v.clone(), targets[name].to(v)) for name, v in own.items() if v.is_floating_point()]

    def place(self) -> None:
        """Rewind the generators and put the model on the line."""
        self._rewind()
        with torch.no_grad():
            for value, start, end in self._pairs:
                value.copy_((1 - self.position) * start + self.position * end)
        torch.clear_autocast_cache()


def _plain(name: str) -> str:
    """A name in a state dict without the prefixes of wrappers."""
    return name.replace("_orig_mod.", "").removeprefix("module.")


def _on_line(objective: Objective, line: _Line, axis: Tensor, known: _Known, report: Progress) -> Tensor:
    losses = torch.empty_like(axis)
    for i, position in enumerate(axis.tolist()):
        if (i,) not in known:
            line.position = position
            known[i,] = objective.value().mean
        losses[i] = known[i,]
        report("landscape", i + 1, len(axis))
    return losses
