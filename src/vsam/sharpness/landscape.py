"""Slices through the loss: along filter-normalised random directions, or on the line to another state dict."""

from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from itertools import product, starmap
from typing import Any

import torch
from torch import Tensor, nn

from vsam.checks import check_count, check_number
from vsam.sharpness.objective import Loss, Objective, Progress
from vsam.sharpness.session import Mode, check_batches, check_mode, untouched, unwrapped

_LossAt = Callable[[list[float]], float]


@dataclass(frozen=True)
class Landscape:
    """The loss on a grid.

    Args:
        axes: the positions along each direction, one tensor per dimension.
        losses: one dimension per axis.
        mode: of BatchNorm and dropout, as in `measure`.
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
    known: MutableMapping[tuple[int, ...], float] | None = None,
) -> Landscape:
    """Compute the mean loss over batches on a line or a plane through the weights, which stay unchanged.

    Each random direction is scaled filter by filter to the norm of the weights, and is zero on biases and normalisation
    layers (Li et al., Visualizing the Loss Landscape of Neural Nets, NeurIPS 2018). The same seed gives the same
    directions before scaling, so that several runs share their axes.

    Args:
        model, loss, batches, mode, progress: as in `measure`.
        dimensions: 1 or 2 random directions, 1 with `to`.
        num_points: per axis. An odd number includes the weights themselves.
        span: the first and the last position on each axis. (-1, 1) if not given, with `to` (0, 1).
        to: a state dict of the same network: the line runs from the weights, at 0, to it, at 1. Frozen parameters and
            floating-point buffers, such as BatchNorm's statistics, are interpolated too.
        seed: for the directions.
        known: losses by grid index, such as (3, 0). They are not computed again, and each new one is added. Saved to a
            file, it lets an interrupted grid resume with the same settings.

    Cost: one forward pass over all batches per point, and two parameter-sized vectors.

    Example:
        >>> def loss(model, batch):
        ...     return torch.nn.functional.cross_entropy(model(batch[0]), batch[1])
        >>> slice = landscape(model, loss, [(inputs, targets)], dimensions=2, num_points=5)
        >>> slice.losses.shape
        torch.Size([5, 5])
    """
    most, why = (2, "a slice is a line or a plane") if to is None else (1, "a line has one dimension")
    check_count("dimensions", dimensions, least=1, most=most, why=why)
    check_count("num_points", num_points, least=2, why="a line has two ends")
    ends = span if span is not None else (-1.0, 1.0) if to is None else (0.0, 1.0)
    first, last = (check_number(f"span[{i}]", end) for i, end in enumerate(ends))
    axis = torch.linspace(first, last, num_points, dtype=torch.float64)
    inner, known = unwrapped(model), {} if known is None else known
    check_batches(batches)
    losses = torch.empty((num_points,) * dimensions, dtype=torch.float64)
    with untouched(inner, batches, check_mode(mode)) as rewind:
        objective = Objective(model, loss, batches, rewind)
        loss_at = _in_directions(objective, dimensions, seed) if to is None else _on_line(objective, to)
        for done, index in enumerate(product(range(num_points), repeat=dimensions), 1):
            if index not in known:
                known[index] = loss_at([axis[i].item() for i in index])
            losses[index] = known[index]
            if progress is not None:
                progress("landscape", done, losses.numel())
    kind = "random directions, filter-normalised" if to is None else "line to another state dict"
    return Landscape((axis,) * dimensions, losses, mode, kind)


def _in_directions(objective: Objective, dimensions: int, seed: int) -> _LossAt:
    drawing = objective.stage(torch.Generator().manual_seed(seed))
    drawn = [drawing.with_weights(drawing.random()) for _ in range(dimensions)]
    directions = [objective.flat(starmap(_normalised, pairs)) for pairs in drawn]

    def loss_at(positions: list[float]) -> float:
        moves = [position * direction for position, direction in zip(positions, directions, strict=True)]
        return objective.value(torch.stack(moves).sum(0)).mean

    return loss_at


def _normalised(weight: Tensor, direction: Tensor) -> Tensor:
    """Scale each filter of a direction to the norm of the weight's, or return zeros where there are no filters."""
    if weight.ndim < 2:
        return torch.zeros_like(direction)
    filters, own = direction.flatten(1), weight.flatten(1)
    lengths: Tensor = own.norm(dim=1, keepdim=True) / (filters.norm(dim=1, keepdim=True) + 1e-10)
    return filters * lengths


def _on_line(objective: Objective, to: Mapping[str, Any]) -> _LossAt:
    """Interpolate weights and buffers between the current ones and another state dict's."""
    targets = {_plain(name): value for name, value in to.items()}
    rewind, pairs = objective.rewind, []
    for name, value in objective.model.state_dict().items():
        other = targets.get(_plain(name))
        if not isinstance(other, Tensor) or other.shape != value.shape:
            got = "none" if other is None else f"{tuple(other.shape)}" if isinstance(other, Tensor) else repr(other)
            raise ValueError(
                f"to must be a state dict of the same network, with {_plain(name)} of shape {tuple(value.shape)}, got "
                f"{got}. From a checkpoint, pass the entry with the weights, such as checkpoint['model']."
            )
        if value.is_floating_point():
            pairs.append((value, value.clone(), other.to(value)))

    def loss_at(positions: list[float]) -> float:
        @torch.no_grad()
        def place() -> None:
            rewind()
            for value, start, end in pairs:
                value.copy_((1 - positions[0]) * start + positions[0] * end)
            torch.clear_autocast_cache()

        objective.rewind = place
        return objective.value().mean

    return loss_at


def _plain(name: str) -> str:
    """Return a name in a state dict without the prefixes of wrappers."""
    return name.replace("_orig_mod.", "").removeprefix("module.")
