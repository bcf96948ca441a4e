"""TensorBoard logs of a run: a point per step below `step/`, and a point per epoch."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from vsam.lab.errors import UserError, install_line

if TYPE_CHECKING:
    from vsam.lab.train import Trainer

__all__ = ["Observe", "observer"]

Observe = Callable[["Trainer"], None]
_NO_METRICS = ("epoch", "step", "turn")


def observer(is_wanted: bool) -> Observe:
    """A function to call with every run before it trains: logs to `tensorboard/` in the run's folder, or does nothing.

    Args:
        is_wanted: whether to log. Raises `UserError` at once if the package is missing.
    """
    if not is_wanted:
        return _ignore
    try:
        import torch.utils.tensorboard  # noqa: F401
    except ModuleNotFoundError as error:
        line = install_line("lab", "tensorboard")
        raise UserError(f"--tensorboard needs the package tensorboard: {line}.") from error
    return _observe


def _ignore(run: "Trainer") -> None:
    pass


def _observe(run: "Trainer") -> None:
    if not run.is_finished:
        run.observers.append(_Log(run))


class _Log:
    """Logs a run's events. After a kill, points past the checkpoint are replaced."""

    def __init__(self, run: "Trainer") -> None:
        from torch.utils.tensorboard import SummaryWriter

        folder, next_step = run.path / "tensorboard", run.step + 1 if run.step else None
        self._writer = SummaryWriter(folder, purge_step=next_step)

    def step(self, step: int, numbers: Mapping[str, Any]) -> None:
        """Loss, learning rate, sampling rate, norms and second gradients so far, if the method has them."""
        for name, value in numbers.items():
            if value is not None:
                self._writer.add_scalar(f"step/{name}", value, step)

    def epoch(self, metrics: Mapping[str, Any]) -> None:
        """Everything in `metrics.jsonl`."""
        for name, value in metrics.items():
            if name not in _NO_METRICS:
                self._writer.add_scalar(name, value, metrics["step"])
        self._writer.flush()

    def close(self) -> None:
        """Close the file: a study has many."""
        self._writer.close()
