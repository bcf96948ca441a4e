"""What studies hold as evidence: their rows, grouped by everything that must be alike before methods are compared."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from vsam.lab.errors import UserError
from vsam.lab.runs.facts import SOURCE
from vsam.lab.study.plan import STUDIES

__all__ = ["Group", "NotRun", "StudyRow", "collect", "samples_share", "seed_values", "with_other_gammas"]

StudyRow = Mapping[str, Any]

# Where a method is in several studies of a group, the one with most seeds speaks, and of equals the first of these.
_ORDER = ("table1", "ablation", "alpha", "gamma", "norms", "lsq")
_ALIKE = ("recipe", "data", "model", "noise", "steps")
_VARIED = ("alpha", "gamma")


_Number = Annotated[float, Field(allow_inf_nan=False, ge=-1e30, le=1e30)]
_Share = Annotated[float, Field(ge=0, le=1)]


class _Row(BaseModel):
    """What a row must hold before anything is computed with it; what else it holds is left alone."""

    model_config = ConfigDict(strict=True)

    method: str
    model: str
    data: str
    steps: Annotated[int, Field(ge=1)]
    samples: Annotated[_Number, Field(ge=0)]
    label: str = ""
    recipe: str | None = None
    noise: _Share | None = None
    alpha: _Number | None = None
    gamma: _Number | None = None
    seed_list: list[int] = []
    accuracies: list[_Number] = []
    samples_each: list[_Number] = []
    speed_to_sam_each: list[_Number | None] = []
    psf_norms: list[list[_Number | None]] = []


class NotRun(Exception):
    """A claim needs a run that there is not; the message says which."""


@dataclass(frozen=True)
class Group:
    """The rows of one model on one data set by one recipe, at one scale; quantized runs are a group of their own.

    Args:
        name: the recipe, the model, the data and the steps, for people.
        scale: of the studies.
        model: the network.
        data: the data set.
        is_quantized: whether these are runs of quantized networks, which speak only to the claims about those.
        rows: by study.
    """

    name: str
    scale: str
    model: str
    data: str
    is_quantized: bool
    rows: dict[str, list[StudyRow]] = field(default_factory=dict)

    def row(self, method: str) -> StudyRow:
        """The row of a method with its recipe's own settings; raises `NotRun` without one."""
        rows = [row for study in _ORDER for row in self.rows.get(study, ()) if row["method"] == method]
        own = [row for row in rows if all(row.get(name) is None for name in _VARIED)]
        if not own:
            raise NotRun(f"no row for {method}")
        return max(own, key=lambda row: len(row.get("seed_list", ())))

    def varied(self, name: str) -> list[StudyRow]:
        """The rows of the study of α or γ, in its order."""
        return [row for row in self.rows.get(name, ()) if row.get(name) is not None]

    def accuracies(self, method: str) -> dict[int, float]:
        """The accuracies of a method by seed."""
        return seed_values(self.row(method), "accuracies")


def collect(studies: Mapping[str, Mapping[str, Any]]) -> list[Group]:
    """The groups of all studies, in the order in which they first appear.

    Args:
        studies: by name, each as its JSON file holds it.
    """
    groups: dict[tuple[Any, ...], Group] = {}
    for name, study in studies.items():
        kind = STUDIES.get(name)
        if kind is not None and name not in _ORDER:  # it trains no network, or not in the paper's way
            continue
        is_quantized = kind is not None and kind.is_quantized
        for row in _rows(name, study):
            if _is_source(row):
                continue
            scale = str(study.get("scale", ""))
            key = (is_quantized, scale, *(row.get(key) for key in _ALIKE))
            new = Group(_name(row), scale, str(row["model"]), str(row["data"]), is_quantized)
            group = groups.setdefault(key, new)
            rows = group.rows.setdefault(name, [])
            if any(_identity(row) == _identity(other) for other in rows):
                raise UserError(f"Study {name} has two rows for {_identity(row)[0]} on {group.name}: keep one of them.")
            rows.append(row)
    return list(groups.values())


def with_other_gammas(group: Group) -> list[Group]:
    """The group once more for each γ of its study of γ that is not its recipe's; that row then stands for vSAM."""
    kept = {
        study: [row for row in rows if row["method"] != "vsam"]
        for study, rows in group.rows.items()
        if study not in _VARIED
    }
    others = [row for row in group.varied("gamma") if row.get("label") != "vsam"]
    return [
        replace(
            group,
            name=f"{group.name}, γ = {row['gamma']:g}, one of {len(others) + 1} tried",
            rows={**kept, "table1": [{**row, "gamma": None}, *kept.get("table1", [])]},
        )
        for row in others
    ]


def seed_values(row: StudyRow, key: str) -> dict[int, Any]:
    """A row's list of one value a seed, by seed, without seeds that have none; empty where the row has no such list."""
    seeds, values = row.get("seed_list", []), row.get(key, [])
    if not values:
        return {}
    if len(seeds) != len(values) or len(set(seeds)) != len(seeds):
        raise UserError(
            f"The row of {row['method']} has {len(values)} {key} for the seeds {list(seeds)}: every run needs a seed "
            "of its own, and one value."
        )
    return {seed: value for seed, value in zip(seeds, values, strict=True) if value is not None}


def samples_share(row: StudyRow) -> float:
    """Second gradients a step."""
    return float(row["samples"]) / float(row["steps"])


def _rows(name: str, study: Mapping[str, Any]) -> list[StudyRow]:
    rows = study.get("rows")
    if not isinstance(rows, list):
        raise UserError(f"Study {name} must hold a list of rows: run it again.")
    for number, row in enumerate(rows, 1):
        try:
            _Row.model_validate(row)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "the row"
            raise UserError(f"Row {number} of study {name}: {where}: {first['msg']}. Run the study again.") from None
    return rows


def _is_source(row: StudyRow) -> bool:
    """Whether quantized runs begin there, which is no method's row; older records have no role."""
    older = SOURCE if str(row.get("label", "")).endswith("-full-precision") else "run"
    return bool(row.get("role", older) == SOURCE)


def _identity(row: StudyRow) -> tuple[Any, ...]:
    return row["method"], *(row.get(name) for name in _VARIED)


def _name(row: StudyRow) -> str:
    noise = f" with {100 * row['noise']:.0f} % wrong labels" if row.get("noise") else ""
    setting = f"{row['model']} on {row['data']}{noise}, {row['steps']:,} steps"
    return f"{row['recipe']} ({setting})" if row.get("recipe") else setting
