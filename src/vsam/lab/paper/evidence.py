"""The evidence from studies: their rows, grouped by everything that must match before methods are compared."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from vsam.lab.errors import UserError
from vsam.lab.runs.facts import SOURCE
from vsam.lab.study.plan import STUDIES

__all__ = ["Group", "NotRun", "StudyRow", "collect", "samples_share", "seed_values", "with_other_gammas"]

StudyRow = Mapping[str, Any]

# If a method is in several studies of a group, the one with the most seeds counts; of ties, the first of these.
_ORDER = ("table1", "ablation", "alpha", "gamma", "norms", "lsq")
_ALIKE = ("recipe", "data", "model", "noise", "steps")
_VARIED = ("alpha", "gamma")


_Number = Annotated[float, Field(allow_inf_nan=False, ge=-1e30, le=1e30)]
_Share = Annotated[float, Field(ge=0, le=1)]


class _Row(BaseModel):
    """What a row must contain before anything is computed from it; other keys are ignored."""

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
    """A claim needs a run that does not exist; the message says which."""


@dataclass(frozen=True)
class Group:
    """The rows of one model on one dataset with one recipe, at one scale; quantized runs form a separate group.

    Args:
        name: recipe, model, data and steps, for display.
        scale: of the studies.
        model: the network.
        data: the dataset.
        is_quantized: whether these are quantized networks, which count only for the claims about those.
        rows: by study.
    """

    name: str
    scale: str
    model: str
    data: str
    is_quantized: bool
    rows: dict[str, list[StudyRow]] = field(default_factory=dict)

    def row(self, method: str) -> StudyRow:
        """The row of a method with the recipe's own settings; raises `NotRun` if there is none."""
        rows = [row for study in _ORDER for row in self.rows.get(study, ()) if row["method"] == method]
        own = [row for row in rows if all(row.get(name) is None for name in _VARIED)]
        if not own:
            raise NotRun(f"no row for {method}")
        return max(own, key=lambda row: len(row.get("seed_list", ())))

    def varied(self, name: str) -> list[StudyRow]:
        """The rows of the α or γ study, in its order."""
        return [row for row in self.rows.get(name, ()) if row.get(name) is not None]

    def accuracies(self, method: str) -> dict[int, float]:
        """The accuracies of a method by seed."""
        return seed_values(self.row(method), "accuracies")


def collect(studies: Mapping[str, Mapping[str, Any]]) -> list[Group]:
    """The groups of all studies, in order of first appearance.

    Args:
        studies: by name, each as in its JSON file.
    """
    groups: dict[tuple[Any, ...], Group] = {}
    for name, study in studies.items():
        kind = STUDIES.get(name)
        if kind is not None and name not in _ORDER:  # it trains no network, or not as in the paper
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
    """A copy of the group for each γ of its γ study other than the recipe's, with that row in place of vSAM's."""
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
    """A row's per-seed values, by seed, without seeds that have none; empty if the row has no such list."""
    seeds, values = row.get("seed_list", []), row.get(key, [])
    if not values:
        return {}
    if len(seeds) != len(values) or len(set(seeds)) != len(seeds):
        raise UserError(
            f"The row of {row['method']} has {len(values)} {key} for the seeds {list(seeds)}: every run needs its "
            "own seed and one value. Rerun the study."
        )
    return {seed: value for seed, value in zip(seeds, values, strict=True) if value is not None}


def samples_share(row: StudyRow) -> float:
    """Second gradients per step."""
    return float(row["samples"]) / float(row["steps"])


def _rows(name: str, study: Mapping[str, Any]) -> list[StudyRow]:
    rows = study.get("rows")
    if not isinstance(rows, list):
        raise UserError(f"Study {name} must contain a list of rows. Rerun it.")
    for number, row in enumerate(rows, 1):
        try:
            _Row.model_validate(row)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "the row"
            raise UserError(f"Row {number} of study {name}: {where}: {first['msg']}. Rerun the study.") from None
    return rows


def _is_source(row: StudyRow) -> bool:
    """Whether quantized runs start from it, so that it is no method's row; older records have no role."""
    older = SOURCE if str(row.get("label", "")).endswith("-full-precision") else "run"
    return bool(row.get("role", older) == SOURCE)


def _identity(row: StudyRow) -> tuple[Any, ...]:
    return row["method"], *(row.get(name) for name in _VARIED)


def _name(row: StudyRow) -> str:
    noise = f" with {100 * row['noise']:.0f} % wrong labels" if row.get("noise") else ""
    setting = f"{row['model']} on {row['data']}{noise}, {row['steps']:,} steps"
    return f"{row['recipe']} ({setting})" if row.get("recipe") else setting
