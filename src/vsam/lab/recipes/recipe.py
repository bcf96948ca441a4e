"""A recipe: one complete, named and checked description of a training run."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import tomli_w
from pydantic import Field, ValidationError, ValidationInfo, create_model, field_validator, model_validator

from vsam.lab import models
from vsam.lab.errors import UserError, nearest
from vsam.lab.plugins import find_plugin, origins
from vsam.lab.recipes.settings import (
    ASAM_TIMES,
    ASAMSettings,
    AugmentSettings,
    BatchSize,
    BelowOne,
    BudgetSettings,
    Count,
    DataSettings,
    Fraction,
    MESASettings,
    NotNegative,
    PartSettings,
    PlainName,
    Positive,
    QuantizeSettings,
    SAFSettings,
    Section,
    SharpnessSettings,
    VSAMSettings,
    table_of,
)
from vsam.registry import METHODS

__all__ = ["BASES", "Recipe", "canonical_settings", "check_recipe", "modern"]

BASES = ("sgd", "adamw")
"""Base optimizers: the names in tables of runs without a method."""

_MOST_PARAMETERS = 10**9
_LAST_SEED = 2**63 - 1
_RARE = ("use", "own", "role")
_OPTIONAL = {"quantize": QuantizeSettings, "sharpness": SharpnessSettings}
_RENAMED = {"initial": "initial_samples", "minimum": "min_samples"}


class _Recipe(Section):
    """Everything that determines the result of a run.

    Args:
        name: of the recipe. Part of the folder's name, like method and variant, so without slashes.
        data: the images.
        model: see `vsam models`.
        epochs: passes over the training images.
        batch: images per step. The last batch of an epoch may be smaller.
        lr: the initial learning rate.
        method: see `vsam methods`.
        variant: distinguishes runs of one method, e.g. `alpha-0.1`. Part of the folder's name.
        rho: the radius of all methods but ASAM and MSAM.
        optimizer: the base optimizer.
        schedule: `cosine` decays to 0 over the run, per step.
        label_smoothing: ε, the probability moved from the target to the other classes.
        average: decay of an exponential moving average of the weights and BatchNorm statistics, e.g. 0.99, whose
            accuracy is measured too. By default there is none. It does not change the run.
        norms: record gradient and PSF norms of the sampled steps, at the cost of one norm.
        checkpoint_seconds: how often a run is saved within an epoch. It is always saved at the end of one.
        sharpness: how often to measure sharpness, and how. By default never. It does not change the weights.
        own: settings of the user's own method, by name.
        use: the user's files and packages that method, model and data come from, with checksums or versions.
        role: what the run is for: itself, a trial of a search, or the source of quantized runs. It changes nothing.
    """

    name: PlainName
    use: dict[str, str] = Field(default_factory=dict)
    data: DataSettings
    model: str
    epochs: Count
    batch: BatchSize
    lr: Positive
    method: PlainName = "vsam"
    variant: PlainName | None = None
    seed: Annotated[int, Field(ge=0, le=_LAST_SEED)] = 0
    rho: NotNegative = 0.05
    optimizer: Literal["sgd", "adamw"] = "sgd"
    momentum: BelowOne = 0.9
    weight_decay: NotNegative = 1e-3
    schedule: Literal["cosine", "constant"] = "cosine"
    label_smoothing: Fraction = 0.0
    channels_last: bool = True
    compile: bool = False
    bf16: bool = False
    average: BelowOne | None = None
    norms: bool = True
    checkpoint_seconds: Positive = 120.0
    role: Literal["run", "trial", "full-precision source"] = "run"
    augment: AugmentSettings = AugmentSettings()
    vsam: VSAMSettings = VSAMSettings()
    asam: ASAMSettings = ASAMSettings()
    budget: BudgetSettings = BudgetSettings()
    part: PartSettings = PartSettings()
    saf: SAFSettings = SAFSettings()
    mesa: MESASettings = MESASettings()
    own: dict[str, bool | int | float | str] = Field(default_factory=dict)
    sharpness: SharpnessSettings | None = None
    quantize: QuantizeSettings | None = None

    @field_validator("model")
    @classmethod
    def _model_exists(cls, name: str, info: ValidationInfo) -> str:
        is_own = find_plugin("model", name) is not None
        if is_own or (info.data.get("use") and not models.is_known(name)):  # a run from a file not in use here
            return name
        if re.search(r"[0-9]{4}", name):
            raise ValueError(f"{name[:40]!r} is deeper or wider than the limit of 999.")
        found = models.canonical(name)
        if found not in models.names():
            _check_size(found)
        return found

    @model_validator(mode="after")
    def _has_curvature(self) -> Self:
        if self.sharpness is not None and self.quantize is not None:
            raise ValueError(
                "sharpness cannot be measured in a quantized run, whose loss is piecewise constant in its weights. "
                "Leave out [sharpness], or train in full precision."
            )
        return self

    @property
    def ran(self) -> str:
        """Name in tables: the method's, or the base optimizer's if there is none."""
        return self.optimizer if self.method == "sgd" else self.method

    @property
    def label(self) -> str:
        """The run's name in tables and folders: what runs, and its variant."""
        return f"{self.ran}-{self.variant}" if self.variant else self.ran

    def value(self, key: str) -> Any:
        """The setting with a dotted key. Two of the defaults depend on other settings."""
        found: Any = self
        for name in key.split("."):
            found = found.get(name) if isinstance(found, dict) else getattr(found, name)
        if found is None and key == "asam.rho":
            return ASAM_TIMES * self.rho
        return self.budget.decay if found is None and key == "budget.gamma" else found

    def updated(self, **changes: Any) -> "Recipe":
        """The recipe with other top-level settings, and the user's files that it then needs."""
        if changes.get("seed", 0) > _LAST_SEED:
            raise UserError(f"Seeds go up to {_LAST_SEED}: start at a smaller one, or use fewer.")
        changed = self.model_copy(update=changes)
        needed = origins(method=changed.method, model=changed.model, data=changed.data.name)
        return changed.model_copy(update={"use": needed})

    def to_toml(self) -> str:
        """The recipe with all its settings, as a file that `load_recipe` reads."""
        return tomli_w.dumps(self.plain())

    def plain(self) -> dict[str, Any]:
        """All settings in plain types, without those that only users' own methods, trials and the like have."""
        settings = self.model_dump(mode="json", exclude_none=True)
        return {name: value for name, value in settings.items() if not (name in _RARE and value in ({}, "run"))}


