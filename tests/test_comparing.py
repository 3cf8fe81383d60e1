"""``coeval.compare``: from Python what ``coeval compare`` says, as records, columns and HTML."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pandas as pd
import pytest
from cli.invoked import Command
from cli.written_output import output, verdicts
from pipeline.experiments import Lab, model, task
from written_run import Run

import coeval as api
from coeval.reports.comparison_page import comparison_page

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    models = [model("tea", "teacher", "judge"), model("ann", "student", skill=0.95)]
    models += [model("ben", "student", skill=0.2), model("cy", "student", skill=0.5)]
    lab = Lab(tmp_path_factory.mktemp("compared"), models, [task(total=30), task("saga", total=20)])
    lab.run()
    return lab


def test_it_is_what_the_command_says(lab: Lab, coeval: Command) -> None:
    shown = coeval("compare", lab.path, "--students", "ben,ann")
    requested = coeval("compare", lab.path, "--students", "ben,ann", "--json")
    for run in (lab.path, str(lab.path), api.open_run(lab.path)):
        found = api.compare(run, students=["ben", "ann"])
        assert json.loads(json.dumps(found.as_dict())) == json.loads(requested.out)
    simulated, *said = shown.out.splitlines()
    assert (simulated.startswith("simulated models"), found.simulated) == (True, True)
    assert list(found.sentences) == said[: len(found.sentences)]
    assert coeval("compare", lab.path, "--markdown").out.startswith("**simulated models")
    assert "simulated models" in found._repr_html_()
    assert found.sentences[0].startswith("ann leads ")
    assert [one.task for one in found.comparisons[:3]] == [None, "saga", "story"]
    assert found.comparisons[0].significant
    assert repr(found) == f"ComparisonReport({found.sentences[0]!r}, and 2 more)"


def test_the_page_of_several_tells_the_best_first(lab: Lab) -> None:
    found = api.compare(lab.path)
    page = comparison_page(found)
    of_two = next(one for one in found.comparisons if {one.a, one.b} == {"ann", "cy"} and one.task is None)
    assert page.lead[0].text.startswith(of_two.sentence.partition(". With ")[0])
    sure = sum(one.significant for one in found.comparisons[:3])
    [counted] = page.sections[1].sentences
    assert counted.text == f"{sure} of 3 pairwise differences are significant."
    assert len(page.lead) <= 3
    assert page.title == "Comparison of ann, cy, ben"


def test_a_page_stands_where_pairs_share_no_item_or_only_parts_are_compared(tmp_path: Path) -> None:
    run = Run(tmp_path / "run")
    for n in range(1, 21):
        run.judged(n, "a" if n <= 10 else "b", "j", {"x": "High" if n % 4 else "Medium"})
        run.judged(n, "c", "j", {"x": "Low" if n % 3 else "Medium"})
    found = api.compare(run.folder)
    assert comparison_page(found).lead[0].text.startswith("a leads ")
    parts = tuple(msgspec.structs.replace(one, family="part") for one in found.comparisons)
    page = comparison_page(msgspec.structs.replace(found, comparisons=parts))
    assert [section.anchor for section in page.sections] == ["differences", "sides"]


def test_every_difference_is_there_from_either_side(lab: Lab) -> None:
    """A page chooses the baseline among rows that are there, and computes nothing."""
    found = api.compare(lab.path)
    table = comparison_page(found).table("differences")
    assert table.chosen == {"baseline": "ann", "by": "overall"}
    assert [row[0] for row in table.chosen_rows] == ["cy", "ben"], "the best first"
    rows = {(row["row"], row["baseline"], row["by"]): row for row in table.to_flat_dicts()}
    assert len(rows) == len(table.rows) == 2 * len(found.comparisons)
    one, other = rows["ben", "ann", "overall"], rows["ann", "ben", "overall"]
    assert one["difference"] == -other["difference"]
    assert (one["difference_low"], one["difference_high"]) == (
        -other["difference_high"],
        -other["difference_low"],
    )
    assert (one["mean"], one["mean_baseline"]) == (other["mean_baseline"], other["mean"])
    assert one["p"] == other["p"]
    assert ("saga · ben", "cy", "by task") in rows
    matrix = comparison_page(found).table("pairs")
    assert [row[:2] for row in matrix.chosen_rows] == [("ann", "ben"), ("ann", "cy"), ("cy", "ben")]
    assert all(row["difference"] > 0 for row in matrix.to_flat_dicts() if row["of"] == "overall")
    two = comparison_page(api.compare(lab.path, students=["ben", "ann"]))
    assert [section.anchor for section in two.sections] == ["differences", "sides"]
    assert [row[0] for row in two.table("differences").chosen_rows] == ["overall", "saga", "story"]


def test_folders_are_named_by_the_shortest_ends_of_their_paths(tmp_path: Path) -> None:
    for name in ("x/out", "y/out"):
        output(tmp_path / name, "m", verdicts([1, 0] * 20))
    found = api.compare(tmp_path / "x" / "out", tmp_path / "y" / "out")
    assert list(found.sides) == ["x/out", "y/out"]
    page = comparison_page(found)
    assert [row["folder"] for row in page.table("sides").to_flat_dicts()] == ["x/out", "y/out"]
    assert all(str(tmp_path) not in said.text for part in page.sections for said in part.sentences)


def test_what_could_have_been_found_allows_for_all_that_are_compared(lab: Lab) -> None:
    alone = api.compare(lab.path, students=["ann", "ben"]).comparisons[0]
    [among] = [one for one in api.compare(lab.path).comparisons if one.task is None and one.b == "ben"]
    assert (among.a, among.difference, among.p) == ("ann", alone.difference, alone.p)
    assert alone.minimum_detectable is not None
    assert among.minimum_detectable is not None
    assert among.minimum_detectable > alone.minimum_detectable * 1.05


def test_columns_are_a_data_frame(lab: Lab) -> None:
    found = api.compare(lab.path)
    frame = pd.DataFrame(found.table())
    assert len(frame) == len(found.comparisons)
    assert set(zip(frame.a, frame.b, strict=True)) == {("ann", "ben"), ("ann", "cy"), ("ben", "cy")}
    for row, one in zip(frame.itertuples(), found.comparisons, strict=True):
        assert ((row.low, row.high), (row.bounds_low, row.bounds_high)) == (one.ci95, one.bounds)
        assert row.difference == one.difference


def test_a_notebook_shows_names_as_text(tmp_path: Path) -> None:
    a = output(tmp_path / "a", "<b>base</b>", verdicts([1, 0] * 20))
    b = output(tmp_path / "b", "tuned & Co", verdicts([1, 1] * 19 + [0, 1], "strict"), task="ifeval")
    with pytest.raises(api.UsageError, match="nothing to compare"):
        api.compare(a, b)
    b = output(tmp_path / "c", "tuned & Co", verdicts([1, 1] * 19 + [0]))
    found = api.compare(a, b)
    shown = found._repr_html_()
    assert "<b>" not in shown
    assert "<th>&lt;b&gt;base&lt;/b&gt;, shared</th><th>tuned &amp; Co, shared</th>" in shown
    assert "<td>ifeval</td><td>51.3</td><td>97.4</td>" in shown
    [missing] = found.missing
    assert "1 of 40 prompts lack a score" in missing
    assert "1 of 40 prompts lack a score" in shown


def test_wrong_requests_are_told_in_the_words_of_python(lab: Lab, tmp_path: Path) -> None:
    for folders, students, said in (
        ((), None, "nothing to compare: name a folder"),
        ((tmp_path / "nowhere",), None, "there is no folder"),
        ((lab.path,), "ann", r'students is a list of names; write students=\["ann"\]'),
        ((lab.path,), ["ann"], "name two students of it with students, or a second folder"),
        ((lab.path,), ["ann", "bne"], "students: bne: .* did you mean ben?"),
        ((lab.path, lab.path), ["ann", "ben", "cy"], "students names 3 for 2 folders"),
    ):
        with pytest.raises(api.UsageError, match=said):
            api.compare(*folders, students=students)
