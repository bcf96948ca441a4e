"""The tables of a recipe, and what each of their settings may be."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from vsam.when import ReleasedVariation, Variation

__all__ = [
    "AESAMSettings",
    "ASAMSettings",
    "AugmentSettings",
    "BatchSize",
    "BelowOne",
    "Count",
    "DataSettings",
    "ESAMSettings",
    "Fraction",
    "LookSAMSettings",
    "MESASettings",
    "NotNegative",
    "PlainName",
    "Positive",
    "QuantizeSettings",
    "SAFSettings",
    "Section",
    "VSAMSettings",
]

_LONGEST_NAME = 200  # file systems take 255 bytes, and -tiny or the number of bits may follow


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
        wrong = f"has {len(name.encode())} bytes, of which {_LONGEST_NAME} are allowed"
    else:
        return name
    raise ValueError(f"{name[:40]!r} {wrong}, but it becomes the name of a folder. Choose a plain one.")


PlainName = Annotated[str, AfterValidator(_check_plain_name)]
Number = Annotated[float, Field(allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0, le=1)]
PositiveFraction = Annotated[float, Field(gt=0, le=1)]
BelowOne = Annotated[float, Field(ge=0, lt=1)]
# The upper bounds keep a slip of the finger from asking for all the memory there is.
Count = Annotated[int, Field(ge=1, le=10**9)]
CountOrZero = Annotated[int, Field(ge=0, le=10**9)]
BatchSize = Annotated[int, Field(ge=1, le=2**16)]
Epoch = Annotated[int, Field(ge=-1, le=10**9)]
Bits = Annotated[int, Field(ge=2, le=32)]


class Section(BaseModel):
    """Nothing unknown, nothing converted (`true` is no number), nothing changed later."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class DataSettings(Section):
    """Which images; `train` and `test` take balanced subsets, `noise` is the share of wrong training labels."""

    name: str
    train: Count | None = None
    test: Count | None = None
    noise: Fraction = 0.0
    size: Annotated[int, Field(ge=1, le=4096)] | None = None
    grey: bool | None = None


class AugmentSettings(Section):
    """What is done to training images; zeros switch a step off."""

    padding: Annotated[int, Field(ge=0, le=512)] = 4
    flip: Fraction = 0.5
    cutout: CountOrZero = 16
    cutout_probability: Fraction = 0.5


class VSAMSettings(Section):
    """As in `vsam.VSAM`."""

    alpha: NotNegative = 0.1
    gamma: Fraction = 0.7
    window: Count = 50
    slices: Count = 5
    start: CountOrZero = 100
    initial: Positive = 1.0
    minimum: Positive = 1.0
    max_rate: PositiveFraction = 0.8
    watch: Count | None = 10
    variant: Literal["paper", "released"] = "paper"

    @model_validator(mode="after")
    def _is_a_law(self) -> Self:
        """Ask the law itself whether the settings fit each other, whatever the method: compare runs several."""
        law = Variation if self.variant == "paper" else ReleasedVariation
        law(**self.model_dump(exclude={"gamma", "variant"}))
        return self


class LookSAMSettings(Section):
    """As in `vsam.LookSAM`."""

    scale: NotNegative = 0.1


class ASAMSettings(Section):
    """As in `vsam.ASAM`; without `rho` ten times the recipe's is taken."""

    rho: NotNegative | None = None
    eta: NotNegative = 0.01


class AESAMSettings(Section):
    """As in `vsam.AESAM`."""

    delta: BelowOne = 0.9
    low: Number = -1.0
    high: Number = 1.0


class ESAMSettings(Section):
    """As in `vsam.ESAM`."""

    beta: PositiveFraction = 0.6
    gamma: PositiveFraction = 0.5


class SAFSettings(Section):
    """As in `vsam.SAFLoss`."""

    lag: Annotated[int, Field(ge=1, le=1000)] = 3
    temperature: Positive = 5.0
    weight: NotNegative = 0.3
    start_epoch: Epoch = 5


class MESASettings(Section):
    """As in `vsam.MESALoss`."""

    decay: BelowOne = 0.9995
    temperature: Positive = 5.0
    weight: NotNegative = 0.8
    start_epoch: Epoch = 5


class QuantizeSettings(Section):
    """As in `vsam.quantize.quantize`; `checkpoint` is the full-precision run's, or "none"."""

    checkpoint: str = ""
    weight_bits: Bits = 4
    activation_bits: Bits = 4
    first_last_bits: Bits = 8
    signed_inputs: list[str] = []
    perturb_steps: bool = True
