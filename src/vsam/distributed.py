"""Distributed training: how `torch.distributed.checkpoint` saves and loads an optimizer."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from vsam.bases import bases_of, keep_bases
from vsam.optimizer import SharpnessAware
from vsam.parts import Between, Where
from vsam.wrapper import itself

__all__ = ["StatefulOptimizer"]


class StatefulOptimizer:
    """An optimizer for `torch.distributed.checkpoint` to save and load, also with another number of processes.

    Torch's own functions save the base optimizer's state; this adds counters, generators and the PSF, sharded like the
    parameters. With the same layout, training resumes bit for bit.

    Args:
        model: the module that is trained: plain, in `DistributedDataParallel`, or sharded by `fully_shard`.
        optimizer: the optimizer of its parameters, also if accelerate has prepared it.

    Cost: while saving or loading, one more sharded copy of the PSF.

    Example:
        >>> import torch.distributed.checkpoint as dcp
        >>> state = {"model": get_model_state_dict(model), "optimizer": StatefulOptimizer(model, optimizer)}
        >>> dcp.save(state, checkpoint_id="checkpoint")
        >>> dcp.load(state, checkpoint_id="checkpoint")
        >>> set_model_state_dict(model, state["model"])
    """

    def __init__(self, model: nn.Module, optimizer: Optimizer) -> None:
        if not isinstance(optimizer, SharpnessAware):
            optimizer = getattr(optimizer, "optimizer", optimizer)  # inside accelerate's wrapper
        if not isinstance(optimizer, SharpnessAware):
            raise ValueError(
                f"optimizer must be one of vsam's, got {type(optimizer).__name__}: for others, "
                "torch.distributed.checkpoint.state_dict.get_optimizer_state_dict is enough."
            )
        if not isinstance(model, nn.Module):
            raise ValueError(f"model must be a torch.nn.Module, got {type(model).__name__}.")
        self.model, self.optimizer = model, itself(optimizer)

    @torch.no_grad()
    def state_dict(self) -> dict[str, Any]:
        """The base's state, the memory by parameter name, and the rest as bytes for `weights_only=True`."""
        entry, bases = self.optimizer._save(), bases_of(self.optimizer.base)
        memory, are_fresh = entry.pop("memory"), [not base.state for base in bases]
        averages = entry.pop("averages", {})
        base, names = self._of_bases()
        rest = io.BytesIO()
        known = {"remembered": [names[i] for i in memory], "averaged": [names[i] for i in averages]}
        torch.save({**entry, **known, "are_fresh": are_fresh}, rest)
        state = {"base": base, "memory": self._complete(memory, names, self.optimizer.between), "rest": rest.getvalue()}
        if self.optimizer.where.keeps_memory:
            state["averages"] = self._complete(averages, names, self.optimizer.where)
        return state

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from what `state_dict` returned; a state that does not fit changes nothing."""
        from torch.distributed.checkpoint.state_dict import set_optimizer_state_dict

        optimizer, bases = self.optimizer, bases_of(self.optimizer.base)
        restore = keep_bases(optimizer.base)
        try:
            rest = torch.load(io.BytesIO(state_dict["rest"]), weights_only=True)
            are_fresh, saved = rest.pop("are_fresh"), {}
            known = {"memory": set(rest.pop("remembered")), "averages": set(rest.pop("averaged", ()))}
            set_optimizer_state_dict(self.model, bases, optim_state_dict=state_dict["base"])
            for base, is_fresh in zip(bases, are_fresh, strict=True):
                if is_fresh:
                    base.state.clear()
            _, names = self._of_bases()
            for kind, own in known.items():
                saved[kind] = {i: state_dict[kind][name] for i, name in enumerate(names) if name in own}
            optimizer.load_state_dict({**optimizer.base.state_dict(), optimizer.entry: {**rest, **saved}})
        except BaseException:
            restore()
            raise

    def _of_bases(self) -> tuple[Any, list[str]]:
        """What torch saves of the base optimizers, and the names of their parameters in order."""
        from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

        bases = bases_of(self.optimizer.base)
        with _without_trace(bases):
            base: Any = get_optimizer_state_dict(self.model, bases)
        return base, [name for group in base["param_groups"] for name in group["params"]]

    def _complete(self, memory: dict[int, Tensor], names: list[str], part: Between | Where) -> dict[str, Tensor]:
        """A tensor for each parameter: a load must declare what it expects before it knows what was saved."""
        if not part.keeps_memory:
            return {}
        parameters = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
        return {
            name: memory[i] if i in memory else torch.zeros_like(parameter)
            for i, (name, parameter) in enumerate(zip(names, parameters, strict=True))
        }


@contextmanager
def _without_trace(bases: list[Optimizer]) -> Iterator[None]:
    """Torch creates a fresh optimizer's state by a step without gradients, which this undoes."""
    groups = [group for base in bases for group in base.param_groups]
    gradients = [(parameter, parameter.grad) for group in groups for parameter in group["params"]]
    before, fresh = [dict(group) for group in groups], [base for base in bases if not base.state]
    for parameter, _ in gradients:
        parameter.grad = None
    try:
        yield
    finally:
        for parameter, gradient in gradients:
            parameter.grad = gradient
        for group, settings in zip(groups, before, strict=True):
            group.clear()
            group.update(settings)
        for base in fresh:
            base.state.clear()
