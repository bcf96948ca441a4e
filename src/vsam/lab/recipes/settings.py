"""The tables of a recipe, and the values their settings may take."""

import inspect
from collections.abc import Callable
from typing import Annotated, Any, Literal, Self, get_type_hints

import torch
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, create_model, model_validator

import vsam
from vsam.lab.data.augment import Augment
from vsam.methods import default_gamma
from vsam.registry import Method

__all__ = [
    "ASAM_TIMES",
    "ASAMSettings",
    "AugmentSettings",
    "BatchSize",
    "BelowOne",
    "BudgetSettings",
    "Count",
    "DataSettings",
    "Fraction",
    "MESASettings",
    "NotNegative",
    "PartSettings",
    "PlainName",
    "Positive",
    "QuantizeSettings",
    "SAFSettings",
    "Section",
    "SharpnessSettings",
    "VSAMSettings",
    "table_of",
]

_LONGEST_NAME = 200  # file systems allow 255 bytes, and -tiny or the number of bits may follow


def _check_plain_name(name: str) -> str:
    if not name:
        wrong = "is empty"
    elif "/" in name or "\\" in name:
        wrong = "has a slash"
    elif name.startswith("."):
        wrong = "begins with a dot"
    elif name != name.strip():
        wrong = "begins or ends with a space"
    elif not name.isprintable():
        wrong = "has characters that cannot be printed"
    elif len(name.encode()) > _LONGEST_NAME:
        wrong = f"has {len(name.encode())} bytes, but only {_LONGEST_NAME} are allowed"
    else:
        return name
    raise ValueError(f"{name[:40]!r} {wrong}, but it becomes the name of a folder. Choose a plain one.")


PlainName = Annotated[str, AfterValidator(_check_plain_name)]
_LARGEST = 1e30  # torch's default type overflows at about 3e38
Number = Annotated[float, Field(ge=-_LARGEST, le=_LARGEST, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, le=_LARGEST, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, le=_LARGEST, allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0, le=1)]
PositiveFraction = Annotated[float, Field(gt=0, le=1)]
BelowOne = Annotated[float, Field(ge=0, lt=1)]
# The upper bounds keep a typo from asking for all available memory.
Count = Annotated[int, Field(ge=1, le=10**9)]
CountOrZero = Annotated[int, Field(ge=0, le=10**9)]
BatchSize = Annotated[int, Field(ge=1, le=2**16)]
Epoch = Annotated[int, Field(ge=-1, le=10**9)]
Bits = Annotated[int, Field(ge=2, le=32)]


def default(of: Callable[..., Any], name: str) -> Any:
    """The library's own default for an argument, so that it is defined once."""
    return inspect.signature(of).parameters[name].default


ASAM_TIMES = default(vsam.ASAM, "rho") / default(vsam.SAM, "rho")
"""ASAM's default radius as a multiple of SAM's."""


