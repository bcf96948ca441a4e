"""The methods by name. `registry.toml` has one table per method, which everything else reads."""

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # names are listed without importing torch
    from torch import nn
    from torch.optim import Optimizer

    from vsam.optimizer import Bases, SharpnessAware
    from vsam.parts import Between, Part, When, Where

__all__ = ["METHODS", "Method", "check_mixture", "create", "describe", "find", "list_methods", "listed_name", "read"]


@dataclass(frozen=True, kw_only=True)
class Method:
    """Everything that is known about a method.

    Args:
        name: in `create`, recipes and tables.
        title: in figures and texts.
        summary, formula, avoid: what it does in one line, what it computes, and when not to use it.
        kind: its class in `vsam`; None if it is not one of our optimizers.
        fixed, defaults: arguments that the name sets, and those that it sets unless the user does.
        needs: arguments, one of which the user must pass.
        parts: what its class chooses, "when × where × between".
        reduces: settings that turn one of its parts into a simpler one.
        cost, passes: passes per step, in words and as a rough number.
        kept, copied: parameter-sized buffers between steps, and on top of them in the second pass.
        of_data: what it keeps that grows with the data.
        paper, note: where it was published, and as what if it is not the paper's subject.
        known_as: the name of these parts in the paper, if it is not the title.
        variants: other combinations in the paper, and their names.
        bases: who published it with a base optimizer other than SGD.
        settings: the keys of a recipe that it reads, dotted if in a table.
        takes: further arguments that a run knows, among `seed` and `total_steps`.
        search: the ranges that `vsam tune` searches, if any.
        first_try: a setting to start with where the recipes' would be wrong for it, as `key=value`.
        color: in figures, as #rrggbb; user-defined methods get an unused one.
        card: its page in `docs/methods`, if not called like the method.
    """

    name: str
    title: str
    summary: str
    formula: str = ""
    avoid: str = ""
    kind: str | None = None
    fixed: Mapping[str, Any] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    parts: str = ""
    reduces: Mapping[str, str] = field(default_factory=dict)
    cost: str = "2 passes per step"
    passes: float = 2.0
    kept: tuple[str, ...] = ()
    copied: tuple[str, ...] = ("the weights",)
    of_data: str = ""
    paper: str = ""
    note: str = ""
    known_as: str = ""
    variants: Mapping[str, str] = field(default_factory=dict)
    bases: Mapping[str, str] = field(default_factory=dict)
    settings: tuple[str, ...] = ("rho",)
    takes: tuple[str, ...] = ()
    search: str = "rho=0.02:0.5:log"
    first_try: str = ""
    color: str = ""
    card: str = ""

    @property
    def memory(self) -> str:
        """The buffers that it keeps and copies, in words."""
        kept, copied = ", ".join(filter(None, [*self.kept, self.of_data])), ", ".join(self.copied)
        return "; ".join([*([f"kept: {kept}"] if kept else []), *([f"transient: {copied}"] if copied else [])])

    @property
    def buffers(self) -> tuple[int, int] | None:
        """The number of buffers that it keeps and copies. None if its memory grows with the data."""
        return None if self.of_data else (len(self.kept), len(self.copied))

    @property
    def reference(self) -> str:
        """Authors, title and venue."""
        if not self.paper:
            return "not published: experimental"
        authors, _, venue = self.paper.rpartition(", ")
        return ", ".join(filter(None, [authors, _PAPERS.get(self.paper, {}).get("title"), venue, self.note]))

    @property
    def link(self) -> str:
        """The address of the paper, or ""."""
        number = _PAPERS.get(self.paper, {}).get("arxiv")
        return f"https://arxiv.org/abs/{number}" if number else ""

    @property
    def tables(self) -> set[str]:
        """The tables of a recipe that it reads."""
        return {key.partition(".")[0] for key in self.settings if "." in key}


def read(file: Path) -> dict[str, Method]:
    """Read a file of rows, and the papers that they name."""
    tables = tomllib.loads(file.read_text(encoding="utf-8"))
    _PAPERS.update(tables.pop("papers"))
    for table in tables.values():
        table.update({key: tuple(one) for key, one in table.items() if isinstance(one, list)})
    return {name: Method(name=name, **table) for name, table in tables.items()}


_PAPERS: dict[str, dict[str, str]] = {}
METHODS: dict[str, Method] = read(Path(__file__).with_suffix(".toml"))
"""The rows by name; `sam-5` and `looksam-5` stand for any number."""

