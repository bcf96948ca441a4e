"""Several base optimizers over disjoint parameters as one, such as Muon for matrices and AdamW for the rest."""

from collections import ChainMap, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

from torch.optim import Optimizer


class Joined(Optimizer):
    """One optimizer whose groups and state are those of all bases.

    Args:
        bases: one or more constructed optimizers with no parameter in common.
    """

    def __init__(self, bases: Sequence[Optimizer]) -> None:
        self.__setstate__({"bases": list(bases)})
        own = [{parameter for group in base.param_groups for parameter in group["params"]} for base in bases]
        if len(set().union(*own)) < sum(map(len, own)):
            raise ValueError("base must list optimizers over disjoint parameters, got one parameter in two of them.")

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The groups of all bases, in their order."""
        return [group for base in self.bases for group in base.param_groups]

    @param_groups.setter
    def param_groups(self, groups: list[dict[str, Any]]) -> None:
        if len(groups) != len(self.param_groups):
            raise ValueError("param_groups must keep their number: assign to those of one of optimizer.base.bases.")
        left = iter(list(groups))
        for base in self.bases:
            base.param_groups = [next(left) for _ in base.param_groups]

    @property
    def state(self) -> Any:
        """The state of all bases."""
        return _States(*(base.state for base in self.bases))

    @state.setter
    def state(self, state: Any) -> None:
        for base in self.bases:
            own = {parameter for group in base.param_groups for parameter in group["params"]}
            base.state = defaultdict(dict, {key: value for key, value in state.items() if key in own})

    @property
    def defaults(self) -> dict[str, Any]:
        """The defaults of the first base, to which new groups are added."""
        return self.bases[0].defaults if self.bases else {}

    @defaults.setter
    def defaults(self, defaults: dict[str, Any]) -> None:
        self.bases[0].defaults = defaults

    def step(self, closure: Any = None) -> Any:
        """Step each base."""
        loss = closure() if closure is not None else None
        for base in self.bases:
            base.step()
        return loss

    step.hooked = True  # type: ignore[attr-defined]  # torch's hooks of all optimizers run for the bases themselves

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients of all bases."""
        for base in self.bases:
            base.zero_grad(set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Raise an error, because it is unclear which base should get the group."""
        raise ValueError("add_param_group cannot tell which of several bases: call it on one of optimizer.base.bases.")

    def state_dict(self) -> dict[str, Any]:
        """Return the states of all bases as one, with their parameters numbered consecutively."""
        joined: dict[str, Any] = {"state": {}, "param_groups": []}
        for base, first, _ in self._spans():
            own = base.state_dict()
            joined["state"] |= {first + i: value for i, value in own["state"].items()}
            joined["param_groups"] += [{**g, "params": [first + i for i in g["params"]]} for g in own["param_groups"]]
        return joined

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load each base's part. If one does not fit, all bases stay as they were."""
        state, groups = state_dict["state"], list(state_dict["param_groups"])
        if len(groups) != len(self.param_groups):
            raise ValueError(f"state_dict must have {len(self.param_groups)} parameter groups, got {len(groups)}.")
        with ExitStack() as undo:
            undo.callback(keep_bases(self))
            for base, first, end in self._spans():
                own = [{**g, "params": [i - first for i in g["params"]]} for g in groups[: len(base.param_groups)]]
                del groups[: len(own)]
                values = {i - first: value for i, value in state.items() if first <= i < end}
                base.load_state_dict({"state": values, "param_groups": own})
            undo.pop_all()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.bases: list[Optimizer] = []
        super().__setstate__({})  # sets up torch's hooks; while there are no bases, there are no defaults to add to
        self.bases = state["bases"]

    def __getstate__(self) -> dict[str, Any]:
        return {"bases": self.bases}

    def __getattr__(self, name: str) -> Any:
        """Call a method that some bases have, such as `train` of schedule-free ones, on each of those."""
        if name.startswith("_"):
            raise AttributeError(name)
        found = [getattr(base, name) for base in self.__dict__.get("bases", ()) if hasattr(base, name)]
        if not found:
            raise AttributeError(f"none of the base optimizers has an attribute {name!r}")
        if not callable(found[0]):
            return found[0]
        return lambda *args, **kwargs: [method(*args, **kwargs) for method in found] and None

    def _spans(self) -> Iterator[tuple[Optimizer, int, int]]:
        """Yield each base with the first and the end of its parameters' numbers."""
        end = 0
        for base in self.bases:
            first, end = end, end + sum(len(group["params"]) for group in base.param_groups)
            yield base, first, end


class _States(ChainMap[Any, Any]):
    """Look up a parameter without creating an entry for it in another base's `defaultdict`."""

    def __getitem__(self, key: Any) -> Any:
        return next((state for state in self.maps if key in state), self.maps[0])[key]


def bases_of(base: Optimizer) -> list[Optimizer]:
    """Return the optimizers that step: the base itself, or those that it joins."""
    return base.bases if isinstance(base, Joined) else [base]


def keep_bases(base: Optimizer) -> Callable[[], None]:
    """Return a function that restores the groups and state of the bases after a failed load."""
    before = [(own, own.state, own.param_groups) for own in bases_of(base)]

    def restore() -> None:
        for own, state, groups in before:
            if own.state is not state or own.param_groups is not groups:  # some bases cannot be assigned to
                own.state, own.param_groups = state, groups

    return restore