class Section(BaseModel):
    """Rejects unknown keys and type conversions (`true` is not a number). Immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class DataSettings(Section):
    """Selection of images: `train` and `test` are balanced subsets, `noise` is the fraction of wrong training labels.

    With `held_out`, accuracy is measured on `test` training images that `train` leaves unused, for tuning.
    """

    name: str
    train: Count | None = None
    test: Count | None = None
    noise: Fraction = 0.0
    held_out: bool = False
    size: Annotated[int, Field(ge=1, le=4096)] | None = None
    grey: bool | None = None

    @model_validator(mode="after")
    def _leaves_images(self) -> Self:
        """Holding out needs a subset of the training images, of a size that the recipe states."""
        if self.held_out and (self.train is None or self.test is None):
            raise ValueError("held_out tests on training images that are not trained on: set data.train and data.test.")
        return self


class AugmentSettings(Section):
    """Augmentation of training images. Zeros switch a step off."""

    padding: Annotated[int, Field(ge=0, le=512)] = default(Augment, "padding")
    flip: Fraction = default(Augment, "flip")
    cutout: CountOrZero = default(Augment, "cutout")
    cutout_probability: Fraction = default(Augment, "cutout_probability")


class VSAMSettings(Section):
    """As in `vsam.VSAM`."""

    alpha: NotNegative = default(vsam.VSAM, "alpha")
    gamma: Fraction = default_gamma(None)
    window: Count = default(vsam.VSAM, "window")
    slices: Count = default(vsam.VSAM, "slices")
    start: CountOrZero = default(vsam.VSAM, "start")
    initial_samples: Positive = float(default(vsam.VSAM, "initial_samples"))
    min_samples: Positive = float(default(vsam.VSAM, "min_samples"))
    max_rate: PositiveFraction = default(vsam.VSAM, "max_rate")
    watch: Count | None = default(vsam.VSAM, "watch")
    variant: Literal["paper", "released"] = default(vsam.VSAM, "variant")

    @model_validator(mode="after")
    def _is_a_law(self) -> Self:
        """Let the rule itself check the settings together, whatever the method: comparisons run several."""
        rule: Any = vsam.Variation if self.variant == "paper" else vsam.ReleasedVariation
        rule(**self.model_dump(exclude={"gamma", "variant"}))
        return self


class ASAMSettings(Section):
    """As in `vsam.ASAM`. The default of `rho` is `ASAM_TIMES` the recipe's."""

    rho: NotNegative | None = None
    eta: NotNegative = default(vsam.ASAM, "eta")


class BudgetSettings(Section):
    """As in `vsam.VSAM` with a budget, and its reuse. γ follows from the budget if it is not set."""

    budget: PositiveFraction = 0.2
    gamma: Fraction | None = None

    @property
    def decay(self) -> float:
        """γ."""
        return default_gamma(self.budget) if self.gamma is None else self.gamma


class PartSettings(Section):
    """As in `vsam.SAM` with `share`."""

    share: PositiveFraction = 0.05


class SAFSettings(Section):
    """As in `vsam.SAFLoss`."""

    lag: Annotated[int, Field(ge=1, le=1000)] = default(vsam.SAFLoss, "lag")
    temperature: Positive = default(vsam.SAFLoss, "temperature")
    weight: NotNegative = default(vsam.SAFLoss, "weight")
    start_epoch: Epoch = default(vsam.SAFLoss, "start_epoch")


class MESASettings(Section):
    """As in `vsam.MESALoss`."""

    decay: BelowOne = default(vsam.MESALoss, "decay")
    temperature: Positive = default(vsam.MESALoss, "temperature")
    weight: NotNegative = default(vsam.MESALoss, "weight")
    start_epoch: Epoch = default(vsam.MESALoss, "start_epoch")


class SharpnessSettings(Section):
    """As in `vsam.sharpness.Watch`, on this many stored training images. The default of `rho` is the recipe's."""

    every: Count
    samples: Count = 512
    batch: BatchSize = 128
    rho: NotNegative | None = None
    max_iterations: Annotated[int, Field(ge=2, le=1000)] = 30


class QuantizeSettings(Section):
    """As in `vsam.quantize.quantize`. `checkpoint` is the full-precision run's, or "none"."""

    checkpoint: str = ""
    weight_bits: Bits = 4
    activation_bits: Bits = 4
    first_last_bits: Bits = 8
    signed_inputs: list[str] = []
    perturb_steps: bool = True


def table_of(row: Method) -> type[Section]:
    """Return the table of a method's settings, with the defaults of its class, which also checks them."""
    kind = getattr(vsam, str(row.kind))
    types = get_type_hints(kind.__init__)
    keys = [key.partition(".")[2] for key in row.settings if "." in key]
    fields: dict[str, Any] = {
        key: (Number if types[key] is float else types[key], row.defaults.get(key, default(kind, key))) for key in keys
    }

    def check(table: Section) -> Section:
        settings: dict[str, Any] = table.model_dump() | dict.fromkeys(row.takes, 10**9)
        vsam.create(row.name, torch.optim.SGD([torch.zeros(1)], momentum=0.9), **settings)
        return table

    validators: dict[str, Any] = {"check": model_validator(mode="after")(check)}
    return create_model(f"{row.kind}Settings", __base__=Section, __validators__=validators, **fields)
