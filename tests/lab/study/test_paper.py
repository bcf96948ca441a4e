"""The paper's numbers, and that they stand only beside runs of the paper's setting."""

import pytest

from vsam.lab.recipes.load import load_recipe
from vsam.lab.study import paper
from vsam.lab.study.paper import PAIRS, Published, published, reference


def recipe(*changes, name="cifar10-resnet18"):
    return load_recipe(name, changes=changes)


def find(method, *changes, name="cifar10-resnet18"):
    return reference(recipe(f"method={method}", *changes, name=name))


def test_the_six_pairs_of_table_1_hold_twelve_methods_each():
    assert len(set(PAIRS)) == 6
    assert {len(published("table1", *pair)) for pair in PAIRS} == {12}


def test_a_number_is_what_the_paper_prints():
    vsam = published("table1", "wrn28-10", "cifar100")["vsam"]
    assert (vsam.accuracy, vsam.std, vsam.samples, vsam.ais, vsam.of_sam) == (84.64, 0.17, 29356, 470, 137)
    assert published("ablation", "resnet18", "cifar100")["vsam-a"].accuracy == 80.6
    assert published("lsq", "mobilenet", "cifar10")["full-precision"] == Published(85.81)
    assert published("alpha", "wrn28-10", "cifar100")["0.05"].samples == 5224
    assert list(published("gamma", "wrn28-10", "cifar100")) == ["0.6", "0.7", "0.8", "0.9"]
    assert published("table1", "resnet8", "cifar10") == {}


def test_one_experiment_links_the_two_parameter_studies():
    one = published("alpha", "wrn28-10", "cifar100")[str(paper.GAMMA_STUDY_ALPHA)]
    other = published("gamma", "wrn28-10", "cifar100")[str(paper.ALPHA_STUDY_GAMMA)]
    assert (one.accuracy, one.samples, one.ais) == (other.accuracy, other.samples, other.ais)


@pytest.mark.parametrize(("model", "data"), PAIRS)
def test_every_shipped_recipe_is_the_papers_setting(model, data):
    rows = published("table1", model, data)
    for method in ("sgd", "sam", "sam-5", "sam-10", "looksam-5", "esam", "saf", "vsam"):
        assert find(method, "seed=2", name=f"{data}-{model}") == rows[method]


def test_the_shipped_recipes_expect_the_number_that_the_paper_reports():
    from vsam.lab.recipes.load import recipe_header

    for model, data in PAIRS:
        vsam = published("table1", model, data)["vsam"]
        header = recipe_header(f"{data}-{model}")
        assert f"{vsam.accuracy} %" in header
        assert f"{vsam.samples:,} second gradients" in header
        assert f"{vsam.of_sam} % of SAM" in header


@pytest.mark.parametrize(
    "change",
    [
        "epochs=100",
        "batch=64",
        "lr=0.1",
        "rho=0.1",
        "momentum=0.8",
        "weight_decay=5e-4",
        "label_smoothing=0.0",
        "schedule=constant",
        "optimizer=adamw",
        "bf16=true",
        "data.noise=0.2",
        "data.train=2000",
        "data.test=2000",
        "data.name=fashion-mnist",
        "model=resnet20",
        "model=wrn28-10",
        "augment.cutout=0",
        "augment.padding=0",
        "vsam.alpha=0.2",
        "vsam.gamma=0.9",
        "vsam.window=20",
        "vsam.start=100",
        "vsam.max_rate=0.5",
    ],
)
def test_any_other_setting_has_no_reference(change):
    assert find("vsam", change) is None


@pytest.mark.parametrize(
    "change",
    [
        "seed=7",
        "name=mine",
        "compile=true",
        "channels_last=false",
        "norms=false",
        "checkpoint_seconds=5",
        "data.train=50000",
        "data.test=10000",
        "vsam.variant=released",
        "esam.beta=0.1",
    ],
)
def test_what_decides_no_result_is_free(change):
    assert find("vsam", change) == published("table1", "resnet18", "cifar10")["vsam"]


def test_only_a_methods_own_settings_count():
    rows = published("table1", "resnet18", "cifar10")
    assert find("sam", "vsam.alpha=0.5") == rows["sam"]
    assert find("sgd", "rho=0.5") == rows["sgd"]
    assert find("esam", "esam.beta=0.5") is None
    assert find("sam", "rho=0.5") is None


@pytest.mark.parametrize("method", ["mesa", "ae-sam", "asam", "sam-7", "looksam-10"])
def test_methods_that_the_paper_did_not_run_have_no_reference(method):
    assert find(method) is None


def test_the_ablation_is_one_of_resnet18():
    assert find("vsam-a") == published("ablation", "resnet18", "cifar10")["vsam-a"]
    assert find("vsam-a", "vsam.gamma=0.1") == published("ablation", "resnet18", "cifar10")["vsam-a"]
    assert find("vsam-a", "vsam.alpha=0.2") is None
    assert find("vsam-a", name="cifar10-wrn28-10") is None


def test_a_quantized_run_and_a_trial_have_no_reference():
    assert find("vsam", 'quantize={checkpoint="none"}') is None
    assert reference(load_recipe("cifar10-resnet18-lsq", changes=("method=vsam",))) is None
    assert reference(recipe("method=vsam").updated(role="trial")) is None


def test_the_studies_of_alpha_and_gamma_find_their_rows():
    def of(*changes, name="cifar100-wrn28-10"):
        return reference(recipe(*changes, name=name))

    alpha, gamma = (published(study, "wrn28-10", "cifar100") for study in ("alpha", "gamma"))
    assert of("vsam.alpha=0.1", "vsam.gamma=0.8") == alpha["0.1"]
    assert of("vsam.gamma=0.8") == alpha["0.13"]
    assert of("vsam.gamma=0.6") == gamma["0.6"]
    assert of("vsam.alpha=0.1") is None, "the paper's γ was 0.8"
    assert of("vsam.alpha=0.3", "vsam.gamma=0.8") is None, "the paper has no such row"
    assert of("vsam.gamma=0.6", "vsam.alpha=0.1") is None
    assert of("vsam.alpha=0.1", "vsam.gamma=0.8", "method=vsam-a") is None
    assert of("vsam.alpha=0.1", "vsam.gamma=0.8", name="cifar10-wrn28-10") is None
    assert of("vsam.alpha=0.1", "method=sam") == published("table1", "wrn28-10", "cifar100")["sam"]
