"""A recipe: one complete, named and checked description of a training run."""

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w
from pydantic import Field, ValidationError, ValidationInfo, field_validator

from vsam.lab import models
from vsam.lab.errors import UserError
from vsam.lab.own import find_own, origins
from vsam.lab.own import use as use_file
from vsam.lab.recipes.settings import (
    ASAM_TIMES,
    AESAMSettings,
    ASAMSettings,
    AugmentSettings,
    BatchSize,
    BelowOne,
    Count,
    DataSettings,
    ESAMSettings,
    Fraction,
    LookSAMSettings,
    MESASettings,
    NotNegative,
    PlainName,
    Positive,
    QuantizeSettings,
    SAFSettings,
    Section,
    VSAMSettings,
)

__all__ = ["Recipe", "bring", "canonical_settings", "check_recipe", "load_recipe", "recipe_header", "recipe_names"]

_MOST_PARAMETERS = 10**9
# Besides its own error tomllib lets through those of numbers too long for Python, and of nesting too deep for it.
_NOT_TOML = (ValueError, RecursionError)


class Recipe(Section):
    """Everything that decides the result of a run.

    Args:
        name: of the recipe; part of the folder's name, like method and variant, so without slashes.
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
        own: settings of a method of the user's own, by name.
        use: the user's files and packages that method, model and data come from, with checksums or versions.
        role: what the run is for: itself, the trial of a search, or the source of quantized runs; it decides nothing.
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
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = 0
    rho: NotNegative = 0.05
    optimizer: Literal["sgd", "adamw"] = "sgd"
    momentum: BelowOne = 0.9
    weight_decay: NotNegative = 1e-3
    schedule: Literal["cosine", "constant"] = "cosine"
    label_smoothing: Fraction = 0.0
    channels_last: bool = True
    compile: bool = False
    bf16: bool = False
    norms: bool = True
    checkpoint_seconds: Positive = 120.0
    role: Literal["run", "trial", "full-precision source"] = "run"
    augment: AugmentSettings = AugmentSettings()
    vsam: VSAMSettings = VSAMSettings()
    looksam: LookSAMSettings = LookSAMSettings()
    asam: ASAMSettings = ASAMSettings()
    aesam: AESAMSettings = AESAMSettings()
    esam: ESAMSettings = ESAMSettings()
    saf: SAFSettings = SAFSettings()
    mesa: MESASettings = MESASettings()
    own: dict[str, bool | int | float | str] = Field(default_factory=dict)
    quantize: QuantizeSettings | None = None

    @field_validator("model")
    @classmethod
    def _model_exists(cls, name: str, info: ValidationInfo) -> str:
        is_own = find_own("model", name) is not None
        if is_own or (info.data.get("use") and not models.is_known(name)):  # a run from a file that is not in use here
            return name
        if re.search(r"[0-9]{4}", name):
            raise ValueError(f"{name[:40]!r} is deeper or wider than the 999 that are built here.")
        found = models.canonical(name)
        if found not in models.names():
            _check_size(found)
        return found

    @property
    def label(self) -> str:
        """What tables and folders call a run: the method and its variant."""
        return f"{self.method}-{self.variant}" if self.variant else self.method

    def value(self, key: str) -> Any:
        """The setting with a dotted key; ASAM's radius follows SAM's where it is left out."""
        found: Any = self
        for name in key.split("."):
            found = found.get(name) if isinstance(found, dict) else getattr(found, name)
        return ASAM_TIMES * self.rho if key == "asam.rho" and found is None else found

    def updated(self, **changes: Any) -> "Recipe":
        """The recipe with other settings at the top, and the user's files that it then needs."""
        changed = self.model_copy(update=changes)
        needed = origins(method=changed.method, model=changed.model, data=changed.data.name)
        return changed.model_copy(update={"use": needed})

    def to_toml(self) -> str:
        """The recipe with all its settings, as a file that `load_recipe` reads."""
        settings = self.model_dump(exclude_none=True)
        unused = [name for name in ("use", "own", "role") if settings[name] in ({}, "run")]
        return tomli_w.dumps({name: value for name, value in settings.items() if name not in unused})


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

    A recipe that names files of the user's, `use = ["own.py"]`, has them imported; a run on data of the user's own is
    named after these, and takes all of them.
    """
    text = _read(name)
    try:
        settings = tomllib.loads(text)
    except _NOT_TOML as error:
        raise UserError(f"Recipe {name} is not valid TOML: {error}.") from error
    smaller = settings.pop("tiny", {})
    settings.setdefault("name", Path(name).name.removesuffix(".toml"))
    if tiny:
        if not isinstance(smaller, dict):
            raise UserError(f"Recipe {name}: tiny must be a table, got {smaller!r}.")
        if not smaller:
            raise UserError(f"Recipe {name} has no [tiny] table, so --tiny cannot shrink it. Add one.")
        if settings["name"] and isinstance(settings["name"], str):
            settings["name"] += "-tiny"
        _merge(settings, smaller)
    changed: dict[str, Any] = {}
    for change in changes:
        key, equals, value = change.partition("=")
        if not equals or not key.strip():
            raise UserError(f"--set needs key=value, got {change!r}.")
        _merge(changed, _nested(key.strip(), _parse(value.strip())))
    bring(settings.pop("use", {}), Path(name).parent)
    data = changed.get("data")
    if isinstance(data, dict) and (own_name := _name_of_data(data.get("name"))):
        settings["data"] = {}  # how much the recipe takes of its own images says nothing of others
        settings["name"] = own_name + ("-tiny" if tiny else "")
    _merge(settings, changed)
    return check_recipe(name, settings).updated()


def bring(use: Any, folder: Path = Path()) -> None:
    """Import the user's files that a recipe names, in a list or with checksums, which must then be right."""
    wanted = dict.fromkeys(use, "") if isinstance(use, list) else use
    if not isinstance(wanted, dict) or not all(isinstance(part, str) for pair in wanted.items() for part in pair):
        raise UserError(f'use must be a list of files, like use = ["own.py"], got {use!r:.80}.')
    for file, checksum in wanted.items():
        if not file.endswith(".py"):
            continue  # a package, which is imported where it is installed
        found = use_file(folder / file)
        if checksum and found != checksum:
            raise UserError(
                f"{file} has changed: its checksum is {found}, and {checksum} was used. Restore the file, or train "
                "anew with another --out."
            )


