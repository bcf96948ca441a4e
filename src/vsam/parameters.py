"""The parameters of all groups: which have a gradient, how far each is moved, and which come last in the model."""

import math
import operator
import re
import weakref
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter
from torch.optim import Optimizer

from vsam import shards
from vsam.errors import check_not_negative
from vsam.parts import Where
from vsam.tensors import Layout, Places, Uniform

__all__ = ["Members", "Parameters", "check_chosen", "complete_radii", "norm_parameters", "radii", "renew_radii"]

_FILLED: weakref.WeakKeyDictionary[Optimizer, set[int]] = weakref.WeakKeyDictionary()
"""Which groups of a base optimizer got their radius from us, by index."""

_DEVICE, _DTYPE, _GRADIENT = map(operator.attrgetter, ("device", "dtype", "grad"))
_IS_THERE, _IS_CONTIGUOUS = partial(operator.is_not, None), Tensor.is_contiguous
_NORM = re.compile(r"Norm(Act)?(\d+d)?$")
"""Class names of normalisation layers, in torch and elsewhere: BatchNorm2d, LlamaRMSNorm, BatchNormAct2d."""


class Members:
    """Some parameters, and what does not change about them from step to step.

    Args:
        parameters: the list.
        groups: for each of them, the index of its group.
        ranks: for each of them, how many come before it in the model; −1 if it is not in it.
    """

    def __init__(self, parameters: list[Tensor], groups: list[int], ranks: list[int]) -> None:
        self.parameters, self.groups, self.ranks = parameters, groups, ranks
        self.layout = Layout(parameters)
        self.places = Places(parameters, self.layout)
        self._in_order = sorted(range(len(parameters)), key=ranks.__getitem__)

    def gradients(self) -> list[Tensor]:
        """Their current gradients; each of them has one."""
        return [*map(_GRADIENT, self.parameters)]

    def last(self, count: int | None) -> list[int]:
        """The positions of the last `count` of them in the model's order; None stands for all."""
        return self._in_order if count is None else self._in_order[len(self._in_order) - min(count, len(self.groups)) :]

    def only(self, kept: list[int]) -> "Members":
        """Those at these positions."""
        return Members(*([values[i] for i in kept] for values in (self.parameters, self.groups, self.ranks)))  # type: ignore[arg-type]


