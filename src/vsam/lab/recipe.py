"""A recipe: one complete, named and checked description of a training run."""

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from vsam.lab import models
from vsam.lab.errors import UserError

__all__ = ["Recipe", "load_recipe", "recipe_header", "recipe_names"]

Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, strict=True)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class DataSettings(_Table):
    """Which images; `train` and `test` take balanced subsets, `noise` is the share of wrong training labels."""

    name: str
    train: Count | None = None
    test: Count | None = None
    noise: Share = 0.0
    size: Count | None = None
    grey: bool | None = None


class AugmentSettings(_Table):
    """What is done to training images; zeros switch a step off."""

    padding: Annotated[int, Field(ge=0)] = 4
    flip: Share = 0.5
    cutout: Annotated[int, Field(ge=0)] = 16
    cutout_probability: Share = 0.5


class VSAMSettings(_Table):
    """As in `vsam.VSAM`."""

    alpha: NotNegative = 0.1
    gamma: Share = 0.7
    window: Count = 50
    slices: Count = 5
    start: Annotated[int, Field(ge=0)] = 100
    initial: Positive = 1.0
    minimum: Positive = 1.0
    max_rate: Share = 0.8
    watch: Count | None = 10
    variant: Literal["paper", "released"] = "paper"


class LookSAMSettings(_Table):
    """As in `vsam.LookSAM`."""

    scale: NotNegative = 0.1


class ASAMSettings(_Table):
    """As in `vsam.ASAM`; without `rho` ten times the recipe's is taken."""

    rho: NotNegative | None = None
    eta: NotNegative = 0.01


class AESAMSettings(_Table):
    """As in `vsam.AESAM`."""

    delta: Share = 0.9
    low: float = -1.0
    high: float = 1.0


class ESAMSettings(_Table):
    """As in `vsam.ESAM`."""

    beta: Annotated[float, Field(gt=0, le=1)] = 0.6
    gamma: Annotated[float, Field(gt=0, le=1)] = 0.5


class SAFSettings(_Table):
    """As in `vsam.SAFLoss`."""

    lag: Count = 3
    temperature: Positive = 5.0
    weight: NotNegative = 0.3
    start_epoch: Annotated[int, Field(ge=-1)] = 5


class MESASettings(_Table):
    """As in `vsam.MESALoss`."""

    decay: Share = 0.9995
    temperature: Positive = 5.0
    weight: NotNegative = 0.8
    start_epoch: Annotated[int, Field(ge=-1)] = 5


class QuantizeSettings(_Table):
    """As in `vsam.quantize.quantize`; `checkpoint` is the full-precision run's, or "none"."""

    checkpoint: str = ""
    weight_bits: Annotated[int, Field(ge=2, le=32)] = 4
    activation_bits: Annotated[int, Field(ge=2, le=32)] = 4
    first_last_bits: Annotated[int, Field(ge=2, le=32)] = 8
    perturb_steps: bool = True


class Recipe(_Table):
    """Everything that decides the result of a run.

    Args:
        name: of the recipe.
        data: the images.
        model: as `vsam models` lists them.
        epochs: passes over the training images.
        batch: images a step; the last batch of an epoch may be smaller.
        lr: of the first step.
        method: as `vsam methods` lists them.
        variant: a word that tells runs of one method apart, as in `alpha-0.1`; part of the folder's name.
        rho: the radius of all methods but ASAM.
        optimizer: the base optimizer.
        schedule: `cosine` falls to 0 over the run, per step.
        label_smoothing: ε, what is taken from the target and shared among the other classes.
        norms: record gradient and PSF norms of the sampled steps, for the price of one norm.
        checkpoint_seconds: how often a run is saved within an epoch; it always is at the end of one.
    """

    name: str
    data: DataSettings
    model: str
    epochs: Count
    batch: Count
    lr: Positive
    method: str = "vsam"
    variant: str | None = None
    seed: Annotated[int, Field(ge=0, le=2**63 - 1, strict=True)] = 0
    rho: NotNegative = 0.05
    optimizer: Literal["sgd", "adamw"] = "sgd"
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    weight_decay: NotNegative = 1e-3
    schedule: Literal["cosine", "constant"] = "cosine"
    label_smoothing: Share = 0.0
    channels_last: bool = True
    compile: bool = False
    bf16: bool = False
    norms: bool = True
    checkpoint_seconds: Positive = 120.0
    augment: AugmentSettings = AugmentSettings()
    vsam: VSAMSettings = VSAMSettings()
    looksam: LookSAMSettings = LookSAMSettings()
    asam: ASAMSettings = ASAMSettings()
    aesam: AESAMSettings = AESAMSettings()
    esam: ESAMSettings = ESAMSettings()
    saf: SAFSettings = SAFSettings()
    mesa: MESASettings = MESASettings()
    quantize: QuantizeSettings | None = None

    @field_validator("model")
    @classmethod
    def _model_exists(cls, name: str) -> str:
        return models.canonical(name)

    @property
    def label(self) -> str:
        """What tables and folders call a run: the method and its variant."""
        return f"{self.method}-{self.variant}" if self.variant else self.method

    def to_toml(self) -> str:
        """The recipe with all its settings, as a file that `load_recipe` reads."""
        return tomli_w.dumps(self.model_dump(exclude_none=True))