_TABLES = {table: row for row in METHODS.values() for table in row.tables if table not in _Recipe.model_fields}
if TYPE_CHECKING:
    Recipe = _Recipe
else:  # with a table for each of the other methods that have settings
    Recipe = create_model(
        "Recipe",
        __base__=_Recipe,
        __module__=__name__,
        **{table: (made := table_of(row), made()) for table, row in _TABLES.items()},
    )


def check_recipe(name: str, settings: Mapping[str, Any]) -> Recipe:
    """The recipe with these settings, or an error that says what is wrong with them.

    Args:
        name: the recipe's name in errors.
        settings: in nested dictionaries.
    """
    try:
        return Recipe.model_validate(settings)
    except ValidationError as error:
        raise UserError(f"Recipe {name}: {_explain(error)}") from error


def canonical_settings(settings: Any) -> Any:
    """The canonical form of a run's settings, in which two runs are compared.

    Settings newer than the run get their defaults, which do not change it. A quantized run's checkpoint counts by the
    run it comes from, not by where the runs are stored. Likewise the user's files. The role changes nothing. What is
    not a recipe at all is returned as it is.
    """
    try:
        found = Recipe.model_validate(modern(settings)).model_dump(exclude_none=True, exclude={"role"})
    except ValidationError:
        return settings
    if "quantize" in found:
        found["quantize"]["checkpoint"] = _name_of(found["quantize"]["checkpoint"])
    found["use"] = {Path(file).name: version for file, version in found["use"].items()}
    return found


def modern(settings: Any) -> Any:
    """The settings of a run, with renamed ones under their current names."""
    rule = settings.get("vsam") if isinstance(settings, dict) else None
    if not isinstance(rule, dict):
        return settings
    known = VSAMSettings.model_fields
    return settings | {"vsam": {key if key in known else _RENAMED.get(key, key): rule[key] for key in rule}}


def _name_of(checkpoint: str) -> str:
    """Return the last four parts, RECIPE/LABEL/SEED/checkpoint.pt, or the words for no checkpoint."""
    return checkpoint if checkpoint in ("", "none") else "/".join(Path(checkpoint).resolve().parts[-4:])


def _explain(error: ValidationError) -> str:
    problems = []
    for problem in error.errors():
        place = [str(part) for part in problem["loc"]]
        key = ".".join(place)
        if problem["type"] == "extra_forbidden":
            problems.append(f"unknown key {key!r}.{nearest(place[-1], _keys(place[:-1]))}")
        elif problem["type"] == "missing":
            problems.append(f"{key} is missing.")
        elif problem["type"] == "less_than_equal" and isinstance(most := problem["ctx"]["le"], float) and most > 1:
            problems.append(f"{key}: Input should be at most {most:g}, got {_shorten(repr(problem['input']))}.")
        elif problem["type"] == "value_error":
            problems.append(f"{key}: {problem['ctx']['error']}")
        else:
            problems.append(f"{key}: {problem['msg']}, got {_shorten(repr(problem['input']))}.")
    return " ".join(problems)


def _shorten(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:60]} … {text[-17:]}"


def _check_size(model: str) -> None:
    count = models.count_parameters(model)
    if count > _MOST_PARAMETERS:
        raise ValueError(f"{model} has {count:,} parameters, more than the limit of {_MOST_PARAMETERS:,}.")


def _keys(place: list[str]) -> list[str]:
    table: Any = Recipe
    for name in place:
        table = _OPTIONAL.get(name) or table.model_fields[name].annotation
    return list(table.model_fields)
