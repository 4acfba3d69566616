"""The page and the short text: escaping, the page's own policy, and what sorts by what."""

from __future__ import annotations

import base64
import hashlib
import re

from stages.report import markdown, page
from stages.report.document import Card, Cards, Chart, Figure, Report, Section, Table, Text
from tests.stages.report.material import Tables

EVIL = '<script>alert("1")</script>'


def report(text: str) -> Report:
    """A report that says one text wherever a text can stand."""
    table = Table(
        text, (text, "n"), [(text, ("1.5 h", 5400.0)), (text, ("–", float("-inf")))], note=text
    )
    blocks = (
        Text(text, warning=True),
        Chart(text, "<svg></svg>", [(1, text)], text),
        Chart("other", "<svg></svg>"),
        table,
        Cards(text, [Card(text, text, [(text, text)], 0.25)], text),
    )
    return Report(
        text, text, [Figure(text, text, text)], [text], [Section("s", text, blocks)], [table]
    )


def test_every_text_is_escaped() -> None:
    made = page.page(report(EVIL))
    assert made.count("<script") == 1  # the page's own, at its end
    assert "alert(" not in made.replace("alert(&quot;1&quot;)", "")
    # head 9, paragraph 1, chart 3, table 5, cards 6
    assert Tables(made).text.count(EVIL) == 24


def test_the_policy_names_style_and_script_and_allows_nothing_else() -> None:
    made = page.page(report("x"))
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', made)
    assert policy is not None
    for tag in ("style", "script"):
        found = re.search(f"<{tag}>(.*?)</{tag}>", made, re.DOTALL)
        assert found is not None
        hashed = base64.b64encode(hashlib.sha256(found[1].encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{hashed}'" in policy[1]
    assert policy[1].startswith("default-src 'none'; ")
    assert not re.search(r'(?:src|href)="(?!#)', made)  # nothing is fetched, links stay on the page
    assert not re.search(r'style="|url\(|@import', made)


def test_charts_beside_one_another_share_a_row() -> None:
    made = page.page(report("x"))
    assert made.count('<div class="charts">') == 1
    inside = made[made.index('<div class="charts">') :]
    assert inside[: inside.index("</div>")].count("<figure>") == 2


def test_cells_sort_by_their_numbers() -> None:
    made = page.page(report("x"))
    assert '<td class="num" data-v="5400">1.5 h</td>' in made
    assert '<td class="num" data-v="-1e+308">–</td>' in made  # no number sorts first


def test_code_is_set_like_code() -> None:
    section = Section("s", "t", [Text("type `cluster-cli run <x>`")])
    made = page.page(Report("t", "l", [], [], [section]))
    assert "<p>type <code>cluster-cli run &lt;x&gt;</code></p>" in made


def test_the_short_text_says_nothing_that_is_markup() -> None:
    made = markdown.markdown(report("a|b_c*<img>`\n# x"))
    shown = r"a\|b\_c\*&lt;img&gt;\` \# x"
    assert made == (
        f"<!-- cluster-cli report -->\n### {shown}\n\n{shown}\n\n"
        f"| figure | value |  |\n| --- | ---: | --- |\n| {shown} | {shown} | {shown} |\n\n"
        f"- {shown}\n\n"
        f"| {shown} | n |\n| --- | ---: |\n| {shown} | 1.5 h |\n| {shown} | – |\n"
    )
