"""The runs that the frontier needs: trials that choose each rival's settings, and fresh seeds that confirm them."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from vsam.lab.errors import UserError
from vsam.lab.recipes.load import load_recipe
from vsam.lab.recipes.recipe import Recipe
from vsam.lab.runs.facts import TRIAL
from vsam.lab.study.study import Part, Scale
from vsam.lab.tune.space import change

__all__ = ["Rival", "chosen_settings", "confirming_parts", "rivals", "rules", "trial_parts"]

Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Rival:
    """A method at a price.

    Args:
        name: of its row.
        method: by its name in recipes.
        fixed: its fixed settings, by dotted keys.
        tried: the settings that the trials choose among.
        epochs: the fraction of the recipe's epochs that it trains for.
    """

    name: str
    method: str
    fixed: Settings
    tried: tuple[Settings, ...]
    epochs: float = 1.0

    @property
    def variant(self) -> str | None:
        """The suffix that its name adds to the method's."""
        return self.name.removeprefix(self.method).lstrip("-") or None

    def recipe(self, recipe: Recipe, settings: Settings, seed: int, **changes: Any) -> Recipe:
        """Its run with the given settings."""
        epochs = max(1, round(self.epochs * recipe.epochs))
        own = {"method": self.method, "variant": self.variant, "seed": seed, "epochs": epochs}
        return change(recipe, {**self.fixed, **settings}, **own | changes).updated()


@cache
def rules() -> Mapping[str, Any]:
    """The study's rules, written down before it was run."""
    text = resources.files("vsam.lab.study.frontier").joinpath("frontier.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


@cache
def rivals(part: str | None = None) -> tuple[Rival, ...]:
    """SGD at several lengths, and every method at its prices; in later parts only those that the rules name."""
    own = rules()["part"].get(part, {})
    tried = own.get("try", {})
    lengths = [Rival(f"sgd-{price:g}", "sgd", {}, (), price) for price in rules()["sgd"]["prices"]]
    others = [
        Rival(name, row["method"], row.get("set", {}), tuple(tried.get(name, row["try"])), row.get("epochs", 1.0))
        for name, row in rules()["rival"].items()
    ]
    everybody = (Rival("sgd", "sgd", {}, ()), *lengths, *others)
    if part not in rules()["parts"][1:]:
        return everybody
    return tuple(rival for rival in everybody if rival.name in own.get("rivals", rules()["elsewhere"]))


def chosen_settings(part: str) -> Mapping[str, Settings]:
    """What the trials chose for the rivals of a part; unnamed ones were screened out there."""
    found: Mapping[str, Settings] = rules()["chosen"].get(part, {})
    return found


def trial_parts(scale: Scale, seeds: int, runs: Path) -> list[Part]:
    """Every rival with every setting that it tries, scored on held-out training images."""
    return [
        Part(
            recipe.name,
            tuple(
                rival.recipe(
                    recipe,
                    settings,
                    rules()["trial_seed"] + seed,
                    data=recipe.data.model_copy(update={"held_out": True}).model_dump(exclude_none=True),
                    variant="-".join(filter(None, (rival.variant, f"try-{number}"))),
                    role=TRIAL,
                )
                for seed in range(seeds)
                for rival in rivals(recipe.name)
                for number, settings in enumerate(rival.tried if scale == "small" else rival.tried[:1])
            ),
        )
        for recipe in _recipes(scale)
    ]


def confirming_parts(scale: Scale, seeds: int, runs: Path) -> list[Part]:
    """SGD at all lengths, and the rivals that were not screened out, with the settings that their trials chose."""
    return [
        Part(
            recipe.name,
            tuple(
                rival.recipe(recipe, settings, rules()["seed"] + seed)
                for seed in range(min(seeds, rules()["part"].get(recipe.name, {}).get("num_seeds", seeds)))
                for rival in rivals(recipe.name)
                if (settings := _settings(rival, recipe.name, scale)) is not None
            ),
        )
        for recipe in _recipes(scale)
    ]


def _settings(rival: Rival, part: str, scale: Scale) -> Settings | None:
    if not rival.tried:
        return {}
    return chosen_settings(part).get(rival.name) if scale == "small" else rival.tried[0]


def _recipes(scale: Scale) -> list[Recipe]:
    if scale == "paper":
        raise UserError("The frontier has no plan at the paper's scale: choose --scale small or tiny.")
    names = rules()["parts"] if scale == "small" else ["fashion-mini"]
    return [load_recipe(name, tiny=scale == "tiny") for name in names]
