"""Methods by the names that papers and tables use: the class of each, and the arguments that the name sets."""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the command lists the names too, without importing torch
    from torch import nn

    from vsam.optimizer import Bases, SharpnessAware

__all__ = ["NAMED", "Named", "create", "find", "list_methods", "listed_name"]


@dataclass(frozen=True)
class Named:
    """What a name stands for.

    Args:
        kind: the name of the class in `vsam`.
        fixed: arguments that the name sets.
        defaults: arguments that it sets unless the user does.
        needs: arguments, one of which the user must pass.
    """

    kind: str
    fixed: Mapping[str, Any] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    needs: tuple[str, ...] = ()


NAMED: Mapping[str, Named] = MappingProxyType(
    {
        "sam": Named("SAM"),
        "sam-5": Named("SAM", {"every": 5}),
        "sam-on": Named("SAM", {"only": "norm"}),
        "sam-part": Named("SAM", defaults={"share": 0.1}),
        "asam": Named("ASAM"),
        "looksam-5": Named("LookSAM", {"every": 5}),
        "ae-sam": Named("AESAM"),
        "esam": Named("ESAM"),
        "vsam": Named("VSAM"),
        "vsam-a": Named("VSAM", {"gamma": 0.0}),
        "vsam-budget": Named("VSAM", needs=("budget", "target")),
        "msam": Named("MSAM"),
        "gsam": Named("GSAM"),
        "wsam": Named("WSAM"),
        "friendly-sam": Named("FriendlySAM"),
    }
)
"""The table: `sam-5` and `looksam-5` stand for any number."""

_OTHERS = {
    "sgd": "It is the base optimizer itself: use that.",
    "saf": "It is a loss: use vsam.SAFLoss.",
    "mesa": "It is a loss: use vsam.MESALoss.",
}
"""Names in the lab's tables that are not optimizers of ours."""


def list_methods() -> list[str]:
    """The names that `create` knows; `sam-5` and `looksam-5` stand for any number, as in `sam-10`.

    Example:
        >>> "vsam" in list_methods()
        True
    """
    return list(NAMED)


def create(name: str, base: "Bases", *, model: "nn.Module | None" = None, **settings: Any) -> "SharpnessAware":
    """Construct the optimizer called `name`.

    Args:
        name: one of `list_methods()`, or `sam-k` and `looksam-k` with any k.
        base: a constructed optimizer, or a list of them.
        model: the network, for its BatchNorm statistics.
        settings: the keyword arguments of the method's class: `create("sam-5", …)` makes a `vsam.SAM` and takes its
            `rho`; `create("vsam-budget", …)` makes a `vsam.VSAM` and needs `budget` and `total_steps`.

    Example:
        >>> base = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> optimizer = create("looksam-5", base, model=model, rho=0.05)
    """
    import vsam
    from vsam.arguments import check_call

    named = find(name)
    made: type[SharpnessAware] = getattr(vsam, named.kind)
    check_call(made, (base,), settings)
    for setting, value in named.fixed.items():
        if setting in settings:
            raise ValueError(f"{name} means {setting}={value!r}: leave out {setting}=, or use vsam.{named.kind}.")
    _check_settings(name, named, made, settings)
    return made(base, model=model, **{**named.defaults, **settings, **named.fixed})


def find(name: str) -> Named:
    """What a name stands for; case does not matter."""
    listed = listed_name(name) if isinstance(name, str) else None
    if listed is not None:
        every = re.fullmatch(r".*-([0-9]+)", name)
        found = NAMED[listed]
        return Named(found.kind, {"every": int(every[1])}) if every else found
    near = difflib.get_close_matches(str(name).lower(), NAMED, n=1, cutoff=0.5)
    hint = _OTHERS.get(str(name).lower()) or (f"Did you mean {near[0]!r}?" if near else "")
    raise ValueError(f"There is no method {name!r:.60}.{hint and f' {hint}'} Known: {', '.join(NAMED)}.")


def listed_name(name: str) -> str | None:
    """The entry of the table that stands for a name, `sam-5` for `sam-10`; None if there is none."""
    known = name.lower()
    if re.fullmatch(r"(sam|looksam)-[1-9][0-9]{0,8}", known):
        return f"{known.partition('-')[0]}-5"
    return known if known in NAMED else None


def _check_settings(name: str, named: Named, made: type[Any], settings: Mapping[str, Any]) -> None:
    """Refuse settings that the method does not have, and name those that it needs."""
    from vsam.arguments import settings_of

    known = settings_of(made)
    for setting in settings:
        if setting not in known:
            free = [one for one in known if one not in named.fixed]
            near = difflib.get_close_matches(setting, free, n=1, cutoff=0.5)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"{name} has no setting {setting!r}.{hint} Known: {', '.join(free)}.")
    missing = [one for one, is_needed in known.items() if is_needed and one not in settings]
    if named.needs and not any(one in settings for one in named.needs):
        missing = [*named.needs[:1], "total_steps"]
    if missing:
        given = ", ".join(f"{one}=…" for one in missing)
        raise ValueError(f"{name} needs {' and '.join(missing)}: write vsam.create({name!r}, base, {given}).")