_OTHERS = {
    "sgd": "It is the base optimizer itself: use that.",
    "saf": "It is a loss: use vsam.SAFLoss.",
    "mesa": "It is a loss: use vsam.MESALoss.",
    "bi-lora": "It is for models of peft: use vsam.integrations.peft.BiLoRA.",
}


def list_methods() -> list[str]:
    """Return the names that `create` knows. `sam-5` and `looksam-5` stand for any number, as in `sam-10`.

    Example:
        >>> "vsam" in list_methods()
        True
    """
    return list(METHODS)


def create(name: str, base: "Bases", *, model: "nn.Module | None" = None, **settings: Any) -> "SharpnessAware":
    """Construct the optimizer called `name`.

    Args:
        name: one of `list_methods()`, or `sam-k` and `looksam-k` with any k.
        base: a constructed optimizer, or a list of them.
        model: the network, for its BatchNorm statistics.
        settings: the keyword arguments of the method's class: `create("sam-5", …)` makes a `vsam.SAM` and takes its
            `rho`; `create("vsam-budget", …)` makes a `vsam.VSAM` and needs `budget` or `target`.

    Example:
        >>> base = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> optimizer = create("looksam-5", base, model=model, rho=0.05)
    """
    import vsam
    from vsam._step.misuse import check_call, settings_of

    row = find(name)
    kind: type[SharpnessAware] = getattr(vsam, str(row.kind))
    check_call(kind, (base,), settings)
    known = settings_of(kind)
    free = [one for one in known if one not in row.fixed]
    for setting in settings:
        if setting in row.fixed:
            value = row.fixed[setting]
            raise ValueError(f"{name} means {setting}={value!r}: leave out {setting}=, or use vsam.{row.kind}.")
        if setting not in known:
            raise ValueError(f"{name} has no setting {setting!r}.{_nearest(setting, free)} Known: {', '.join(free)}.")
    if row.needs and not any(one in settings for one in row.needs):
        needed = row.needs[0]
        raise ValueError(f"{name} needs {needed}: write vsam.create({name!r}, base, {needed}=…).")
    return kind(base, model=model, **{**row.defaults, **settings, **row.fixed})


def find(name: str) -> Method:
    """Return the row of a name, in upper or lower case."""
    listed = listed_name(name) if isinstance(name, str) else None
    if listed is not None:
        every = re.fullmatch(r".*-([0-9]+)", name)
        return replace(METHODS[listed], fixed={"every": int(every[1])}) if every else METHODS[listed]
    other = _OTHERS.get(str(name).lower())
    hint = f" {other}" if other else _nearest(str(name).lower(), METHODS)
    raise ValueError(f"There is no method {name!r:.60}.{hint} Known: {', '.join(METHODS)}.")


def listed_name(name: str) -> str | None:
    """Return the name of the row that stands for `name`, `sam-5` for `sam-10`, or None."""
    known = name.lower()
    if re.fullmatch(r"(sam|looksam)-[1-9][0-9]{0,8}", known):
        return f"{known.partition('-')[0]}-5"
    return known if known in METHODS else None