class Parameters:
    """All parameters of an optimizer, in lists that are rebuilt when its groups change."""

    def __init__(self, groups: list[dict[str, Any]], model: nn.Module | None) -> None:
        self._groups, self._model = groups, model
        self._look()

    def _look(self) -> None:
        groups, model = self._groups, self._model
        self._lists = [list(group["params"]) for group in groups]
        if any(isinstance(parameter, UninitializedParameter) for g in groups for parameter in g["params"]):
            raise ValueError(
                "base has uninitialized parameters of a lazy layer: run a batch first, then construct both optimizers."
            )
        listed = [(parameter, i) for i, group in enumerate(groups) for parameter in group["params"]]
        every = [parameter for parameter, _ in listed]
        shards.refuse_fsdp1(every, model)
        shards.notice(every)
        order = {parameter: i for i, parameter in enumerate(model.parameters())} if model is not None else {}
        ranks = [order.get(parameter, -1) for parameter, _ in listed] if order else list(range(len(listed)))
        self.all = Members(every, [i for _, i in listed], ranks)
        self.are_sharded = self.all.layout.shards is not None
        if self.are_sharded and model is None:
            raise ValueError(
                "base has sharded parameters (DTensor), so model= is needed to reshard gathered weights when their "
                "shards move. Pass the module that you applied fully_shard to."
            )
        self.devices = {parameter.device for parameter in self.all.parameters}
        self._some: tuple[list[int], Members] = ([], Members([], [], []))
        own = set(self.all.parameters)
        self._others = [p for p in model.parameters() if p not in own] if model is not None else []
        self._kinds = _kinds(self.all.parameters)
        self._has_complex = any(map(Tensor.is_complex, self.all.parameters))

    def are(self, groups: list[dict[str, Any]]) -> bool:
        """Whether these are still the parameters of the groups, with the same dtype and device."""
        if len(groups) != len(self._lists):
            return False
        for group, known in zip(groups, self._lists, strict=True):
            now = group["params"]
            if len(now) != len(known) or not all(map(operator.is_, now, known)):
                return False
        return _kinds(self.all.parameters) == self._kinds

    def with_gradient(self) -> Members:
        """Those that have a gradient; raises on gradients that cannot be used."""
        return self.collect()[0]

    def collect(self) -> tuple[Members, list[Tensor]]:
        """Those that have a gradient, and their gradients."""
        members, gradients = self.all, [*map(_GRADIENT, self.all.parameters)]
        are_contiguous = _are_contiguous(gradients)
        if not are_contiguous and not all(map(_IS_THERE, gradients)):
            kept = [i for i, gradient in enumerate(gradients) if gradient is not None]
            if kept != self._some[0]:
                self._some = (kept, self.all.only(kept))
            members, gradients = self._some[1], [gradients[i] for i in kept]
            are_contiguous = _are_contiguous(gradients)
        layout, dtypes = members.layout, [*map(_DTYPE, gradients)]
        if dtypes != layout.dtypes and [*map(_DTYPE, members.parameters)] != layout.dtypes:
            self._look()  # some of the weights were cast
            return self.collect()
        if self.are_sharded:
            gradients = _placed(members.parameters, gradients)
            are_contiguous = _are_contiguous(gradients)
        if self._has_complex or not are_contiguous:
            self._refuse(members.parameters)
        elif layout.kind is not None and dtypes == layout.dtypes:  # torch does allow gradients of another dtype
            gradients = Uniform(gradients, layout.kind)
        return members, gradients

    @cached_property
    def norms(self) -> set[Tensor]:
        """Those of the model's normalisation layers."""
        return norm_parameters(self._model)

    def set_others_aside(self, way_back: list[Callable[[], object]]) -> None:
        """Keep the second pass out of the gradients of the model's other parameters, which another optimizer trains."""
        for parameter in self._others:
            if parameter.grad is not None:
                way_back.append(partial(setattr, parameter, "grad", parameter.grad))
                parameter.grad = None

    def clear_frozen(self) -> None:
        """Clear the gradients that frozen parameters still have from before."""
        for parameter in self.all.parameters:
            if not parameter.requires_grad:
                parameter.grad = None

    def _refuse(self, parameters: list[Tensor]) -> None:
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


def _are_contiguous(gradients: list[Tensor]) -> bool:
    try:
        return all(map(_IS_CONTIGUOUS, gradients))
    except (RuntimeError, TypeError):  # raised by a sparse gradient and by None
        return False


def _placed(parameters: list[Any], gradients: list[Any]) -> list[Tensor]:
    """The gradients, each sharded like its parameter: tensor parallelism may leave them as partial sums."""
    for i, (parameter, gradient) in enumerate(zip(parameters, gradients, strict=True)):
        if type(gradient) in shards.CLASSES and gradient.placements != parameter.placements:
            gradients[i] = parameter.grad = gradient.redistribute(placements=parameter.placements)
    return gradients


def renew_radii(base: Optimizer, rho: float) -> None:
    """Set `rho` in groups where the user set none, replacing what an earlier method around the base set."""
    for one in getattr(base, "bases", [base]):
        filled = _FILLED.setdefault(one, set())
        for number, group in enumerate(one.param_groups):
            if number in filled:
                group.pop("rho", None)
            if "rho" not in group:
                filled.add(number)
        complete_radii(one.param_groups, rho)


def complete_radii(groups: list[dict[str, Any]], rho: float) -> None:
    """Set `rho` in groups that have none, and refuse an invalid one."""
    for group in groups:
        radius = group.setdefault("rho", rho)
        if type(radius) is not float or not 0 <= radius < math.inf:
            group["rho"] = check_not_negative("rho", radius)


def radii(groups: list[dict[str, Any]], rho: float) -> list[float | None]:
    """The radius of each group, None for one that is not perturbed; negative for one with `maximize=True`."""
    complete_radii(groups, rho)
    signed = [-group["rho"] if group.get("maximize") else group["rho"] for group in groups]
    return [radius if group.get("perturb", True) else None for radius, group in zip(signed, groups, strict=True)]


def _kinds(parameters: list[Tensor]) -> list[Any]:
    """What `model.to(…)` changes: dtype and device, of the first and the last parameter."""
    ends = parameters[:1] + parameters[-1:]
    return [*map(_DTYPE, ends), *map(_DEVICE, ends)]