def recipe_names() -> list[str]:
    """The recipes that ship with the package."""
    return sorted(path.name.removesuffix(".toml") for path in _folder().iterdir() if path.name.endswith(".toml"))


def recipe_header(name: str) -> str:
    """The comment at the top of a recipe: its command, hardware, time and expected result."""
    lines = _read(name).splitlines()
    return "\n".join(line.removeprefix("#").strip() for line in lines[: _first_setting(lines)])


def load_recipe(name: str, *, tiny: bool = False, changes: Iterable[str] = ()) -> Recipe:
    """Read and check a recipe.

    Args:
        name: of one that ships with the package, or a path to a file.
        tiny: shrink it as its `[tiny]` table says, to a run of seconds.
        changes: `key=value` with dotted keys; they win over everything else.
    """
    try:
        settings = tomllib.loads(_read(name))
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"Recipe {name} is not valid TOML: {error}.") from error
    smaller = settings.pop("tiny", {})
    settings.setdefault("name", Path(name).name.removesuffix(".toml"))
    if tiny:
        if not isinstance(smaller, dict):
            raise UserError(f"Recipe {name}: tiny must be a table, got {smaller!r}.")
        if not smaller:
            raise UserError(f"Recipe {name} has no [tiny] table, so --tiny cannot shrink it. Add one.")
        settings["name"] = f"{settings['name']}-tiny" if isinstance(settings["name"], str) else settings["name"]
        _merge(settings, smaller)
    for change in changes:
        key, equals, value = change.partition("=")
        if not equals or not key.strip():
            raise UserError(f"--set needs key=value, got {change!r}.")
        _merge(settings, _nested(key.strip(), _parse(value.strip())))
    try:
        return Recipe.model_validate(settings)
    except ValidationError as error:
        raise UserError(_explain(name, error)) from error


def _folder() -> Any:
    return resources.files("vsam.lab") / "recipes"


def _read(name: str) -> str:
    if name in recipe_names():
        return str((_folder() / f"{name}.toml").read_text(encoding="utf-8"))
    path = Path(name)
    if path.suffix == ".toml":
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"Recipe {path} cannot be read: {error}.") from error
    raise UserError(f"There is no recipe {name!r}.{_nearest(name, recipe_names())} See vsam recipes.")


def _first_setting(lines: list[str]) -> int:
    return next((i for i, line in enumerate(lines) if not line.startswith("#")), len(lines))


def _parse(value: str) -> Any:
    try:
        return tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return value


def _nested(key: str, value: Any) -> dict[str, Any]:
    for name in reversed(key.split(".")):
        value = {name: value}
    return value  # type: ignore[no-any-return]


def _merge(settings: dict[str, Any], changes: Mapping[str, Any]) -> None:
    for key, value in changes.items():
        if isinstance(value, Mapping) and isinstance(settings.get(key), dict):
            _merge(settings[key], value)
        else:
            settings[key] = dict(value) if isinstance(value, Mapping) else value


def _explain(name: str, error: ValidationError) -> str:
    problems = []
    for problem in error.errors():
        place = [str(part) for part in problem["loc"]]
        key = ".".join(place)
        if problem["type"] == "extra_forbidden":
            problems.append(f"unknown key {key!r}.{_nearest(place[-1], _keys(place[:-1]))}")
        elif problem["type"] == "missing":
            problems.append(f"{key} is missing.")
        else:
            problems.append(f"{key}: {problem['msg']}, got {problem['input']!r}.")
    return f"Recipe {name}: " + " ".join(problems)


def _keys(place: list[str]) -> list[str]:
    table: Any = Recipe
    for name in place:
        table = QuantizeSettings if name == "quantize" else table.model_fields[name].annotation
    return list(table.model_fields)


def _nearest(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f" Did you mean {near[0]!r}?" if near else f" Known: {', '.join(known)}."
