"""The report of a comparison with known figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from formats.comparison import Comparison
from stages.report import report
from tests.stages.report.material import ARMS, Tables, comparison

# Two seeds, 0.02 apart: deviation 0.02 / sqrt(2), the interval reaches 12.706 times 0.01 (Student's
# t of one degree of freedom) to both sides. Differences are the same with both seeds: no spread at all.
LOSS = {
    "full": "1.0100 [0.8829,\u00a01.1371]",
    "random 10 %": "1.5100 [1.3829,\u00a01.6371]",
    "random 31 %": "1.3100 [1.1829,\u00a01.4371]",
    "cluster 10 %": "1.4100 [1.2829,\u00a01.5371]",
    "cluster 31 %": "1.1100 [0.9829,\u00a01.2371]",
}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = comparison(tmp_path_factory.mktemp("comparison"))
    report(folder, folder / "report.html")
    return (folder / "report.html").read_text()


@pytest.fixture(scope="module")
def tables(page: str) -> dict[str, list[list[str]]]:
    return Tables(page).tables


def test_arms_and_their_quality(tables: dict[str, list[list[str]]]) -> None:
    assert tables["Arms"][1] == ["full", "what full is", "1,000", "999", "2", "500", "10,000"]
    assert tables["Arms"][5] == [
        *("cluster 31 %", "what cluster 31 % is", "310", "309", "2", "155", "3,100")
    ]
    assert tables["Figures"][0] == ["arm", "loss", "loss, mean over kind", "loss, worst kind"]
    assert [row[:2] for row in tables["Figures"][1:]] == [list(pair) for pair in LOSS.items()]
    # the mean over groups is the overall loss, the worst group is 0.25 above it
    assert tables["Figures"][1][2:] == [LOSS["full"], "1.2600 [1.1329,\u00a01.3871]"]


def test_differences_and_verdicts(tables: dict[str, list[list[str]]], page: str) -> None:
    by_pair = {(row[0], row[1]): row[2:] for row in tables["Differences"][1:]}
    assert by_pair["cluster 31 %", "random 31 %"] == [
        *("yes", "yes", "-0.2000 [-0.2000,\u00a0-0.2000]", "118.0 %")  # 1.31 / 1.11
    ]
    assert by_pair["cluster 31 %", "full"] == [
        *("no", "no", "+0.1000 [+0.1000,\u00a0+0.1000]", "91.0 %")  # 1.01 / 1.11
    ]
    assert set(by_pair) == {
        *((arm, "full") for arm in ARMS if arm != "full"),
        *(("cluster 10 %", "random 10 %"), ("cluster 31 %", "random 31 %")),
    }
    said = Tables(page).text
    assert "cluster 31 %: better than random 31 %: loss -0.2000 (-0.2000 to -0.2000)." in said
    assert "cluster 31 %: not as good as full: loss +0.1000 (+0.1000 to +0.1000)." in said


def test_costs_savings_and_break_even(tables: dict[str, list[list[str]]]) -> None:
    # 2 h of full training of 2 epochs, 0.62 h on 31 %, 1 h of selecting: 1.38 h saved, 0.38 h net; an
    # epoch saves 0.69 h, so it pays from 2 epochs on; a second job with the same map is not needed.
    costs = {row[0]: row[1:] for row in tables["Costs"][1:]}
    assert costs["cluster 31 %"] == [
        *("0.62 h", "0.50 s", "1.00 h", "1.38 h", "0.38 h", "19.0 %", "2", "1")
    ]
    assert costs["full"] == ["2.00 h", "0.50 s", "0 s", "–", "–", "–", "–", "–"]


def test_figures_at_the_top(page: str) -> None:
    text = Tables(page).text
    for label, value in (
        ("All rows", "1.0100loss, 1,000 rows"),
        ("Best subset: cluster 31 %", "1.1100loss, 310 rows"),
        ("Kept of full quality", "91.0 %cluster 31 %"),
        ("Net saving", "19.0 %0.38 h, selecting counted"),
    ):
        assert label + value in text
    assert "each with 2 seeds and an equal budget of rows" in text


def test_groups_and_the_learning_curve(tables: dict[str, list[list[str]]], page: str) -> None:
    assert tables["Loss by kind"][0] == ["kind", "examples", *ARMS]
    assert tables["Loss by kind"][2][:3] == ["b", "4", "1.2600 ± 0.0141"]
    assert "Loss by number of rows" in page
    assert page.count("<figure>") == 6  # quality, two differences, groups, curve, time


def test_one_fraction_is_no_curve(tmp_path: Path) -> None:
    arms = {"full": ARMS["full"], "cluster": ARMS["cluster 31 %"]}
    report(comparison(tmp_path, arms), tmp_path / "r.html")
    made = (tmp_path / "r.html").read_text()
    assert 'id="curve"' not in made
    assert 'href="#curve"' not in made


def test_the_same_comparison_gives_the_same_bytes(tmp_path: Path, page: str) -> None:
    report(comparison(tmp_path) / "comparison.json", tmp_path / "r.html")
    again = (tmp_path / "r.html").read_text()
    where = Comparison.open(tmp_path).path
    folder = page[page.index('<span class="facts">') + 20 :]
    assert again.replace(str(where), "") == page.replace(folder[: folder.index("<")], "")


def test_the_short_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arms = {"full": ARMS["full"], "random": ARMS["random 31 %"], "cluster": ARMS["cluster 31 %"]}
    report(comparison(tmp_path, arms), "-", form="md")
    assert capsys.readouterr().out == (
        "<!-- cluster-cli report -->\n"
        "### Comparison of 3 arms\n"
        "\n"
        "The same model was trained on 3 choices of rows (full, random, cluster), each with 2 seeds and "
        "an equal budget of rows, and evaluated on the same rows, none of which was trained on. The "
        "deciding figure is loss: lower is better, and up to 1 % worse than training on everything "
        "counts as good. Intervals are Student's 95 % over seeds.\n"
        "\n"
        "| figure | value |  |\n"
        "| --- | ---: | --- |\n"
        "| All rows | 1.0100 | loss, 1,000 rows |\n"
        "| Best subset: cluster | 1.1100 | loss, 310 rows |\n"
        "| Kept of full quality | 91.0 % | cluster |\n"
        "| Net saving | 19.0 % | 0.38 h, selecting counted |\n"
        "\n"
        "- random: not as good as full: loss +0.3000 (+0.3000 to +0.3000).\n"
        "- cluster: not as good as full: loss +0.1000 (+0.1000 to +0.1000).\n"
        "- cluster: better than random: loss -0.2000 (-0.2000 to -0.2000).\n"
        "- cluster: it paid: 1.38 h of training saved, 1.00 h spent on selecting, 0.38 h won.\n"
        "\n"
        "| arm | rows | loss | of full | against random | training | selecting | net saving |\n"
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n"
        "| full | 1,000 | 1.0100 \\[0.8829, 1.1371\\] | – | – | 2.00 h | 0 s | – |\n"
        "| random | 310 | 1.3100 \\[1.1829, 1.4371\\] | 77.1 % | – | 0.62 h | 0 s | 69.0 % |\n"
        "| cluster | 310 | 1.1100 \\[0.9829, 1.2371\\] | 91.0 % | -0.2000 \\[-0.2000, -0.2000\\] | 0.62 h "
        "| 1.00 h | 19.0 % |\n"
    )
