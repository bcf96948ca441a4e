"""The parameters of all groups: whose they are, how far each is moved, and which come last in the model."""

import math
import re
import weakref
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter
from torch.optim import Optimizer

from vsam._step.foreach import BufferLayout, kinds_of
from vsam.bases import bases_of
from vsam.checks import check_not_negative
from vsam.distributed import shards
from vsam.parts import Where

_FILLED: weakref.WeakKeyDictionary[Optimizer, set[int]] = weakref.WeakKeyDictionary()
"""Which groups of a base optimizer got their radius from us, by index."""

_NORM = re.compile(r"Norm(Act)?(\d+d)?$")
"""Class names of normalisation layers, in torch and elsewhere: BatchNorm2d, LlamaRMSNorm, BatchNormAct2d."""


class ParamList:
    """Some parameters, and what does not change about them from step to step.

    Args:
        parameters: the list.
        groups: for each of them, the index of its group.
        ranks: for each of them, how many come before it in the model; −1 if it is not in it.
    """

    def __init__(self, parameters: list[Tensor], groups: list[int], ranks: list[int]) -> None:
        self.parameters, self.groups, self.ranks = parameters, groups, ranks
        self.layout = BufferLayout(parameters)
        self.kinds = kinds_of(parameters)
        self._in_order = sorted(range(len(parameters)), key=ranks.__getitem__)

    def last(self, count: int | None) -> list[int]:
        """The positions of the last `count` of them in the model's order, None for all."""
        return self._in_order if count is None else self._in_order[max(0, len(self._in_order) - count) :]

    def only(self, kept: Sequence[int]) -> "ParamList":
        """Those at these positions."""
        return ParamList(*([values[i] for i in kept] for values in (self.parameters, self.groups, self.ranks)))  # type: ignore[arg-type]

    def joined(self, others: "ParamList") -> "ParamList":
        """These, and then those of the others that are not among them."""
        known = set(self.parameters)
        late = others.only([i for i, parameter in enumerate(others.parameters) if parameter not in known])
        if not late.parameters:
            return self
        return ParamList(self.parameters + late.parameters, self.groups + late.groups, self.ranks + late.ranks)


class Parameters:
    """All parameters of an optimizer, as long as its groups do not change.

    Args:
        bases: the base optimizers.
        model: the network, if known.
    """

    def __init__(self, bases: list[Optimizer], model: nn.Module | None) -> None:
        groups = [group for base in bases for group in base.param_groups]
        self._model = model
        self.lists = [list(group["params"]) for group in groups]
        self.own_rho = own_rho(bases)
        listed = [(parameter, i) for i, parameters in enumerate(self.lists) for parameter in parameters]
        every = [parameter for parameter, _ in listed]
        if any(isinstance(parameter, UninitializedParameter) for parameter in every):
            raise ValueError(
                "base has uninitialized parameters of a lazy layer: run a batch first, then construct both optimizers."
            )
        shards.refuse_fsdp1(every, model)
        shards.notice(every)
        order = {parameter: i for i, parameter in enumerate(model.parameters())} if model is not None else {}
        ranks = [order.get(parameter, -1) for parameter in every] if order else list(range(len(every)))
        self.all = ParamList(every, [i for _, i in listed], ranks)
        self.are_sharded, self.units = self.all.layout.shards is not None, shards.units(model)
        if self.are_sharded and model is None:
            raise ValueError(
                "base has sharded parameters (DTensor), so model= is needed to reshard gathered weights when their "
                "shards move. Pass the module that you applied fully_shard to."
            )
        self.devices = {parameter.device for parameter in every}
        self.has_complex = any(map(Tensor.is_complex, every))
        self.others = [p for p in model.parameters() if p not in set(every)] if model is not None else []

    @cached_property
    def norms(self) -> set[Tensor]:
        """Those of the model's normalisation layers."""
        return norm_parameters(self._model)

    def refuse(self, parameters: list[Tensor]) -> None:
        """Refuse sparse and complex gradients by name."""
        for parameter in parameters:
            assert parameter.grad is not None
            if parameter.grad.layout is not torch.strided:
                raise RuntimeError(
                    f"{self.name(parameter)} has a sparse gradient, but the perturbation needs dense ones: "
                    "construct the layer with sparse=False."
                )
            if parameter.grad.is_complex():
                raise RuntimeError(
                    f"{self.name(parameter)} is complex, which is not supported: split it into real and imaginary part."
                )

    def name(self, parameter: Tensor) -> str:
        """A parameter's name for error messages."""
        names = self._model.named_parameters() if self._model is not None else ()
        known = next((name for name, candidate in names if candidate is parameter), None)
        return known or f"A parameter of shape {tuple(parameter.shape)}"


def norm_parameters(model: nn.Module | None) -> set[Tensor]:
    """The parameters of a model's normalisation layers, which are recognised by their class name."""
    modules = model.modules() if model is not None else ()
    layers = [module for module in modules if any(_NORM.search(kind.__name__) for kind in type(module).__mro__)]
    return {parameter for layer in layers for parameter in layer.parameters(recurse=False)}


def check_chosen(where: Where | None, model: nn.Module | None, groups: list[dict[str, Any]]) -> None:
    """Refuse a `where` that perturbs normalisation layers only if there are none, or no model to find them in."""
    if where is None or where.only is None:
        return
    if model is None:
        raise ValueError("only='norm' needs the network to find its normalisation layers: pass model=model.")
    norms = norm_parameters(model)
    lacks = f"{type(model).__name__} has none with parameters" if not norms else "base trains none of them"
    if not any(parameter in norms for group in groups for parameter in group["params"]):
        raise ValueError(
            f"only='norm' perturbs the parameters of normalisation layers only, but {lacks}: leave out only= to "
            "perturb all parameters."
        )


def own_rho(bases: list[Optimizer]) -> list[bool]:
    """Return for each group whether `rho` is a setting of its base, as of Adadelta, and not the radius."""
    return ["rho" in base.defaults for base in bases for _ in base.param_groups]


def renew_radii(base: Optimizer, rho: float) -> None:
    """Set `rho` in groups where the user set none, replacing what an earlier method around the base set."""
    for one in bases_of(base):
        filled = _FILLED.setdefault(one, set())
        if "rho" in one.defaults:  # it means something else to this base
            continue
        for number, group in enumerate(one.param_groups):
            if number in filled:
                group.pop("rho", None)
            if "rho" not in group:
                filled.add(number)
    complete_radii(base, rho)


def complete_radii(base: Optimizer, rho: float) -> None:
    """Set `rho` in groups that have none, and refuse an invalid one."""
    for one in bases_of(base):
        if "rho" not in one.defaults:
            for group in one.param_groups:
                radius = group.setdefault("rho", rho)
                if type(radius) is not float or not 0 <= radius < math.inf:
                    group["rho"] = check_not_negative("rho", radius)
