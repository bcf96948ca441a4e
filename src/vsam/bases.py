"""Several base optimizers over disjoint parameters as one: Muon for matrices and AdamW for the rest, say."""

from collections import ChainMap
from collections.abc import Callable, Sequence
from typing import Any

from torch.optim import Optimizer

__all__ = ["Joined", "bases_of", "keep_bases"]


class Joined(Optimizer):
    """Behaves as one optimizer whose groups and state are those of all bases.

    Args:
        bases: one or more constructed optimizers with no parameter in common.
    """

    def __init__(self, bases: Sequence[Optimizer]) -> None:
        self.bases = list(bases)
        seen: set[Any] = set()
        for base in self.bases:
            own = {parameter for group in base.param_groups for parameter in group["params"]}
            if seen & own:
                raise ValueError(
                    "base must be a list of optimizers over disjoint parameters, got one parameter in two of them: it "
                    "would be stepped twice. Give each parameter to one optimizer."
                )
            seen |= own
        super().__setstate__({})  # sets up torch's hooks, but no groups of our own

    @property
    def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """The groups of all bases, in their order."""
        return [group for base in self.bases for group in base.param_groups]

    @property
    def state(self) -> Any:  # type: ignore[override]
        """The state of all bases."""
        return _States(*(base.state for base in self.bases))

    @property
    def defaults(self) -> dict[str, Any]:  # type: ignore[override]
        """The defaults of the first base, to which new groups are added."""
        return self.bases[0].defaults

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
        """Not supported: it is unclear which base should get the group."""
        raise ValueError(
            "add_param_group cannot tell which of several bases should train the group: call it on one of "
            "optimizer.base.bases."
        )

    def state_dict(self) -> dict[str, Any]:
        """The states of all bases as one, with their parameters numbered consecutively."""
        state: dict[Any, Any] = {}
        groups: list[dict[str, Any]] = []
        for base, first in zip(self.bases, self._firsts(), strict=True):
            own = base.state_dict()
            state |= {first + i: value for i, value in own["state"].items()}
            groups += [{**group, "params": [first + i for i in group["params"]]} for group in own["param_groups"]]
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load each base's part; if one does not fit, all bases stay as they were."""
        groups = list(state_dict["param_groups"])
        if len(groups) != len(self.param_groups):
            raise ValueError(
                f"state_dict has {len(groups)} parameter groups, but the optimizers have {len(self.param_groups)}."
            )
        restore = keep_bases(self)
        try:
            for base, first in zip(self.bases, self._firsts(), strict=True):
                own, groups = groups[: len(base.param_groups)], groups[len(base.param_groups) :]
                num_own = sum(len(group["params"]) for group in base.param_groups)
                base.load_state_dict(
                    {
                        "state": {i - first: v for i, v in state_dict["state"].items() if 0 <= i - first < num_own},
                        "param_groups": [{**g, "params": [i - first for i in g["params"]]} for g in own],
                    }
                )
        except BaseException:
            restore()
            raise

    def __getstate__(self) -> dict[str, Any]:
        return {"bases": self.bases}

    def __getattr__(self, name: str) -> Any:
        """Methods that some bases have, such as `train` and `eval` of schedule-free ones, called on each of those."""
        if name.startswith("_"):
            raise AttributeError(name)
        found = [getattr(base, name) for base in self.__dict__.get("bases", ()) if hasattr(base, name)]
        if not found:
            raise AttributeError(f"none of the base optimizers has an attribute {name!r}")
        if not callable(found[0]):
            return found[0]
        return lambda *args, **kwargs: [method(*args, **kwargs) for method in found] and None

    def _firsts(self) -> list[int]:
        counts = [sum(len(group["params"]) for group in base.param_groups) for base in self.bases]
        return [sum(counts[:i]) for i in range(len(counts))]


class _States(ChainMap[Any, Any]):
    """Looks up a parameter without creating an entry for it in another base's `defaultdict`."""

    def __getitem__(self, key: Any) -> Any:
        return next((state for state in self.maps if key in state), self.maps[0])[key]


def bases_of(base: Optimizer) -> list[Optimizer]:
    """The optimizers that step: the base itself, or those that it joins."""
    return base.bases if isinstance(base, Joined) else [base]


def keep_bases(base: Optimizer) -> Callable[[], None]:
    """Return a function that restores the groups and state of the bases after a failed load."""
    before = [(own, own.state, own.param_groups) for own in bases_of(base)]

    def restore() -> None:
        for own, state, groups in before:
            if own.state is not state or own.param_groups is not groups:  # some bases allow no setting
                own.state, own.param_groups = state, groups

    return restore
