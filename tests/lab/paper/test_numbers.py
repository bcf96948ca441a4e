"""The paper's numbers, and that they stand only beside runs of the paper's setting."""

import pytest

from vsam.lab.errors import UserError
from vsam.lab.paper import numbers
from vsam.lab.recipes.load import load_recipe


def recipe(*changes, name="cifar10-resnet18"):
    return load_recipe(name, changes=changes)


def find(method, *changes, name="cifar10-resnet18"):
    return numbers.reference(recipe(f"method={method}", *changes, name=name), method)


def test_the_six_pairs_of_table_1_hold_twelve_methods_each():
    assert len(set(numbers.PAIRS)) == 6
    assert {len(numbers.table1(model, data)) for model, data in numbers.PAIRS} == {12}


def test_a_number_is_what_the_paper_prints():
    vsam = numbers.table1("wrn28-10", "cifar100")["vsam"]
    assert (vsam.accuracy, vsam.std, vsam.samples, vsam.ais, vsam.of_sam) == (84.64, 0.17, 29356, 470, 137)
    assert vsam.source == "paper"
    assert numbers.ablation("cifar100")["vsam-a"].accuracy == 80.6
    assert numbers.lsq("mobilenet")["full-precision"] == numbers.Published(85.81)
    assert numbers.alpha()[0.05].samples == 5224
    assert numbers.alpha()["sam"].accuracy == 84.45
    assert list(numbers.gamma()) == [0.6, 0.7, 0.8, 0.9]


def test_numbers_from_other_papers_say_so():
    rows = numbers.table1("resnet18", "cifar10")
    published = {name for name, row in rows.items() if row.source == "method's own paper"}
    assert published == {"esam-published", "saf-published", "mesa-published", "ae-sam-published"}


def test_what_the_paper_does_not_have_is_refused_with_what_it_has():
    with pytest.raises(UserError, match=r"no resnet8 on cifar10 in Table 1. It has: resnet18, wrn28_10"):
        numbers.table1("resnet8", "cifar10")
    with pytest.raises(UserError, match="an ablation on fashion-mini"):
        numbers.ablation("fashion-mini")


def test_one_experiment_links_the_two_parameter_studies():
    one, other = numbers.alpha()[numbers.GAMMA_STUDY_ALPHA], numbers.gamma()[numbers.ALPHA_STUDY_GAMMA]
    assert (one.accuracy, one.samples, one.ais) == (other.accuracy, other.samples, other.ais)


@pytest.mark.parametrize(("model", "data"), numbers.PAIRS)
def test_every_shipped_recipe_is_the_papers_setting(model, data):
    rows = numbers.table1(model, data)
    for method in ("sgd", "sam", "sam-5", "sam-10", "looksam-5", "esam", "saf", "vsam"):
        assert find(method, "seed=2", name=f"{data}-{model}") == rows[method]


def test_the_shipped_recipes_expect_the_number_that_the_paper_reports():
    from vsam.lab.recipes.load import recipe_header

    for model, data in numbers.PAIRS:
        vsam = numbers.table1(model, data)["vsam"]
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
    assert find("vsam", change) == numbers.table1("resnet18", "cifar10")["vsam"]


def test_only_a_methods_own_settings_count():
    rows = numbers.table1("resnet18", "cifar10")
    assert find("sam", "vsam.alpha=0.5") == rows["sam"]
    assert find("sgd", "rho=0.5") == rows["sgd"]
    assert find("esam", "esam.beta=0.5") is None
    assert find("sam", "rho=0.5") is None


@pytest.mark.parametrize("method", ["mesa", "ae-sam", "asam", "sam-7", "looksam-10"])
def test_methods_that_the_paper_did_not_run_have_no_reference(method):
    assert find(method) is None


def test_the_ablation_is_one_of_resnet18():
    assert find("vsam-a") == numbers.ablation("cifar10")["vsam-a"]
    assert find("vsam-a", "vsam.gamma=0.1") == numbers.ablation("cifar10")["vsam-a"]
    assert find("vsam-a", "vsam.alpha=0.2") is None
    assert find("vsam-a", name="cifar10-wrn28-10") is None


def test_a_quantized_run_has_no_reference():
    assert find("vsam", 'quantize={checkpoint="none"}') is None
    lsq = load_recipe("cifar10-resnet18-lsq", changes=("method=vsam",))
    assert numbers.reference(lsq, "vsam") is None


def test_the_studies_of_alpha_and_gamma_find_their_rows():
    def of(label, *changes, name="cifar100-wrn28-10"):
        return numbers.reference(recipe(*changes, name=name), label)

    assert of("vsam-alpha-0.1", "vsam.alpha=0.1", "vsam.gamma=0.8") == numbers.alpha()[0.1]
    assert of("vsam-alpha-0.1-gamma-0.8", "vsam.alpha=0.1", "vsam.gamma=0.8") == numbers.alpha()[0.1]
    assert of("vsam-gamma-0.8", "vsam.gamma=0.8") == numbers.alpha()[0.13]
    assert of("vsam-gamma-0.9") == numbers.gamma()[0.9]
    assert of("vsam-gamma-0.6", "vsam.gamma=0.6") == numbers.gamma()[0.6]
    assert of("vsam-alpha-0.1", "vsam.alpha=0.1") is None, "the paper's γ was 0.8"
    assert of("vsam-alpha-0.1", "vsam.alpha=0.2", "vsam.gamma=0.8") is None, "the label must be true"
    assert of("vsam-alpha-0.1-gamma-0.9", "vsam.alpha=0.1", "vsam.gamma=0.8") is None
    assert of("vsam-alpha-0.1-noisy", "vsam.alpha=0.1", "vsam.gamma=0.8") is None
    assert of("vsam-alpha-0.3", "vsam.alpha=0.3", "vsam.gamma=0.8") is None, "the paper has no such row"
    assert of("vsam-gamma-0.6", "vsam.gamma=0.6", "vsam.alpha=0.1") is None
    assert of("vsam-alpha-0.1", "vsam.alpha=0.1", "vsam.gamma=0.8", "method=vsam-a") is None
    assert of("vsam-alpha-0.1", "vsam.gamma=0.8", name="cifar10-wrn28-10") is None
    assert of("sam", "vsam.alpha=0.1", "method=sam") == numbers.table1("wrn28-10", "cifar100")["sam"]


def test_a_label_that_is_not_the_recipes_has_no_reference():
    assert numbers.reference(recipe("method=vsam"), "sam") is None
    assert numbers.reference(recipe("method=esam"), "esam-published") is None