def _name_of_data(name: object) -> str | None:
    """What runs on a user's own data are called."""
    if not isinstance(name, str):
        return None
    kind, _, path = name.partition(":")
    if kind == "folder" and path:
        return Path(path).expanduser().resolve().name or None
    return name if find_own("data", name) else None


def check_recipe(name: str, settings: Mapping[str, Any]) -> Recipe:
    """The recipe with these settings, or an error that says what is wrong with them.

    Args:
        name: what the error calls the recipe.
        settings: in nested dictionaries.
    """
    try:
        return Recipe.model_validate(settings)
    except ValidationError as error:
        raise UserError(f"Recipe {name}: {_explain(error)}") from error


def canonical_settings(settings: Any) -> Any:
    """The settings of a run in the form in which those of two runs are compared.

    Settings that are newer than the run have their defaults, which leave it as it was. Of the checkpoint that a
    quantized run starts from counts which run it is of, not where all the runs lie, and likewise of the user's files.
    The role decides nothing. What is no recipe at all is returned as it is.
    """
    try:
        found = Recipe.model_validate(settings).model_dump(exclude_none=True, exclude={"role"})
    except ValidationError:
        return settings
    if "quantize" in found:
        found["quantize"]["checkpoint"] = _name_of(found["quantize"]["checkpoint"])
    found["use"] = {Path(file).name: version for file, version in found["use"].items()}
    return found


def _name_of(checkpoint: str) -> str:
    """Of RECIPE/LABEL/SEED/checkpoint.pt these four; the words for no checkpoint stay."""
    return checkpoint if checkpoint in ("", "none") else "/".join(Path(checkpoint).resolve().parts[-4:])


def _folder() -> Any:
    return resources.files("vsam.lab") / "recipes"


def _read(name: str) -> str:
    if name in recipe_names():
        return str((_folder() / f"{name}.toml").read_text(encoding="utf-8"))
    path = Path(name)
    if path.suffix == ".toml":
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise UserError(f"Recipe {path} cannot be read: {error}.") from error
    raise UserError(f"There is no recipe {name!r}.{_nearest(name, recipe_names())} See vsam recipes.")


def _first_setting(lines: list[str]) -> int:
    return next((i for i, line in enumerate(lines) if not line.startswith("#")), len(lines))


def _parse(value: str) -> Any:
    try:
        parsed = tomllib.loads(f"value = {value}")
    except _NOT_TOML:
        return value
    return parsed["value"] if len(parsed) == 1 else value


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


def _explain(error: ValidationError) -> str:
    problems = []
    for problem in error.errors():
        place = [str(part) for part in problem["loc"]]
        key = ".".join(place)
        if problem["type"] == "extra_forbidden":
            problems.append(f"unknown key {key!r}.{_nearest(place[-1], _keys(place[:-1]))}")
        elif problem["type"] == "missing":
            problems.append(f"{key} is missing.")
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
        raise ValueError(f"{model} has {count:,} parameters, more than the {_MOST_PARAMETERS:,} that are built here.")


def _keys(place: list[str]) -> list[str]:
    table: Any = Recipe
    for name in place:
        table = QuantizeSettings if name == "quantize" else table.model_fields[name].annotation
    return list(table.model_fields)


def _nearest(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f" Did you mean {near[0]!r}?" if near else f" Known: {', '.join(known)}."
