"""The tables: our numbers, the paper's beside them only where the setting is the paper's, and the scale in words."""

from dataclasses import replace

import pytest

from lab.helpers import make_row
from lab.report.made import make_comparison, make_run
from lab.report.shared import EVIL, read_groups, rename
from vsam.lab.paper.numbers import Published
from vsam.lab.report.page.page import make_page
from vsam.lab.report.page.results import published_numbers
from vsam.lab.report.paper_tables import to_latex, to_markdown
from vsam.lab.report.scale import describe_scale, is_small, scale_line


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return read_groups(make_comparison(tmp_path_factory.mktemp("small")))[0][0]


@pytest.fixture(scope="module")
def papers(tmp_path_factory):
    folder = make_comparison(
        tmp_path_factory.mktemp("papers"), methods=("sgd", "vsam"), recipe="cifar10-resnet18", epochs=200
    )
    make_run(folder / "other", "sam", recipe="cifar10-resnet18", epochs=200, changes=("rho=0.1",))
    return read_groups(folder)[0][0]


def html_of(group):
    return make_page([group], []).partition("<h3>Results</h3>")[2].partition("</table>")[0]


def test_small_runs_have_no_numbers_of_the_paper(small):
    assert published_numbers(small) == {}
    assert "paper" not in html_of(small)
    assert "has no numbers for the setting" in make_page([small], [])


def test_the_papers_numbers_stand_apart_and_only_where_the_setting_is_its(papers):
    assert set(published_numbers(papers)) == {"sgd", "vsam"}
    html = html_of(papers)
    assert "the paper’s numbers, not ours" in html
    assert "<td>96.64 ± 0.12</td><td>23,579</td><td>2,492</td><td>1.40</td></tr>" in html
    assert html.count("<td>–</td><td>–</td><td>–</td><td>–</td></tr>") == 1


def test_one_seed_has_no_deviation(tmp_path):
    [group], _ = read_groups(make_run(tmp_path / "run", accuracy=51.234, best=52.0))
    assert "<td>51.23</td><td>52.00</td>" in html_of(group)
    assert "One seed" in html_of(group)


def test_a_speed_is_marked_by_whom_it_was_timed_with(small):
    sam = next(row for row in small.rows if row.label == "sam")
    timed = replace(sam, ais_ratio_to_sam=1.46, quartiles_to_sam=(1.4, 1.5), speed_to_sgd=0.72, quartiles=None)
    html = html_of(replace(small, rows=(timed,)))
    assert "<td>1.46</td><td>~0.72</td>" in html


def test_the_scale_is_said_plainly(small):
    assert scale_line(small) == (
        "75,290 parameters, 2,000 training images, 12 steps, 3 methods × 2 seeds – small scale"
    )
    facts = dict(describe_scale(small))
    assert facts["Images"] == "cifar10: 2,000 of 50,000 for training, 2,000 for testing"
    assert facts["Training"] == "3 epochs, 12 steps of 64 images"
    assert facts["Runs"] == "6 finished: 3 methods × 2 seeds"
    assert facts["Time"] == "75.0 seconds of training on CPU Made Up with 2 threads"


def test_wrong_labels_quantization_and_other_hardware_are_said(tmp_path):
    changes = ("data.noise=0.3", "quantize.checkpoint=none")
    make_run(tmp_path / "a", seed=0, changes=changes)
    make_run(tmp_path / "b", seed=1, changes=changes, environment={"device": "GPU"})
    make_run(tmp_path / "c", seed=2, changes=changes, finished=False)
    [group], _ = read_groups(tmp_path)
    facts = dict(describe_scale(group))
    assert facts["Images"].endswith("30% of the training labels are wrong")
    assert facts["Network"].endswith("quantized to W4A4")
    assert facts["Runs"] == "2 finished: 1 method × 2 seeds; 1 unfinished"
    assert facts["Time"].endswith("speeds on different hardware are not comparable")


def test_small_is_what_is_smaller_than_the_papers_smallest(small, papers, tmp_path):
    assert is_small(small)
    assert is_small(papers)  # 800 steps
    [whole], _ = read_groups(make_run(tmp_path / "run", recipe="cifar10-resnet18", epochs=200, steps=78_200))
    assert not is_small(whole)


def test_own_images_have_no_known_size(tmp_path):
    [group], _ = read_groups(make_run(tmp_path / "run", changes=("data={name='folder:/pictures'}",)))
    assert dict(describe_scale(group))["Network"] == "resnet8"
    assert is_small(group)


def test_tables_for_papers_hold_ours_and_apart_the_papers(papers):
    published = published_numbers(papers)
    markdown, latex = to_markdown(papers.rows, published), to_latex(papers.rows, published)
    row = papers.rows[0]
    assert f"| sgd (n = {row.seeds}) | {row.accuracy:.2f} ± {row.accuracy_std:.2f} |" in markdown
    assert "The paper's numbers for the same setting, not ours" in markdown
    assert "| vsam | 96.64 ± 0.12 | 23,579 | 2,492 | 1.40 |" in markdown
    assert r"vsam & 96.64 $\pm$ 0.12 & 23,579 & 2,492 & 1.40 \\" in latex
    assert latex.count(r"\begin{tabular}") == latex.count(r"\end{tabular}") == 2


@pytest.mark.parametrize("label", ["[1em] name", "*name"])
def test_a_name_is_no_argument_of_the_row_before(label):
    row = make_row(label=label)
    latex = to_latex([row], {label: Published(96.6)})
    assert latex.count(f"\\midrule\n{{}}{label} &") == 2


def test_names_that_would_turn_text_around_are_made_harmless(tmp_path):
    [group], _ = read_groups(make_run(tmp_path / "run", label="a\u202eb\u2066c\u200fd"))
    assert group.labels == ["a�b�c�d"]


def test_names_stand_for_themselves_in_tables_for_papers(tmp_path):
    rename(make_run(tmp_path / "run"), EVIL)
    [group], _ = read_groups(tmp_path)
    row = next(line for line in to_markdown(group.rows, {}).splitlines() if "script" in line)
    assert row.startswith(r"| &lt;/script&gt;&lt;script&gt;")
    assert r"\|\_ |" in row
    row = next(line for line in to_latex(group.rows, {}).splitlines() if "script" in line)
    assert r"\&amp;</b> \$x\_1\$ \%\{x\}" in row