def _nearest(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f" Did you mean {near[0]!r}?" if near else ""


def check_mixture(when: "When", where: "Where", between: "Between", groups: Sequence[Mapping[str, Any]]) -> None:
    """Raise if parts cannot work together: a gradient at a point ahead could not be taken, or would never be used."""
    ahead = where.ahead() or between.ahead()
    if ahead is None:
        return
    if when.decides_late:
        raise ValueError(
            f"when={when!r} decides after the first gradient, too late for {type(ahead).__name__}: use Always, Every, "
            "Even, Tail or Bernoulli."
        )
    if where.ahead() is not None and (when.watch != 0 or between.uses_psf):
        asking = f"when={when!r}" if when.watch != 0 else f"between={between!r}"
        raise ValueError(
            f"{asking} needs the PSF, but {type(where).__name__} takes one gradient per step: use Every or Always, and "
            "Plain."
        )
    for part in filter(None, (where.ahead(), between.ahead())):
        part.check_groups(groups)


def describe(
    when: "When", where: "Where", between: "Between", base: "Optimizer | None" = None, share: float = 1.0
) -> str:
    """Say in plain words what a combination does, what it costs, and whether it was published.

    Args:
        when, where, between: the parts.
        base: the base optimizer; its groups hold rho. Without it only the parts are described.
        share: the fraction of samples on which the second gradient is taken.
    """
    from vsam.where import PartOfBatch

    combination = _combination(when, where, between, share)
    first = where.describe()
    sentences = [f"{first[0].upper()}{first[1:]} ({_radius(where, base)}), it {when.describe()}."]
    cost = "one pass per step plus one per sample, a transient copy of the weights at a sample"
    if where.ahead() is not None:
        sentences[0] = sentences[0].replace("the second gradient", "the only gradient")
        cost = "one pass per step, a transient copy of the weights"
    if isinstance(where, PartOfBatch):
        cost = f"one pass per step plus {where.share:.3g} of one per sample, a transient copy of the weights"
    if share < 1:
        sentences.append(f"That is the gradient of {share:.0%} of the samples, those whose loss rose most.")
        cost += ", one more forward pass there"
    if between.uses_psf and not between.num_buffers:
        cost += " and of the gradient"
    is_idle = combination.startswith("Always") and (between.num_buffers or not between.uses_psf)
    sentences.append("There are no steps in between." if is_idle else f"It {between.describe()}.")
    if num_buffers := between.num_buffers + where.num_buffers:
        cost += ", one parameter-sized buffer" if num_buffers == 1 else ", two parameter-sized buffers"
    if when.decides_late:
        cost += ", one device sync per step for the gradient norm"
    return " ".join([*sentences, f"Cost: {cost}.", _origin(combination, base)])


def _origin(combination: str, base: "Optimizer | None") -> str:
    """Name the paper of a combination, and its base optimizer."""
    import torch

    from vsam.bases import bases_of

    papers = [row for row in METHODS.values() if row.paper and combination in (row.parts, *row.variants)]
    if not papers:
        return "Not a published combination: experimental."
    row = papers[0]
    name = row.variants.get(combination, row.known_as or row.title)
    published = f"{name} ({row.paper}{row.note and f', {row.note}'})"
    bases = bases_of(base) if base is not None else []
    others = list(dict.fromkeys(type(one) for one in bases if not isinstance(one, torch.optim.SGD)))
    around = " and ".join(kind.__name__ for kind in others)
    if not others:
        return f"Published as {published}."
    is_torchs = len(bases) == 1 and others[0] is getattr(torch.optim, around, None)
    if is_torchs and combination == row.parts and around in row.bases:
        return f"Published as {published}, with {around} by {row.bases[around]}."
    return (
        f"Not a published combination: {published} was published with SGD, and we know of no paper that "
        f"uses it with {around}. Experimental."
    )


def _radius(where: "Where", base: "Optimizer | None") -> str:
    """The value of rho, by group if they differ."""
    from vsam._step.parameters import own_rho
    from vsam.bases import bases_of

    bases = bases_of(base) if base is not None else []
    groups = [group for one in bases for group in one.param_groups]
    found = [
        where.rho if is_own else group.get("rho", where.rho)
        for group, is_own in zip(groups, own_rho(bases), strict=True)
        if group.get("perturb", True)
    ]
    radii = list(dict.fromkeys(found)) or [where.rho]
    return "rho = " + ", ".join(f"{radius:g}" for radius in radii) + (" by group" if len(radii) > 1 else "")


def _combination(when: "When", where: "Where", between: "Between", share: float) -> str:
    """The parts as rows name them."""
    asked, place, rest = map(_part_name, (when, where, between))
    if asked == "Always" and (between.num_buffers or not between.uses_psf):
        rest = "Plain"  # if every step is sampled, nothing happens in between
    only = f"(only={where.only!r})" if where.only else ""
    return f"{asked} × {place}{only} × {rest}{', on chosen samples' if share < 1 else ''}"


def _part_name(part: "Part") -> str:
    """Return a part's class, or the simpler one that its settings reduce it to. User-defined parts have no name."""
    import vsam

    name = type(part).__name__
    if getattr(vsam, name, None) is not type(part):
        return "user-defined"
    numbers = {key: value for key, value in part.settings().items() if isinstance(value, int | float)}
    for row in METHODS.values():
        for key, value in numbers.items():
            if simpler := row.reduces.get(f"{name}({key}={value:g})"):
                return simpler
    if numbers.get("floor"):  # a reuse that ends: the authors' program stops at γ⁶, the paper does not
        return f"{name}(floor=gamma**6)" if numbers["floor"] == numbers["gamma"] ** 6 else f"{name}(floor)"
    return name
