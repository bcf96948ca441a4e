"""Plans: the paper's settings at the paper's scale, and runs that studies share."""

import itertools

import pytest

from vsam.lab.recipes.load import load_recipe
from vsam.lab.run import run_path
from vsam.lab.study.plan import SCALES, STUDIES

OF_THE_PAPER = ["sgd", "sam", "sam-5", "sam-10", "looksam-5", "esam", "saf", "mesa", "ae-sam", "vsam", "vsam-a", "asam"]


def recipes(study, scale, folder, seeds=3):
    return [recipe for part in STUDIES[study].parts(scale, seeds, folder).values() for recipe in part]


def test_table1_of_the_paper_is_six_networks_and_data_sets_with_all_methods_and_three_seeds(tmp_path):
    parts = STUDIES["table1"].parts("paper", 3, tmp_path)
    pairs = itertools.product(("resnet18", "wrn28-10", "pyramidnet110"), ("cifar10", "cifar100"))
    assert list(parts) == [f"{data}-{model}" for model, data in pairs]
    for name, recipes in parts.items():
        shipped = load_recipe(name)
        assert shipped.epochs == 200
        assert [(recipe.seed, recipe.method) for recipe in recipes] == [
            (seed, method) for seed in range(3) for method in OF_THE_PAPER
        ]
        for recipe in recipes:
            assert recipe == shipped.model_copy(update={"seed": recipe.seed, "method": recipe.method})


def test_the_papers_studies_of_alpha_and_gamma_meet_in_one_run(tmp_path):
    alpha, gamma = (
        [r for r in recipes(name, "paper", tmp_path, 1) if r.method == "vsam"] for name in ("alpha", "gamma")
    )
    assert [(r.vsam.alpha, r.vsam.gamma) for r in alpha] == [(a, 0.8) for a in (0.05, 0.1, 0.13, 0.15, 0.2)]
    assert [(r.vsam.alpha, r.vsam.gamma) for r in gamma] == [(0.13, g) for g in (0.6, 0.7, 0.8, 0.9)]
    assert alpha[2] == gamma[2]
    assert {r.name for r in (*alpha, *gamma)} == {"cifar100-wrn28-10"}


@pytest.mark.parametrize("scale", SCALES)
def test_a_folder_never_means_two_different_runs(scale, tmp_path):
    planned = {}
    for study in STUDIES:
        for recipe in recipes(study, scale, tmp_path):
            assert planned.setdefault(run_path(tmp_path, recipe), recipe) == recipe


def test_studies_share_the_runs_with_the_recipes_own_settings(tmp_path):
    paths = {study: {run_path(tmp_path, r) for r in recipes(study, "small", tmp_path)} for study in STUDIES}
    for study in ("ablation", "norms"):
        assert paths[study] <= paths["table1"]
    for study, parts, values in (("alpha", 1, 5), ("gamma", 3, 4)):
        assert len(paths[study] & paths["table1"]) == 3 * parts * 2  # SAM and one value, three seeds
        assert len(paths[study] - paths["table1"]) == 3 * parts * (values - 1)


@pytest.mark.parametrize("scale", SCALES)
def test_quantized_runs_start_from_the_full_precision_run_of_their_seed(scale, tmp_path):
    parts = list(STUDIES["lsq"].parts(scale, 2, tmp_path).values())
    for full, quantized in zip(parts[::2], parts[1::2], strict=True):
        assert {recipe.method for recipe in quantized} == {"sgd", "sam", "vsam"}
        for recipe in quantized:
            (start,) = [candidate for candidate in full if candidate.seed == recipe.seed]
            assert start.quantize is None
            assert (start.model, start.data) == (recipe.model, recipe.data)
            assert recipe.quantize.checkpoint == str(run_path(tmp_path, start) / "checkpoint.pt")
            assert (recipe.quantize.weight_bits, recipe.quantize.activation_bits) == (4, 4)


def test_the_small_scale_has_clean_and_noisy_labels(tmp_path):
    assert {recipe.data.noise for recipe in recipes("table1", "small", tmp_path)} == {0.0, 0.3}
    assert {recipe.data.name for recipe in recipes("table1", "small", tmp_path)} == {"cifar10", "cifar100"}


def test_every_tiny_run_says_that_it_is_tiny(tmp_path):
    names = {recipe.name for study in STUDIES for recipe in recipes(study, "tiny", tmp_path)}
    assert all(name.endswith("-tiny") for name in names)
