"""Labels in the measures: accuracy, confusion and macro-F1 against scikit-learn, beside the rubric."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli.invoked import Command
from sklearn.metrics import accuracy_score, confusion_matrix, f1_score
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import proportion_confint
from written_run import Run

from coeval.analysis.measures.label_measures import macro_f1, macro_f1_bounds

KINDS = ("bill", "crash | hang", "<b>praise</b>", "never said")
NONE = "(no label)"
ITEMS = 60

Said = dict[str, list[tuple[str, str]]]


@pytest.fixture
def written(tmp_path: Path) -> tuple[Run, Said]:
    """Three students on sixty messages: what was expected, and what they said. The last kind is neither."""
    random = np.random.default_rng(5)
    run, said = Run(tmp_path / "run", task="sorting"), Said()
    for n in range(1, ITEMS + 1):
        expected = KINDS[n % 3]
        run.datapoint(n, sampled_target_attributes={"kind": expected, "tone": "calm"})
        for student, skill in (("ann", 0.85), ("ben", 0.6), ("cy", 0.3)):
            if student == "ben" and n > 50:
                continue
            right = random.random() < skill
            stated = expected if right else str(random.choice([*KINDS[:3], NONE]))
            predicted = None if stated == NONE else stated
            run.response(n, student)
            scored = {"expected": expected, "predicted": predicted, "match": predicted == expected}
            run.evaluation(n, student, "exact_match", {}, label_scores={"kind": scored})
            said.setdefault(student, []).append((expected, stated))
            if n <= 10:
                run.evaluation(n, student, "judge", {"style": "High" if n % 2 else "Low"})
    return run, said


def measured(coeval: Command, run: Run) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(coeval("analyze", "--run", run.folder, "--format", "json").out)
    return found


@pytest.mark.process
def test_figures_are_those_of_scikit_learn(written: tuple[Run, Said], coeval: Command) -> None:
    run, said = written
    labels = measured(coeval, run)["labels"]
    assert list(labels) == ["sorting"]
    assert list(labels["sorting"]) == ["kind"], "an attribute that is not a label is none here"
    for student, pairs in said.items():
        found = labels["sorting"]["kind"]["students"][student]
        expected, stated = zip(*pairs, strict=True)
        values = sorted({*expected, *stated} - {NONE})
        assert found["accuracy"] == pytest.approx(accuracy_score(expected, stated), abs=1e-12)
        assert found["macro_f1"] == pytest.approx(
            f1_score(expected, stated, labels=values, average="macro"), abs=1e-12
        )
        table = confusion_matrix(expected, stated, labels=[*values, NONE])
        assert [list(row.values()) for row in found["confusion"].values()] == table[:-1, :-1].tolist()
        assert [list(row) for row in found["confusion"].values()] == [values] * len(values)
        assert list(found["expected"].values()) == table[:-1].sum(axis=1).tolist()
        assert (found["correct"], found["none_of_the_labels"]) == (np.trace(table), table[:, -1].sum())
        n = len(pairs)
        assert (found["n"]["accuracy"], found["missing"]["accuracy"]) == (n, ITEMS - n)
        wilson = proportion_confint(found["correct"], n, method="wilson")
        assert found["ci95"]["accuracy"] == pytest.approx(list(wilson), abs=1e-9)
        low, high = found["ci95"]["macro_f1"]
        assert low < found["macro_f1"] < high


@pytest.mark.process
def test_students_are_ranked_by_exact_paired_tests(written: tuple[Run, Said], coeval: Command) -> None:
    run, said = written
    ranking = measured(coeval, run)["labels"]["sorting"]["kind"]["ranking"]
    assert ranking["order"] == ["ann", "ben", "cy"]
    right = {student: [a == b for a, b in pairs] for student, pairs in said.items()}
    p = []
    for pair in ("ann|ben", "ann|cy", "ben|cy"):
        a, b = (
            np.array(right[name][: len(right["ben"])] if "ben" in pair else right[name])
            for name in pair.split("|")
        )
        table = [[int((a & b).sum()), int((a & ~b).sum())], [int((~a & b).sum()), int((~a & ~b).sum())]]
        p.append(mcnemar(table, exact=True).pvalue)
        assert ranking["differences"][pair]["p"] == pytest.approx(p[-1], abs=1e-9)
        assert ranking["differences"][pair]["difference"] == pytest.approx(b.mean() - a.mean(), abs=1e-12)
    adjusted = multipletests(p, method="holm")[1].tolist()
    assert [one["p_adjusted"] for one in ranking["differences"].values()] == pytest.approx(adjusted)
    assert ranking["ranges"]["cy"][1] == 3


@pytest.mark.process
def test_labels_are_in_no_mean_of_the_rubric(written: tuple[Run, Said], coeval: Command) -> None:
    run, _ = written
    found = measured(coeval, run)
    assert found["units"] == 30
    assert list(found["judges"]) == ["judge"]
    assert found["students"]["ann"]["overall"] == found["students"]["cy"]["overall"] == 0.5
    assert list(found["students"]["ann"]["by_judge"]) == ["judge"]
    only = json.loads(coeval("analyze", "labels", "--run", run.folder, "--format", "json").out)
    assert only["labels"] == found["labels"]
    assert only.keys() == {"simulated", "units", "labels"}


@pytest.mark.process
def test_people_see_who_is_right_and_what_is_mistaken(written: tuple[Run, Said], coeval: Command) -> None:
    run, _ = written
    found = measured(coeval, run)["labels"]["sorting"]["kind"]["students"]["ann"]
    shown = coeval("analyze", "--run", run.folder).out
    assert found["accuracy"] > 0.9
    assert "ann leads in sorting (kind): " in " ".join(shown.split())
    assert "Label accuracy" in shown
    assert "Most frequent mistakes in sorting (kind): " in shown
    whole = coeval("analyze", "labels", "--run", run.folder).out
    first = KINDS[0]
    row = [str(count) for count in found["confusion"][first].values()]
    none = found["expected"][first] - sum(found["confusion"][first].values())
    assert [first, *row, str(none)] in [line.split() for line in whole.splitlines()]


@pytest.mark.process
def test_whose_accuracy_is_not_the_highest_is_not_said_to_have_it(tmp_path: Path, coeval: Command) -> None:
    """part answered the easy items alone, and fewer of them right than whole did."""
    run = Run(tmp_path / "run", task="sorting")
    for n in range(1, 21):
        run.datapoint(n, sampled_target_attributes={"kind": "bill"})
        for student, right in (("whole", n <= 10), ("part", n > 2)):
            if student == "whole" or n <= 10:
                said = {"expected": "bill", "predicted": "bill" if right else "crash", "match": right}
                run.response(n, student)
                run.evaluation(n, student, "exact_match", {}, label_scores={"kind": said})
    found = measured(coeval, run)["labels"]["sorting"]["kind"]
    assert found["ranking"]["order"] == ["whole", "part"]
    assert found["students"]["part"]["accuracy"] == 0.8
    shown = coeval("analyze", "--run", run.folder).out
    assert "whole (50.0) and part (80.0) are tied in sorting (kind)" in " ".join(shown.split())
    assert "right most often" not in shown
    rows = json.loads(coeval("results", "--run", run.folder, "--json").out)["labels"]
    assert [row["student"] for row in rows] == found["ranking"]["order"]


@pytest.mark.process
def test_a_right_label_has_one_interval_where_items_repeat_each_other(
    tmp_path: Path, coeval: Command
) -> None:
    run = Run(tmp_path / "run", task="sorting")
    for n in range(1, 9):
        run.datapoint(
            n, prompt="one text" if n < 4 else f"text {n}", sampled_target_attributes={"kind": "bill"}
        )
        said = {"expected": "bill", "predicted": "bill" if n < 6 else "crash", "match": n < 6}
        run.response(n, "ann")
        run.evaluation(n, "ann", "exact_match", {}, label_scores={"kind": said})
    [part] = json.loads(coeval("results", "--run", run.folder, "--by", "attribute", "--json").out)[
        "labels_by"
    ]
    found = measured(coeval, run)["labels"]["sorting"]["kind"]["students"]["ann"]
    assert found["ci95"]["recall"]["bill"] == [part["low"], part["high"]]
    assert part["low"] < proportion_confint(5, 8, method="wilson")[0]


@pytest.mark.process
def test_tables_of_others_hold_every_count_and_no_markup(written: tuple[Run, Said], coeval: Command) -> None:
    run, _ = written
    found = measured(coeval, run)["labels"]["sorting"]["kind"]["students"]
    lines = list(
        csv.DictReader(io.StringIO(coeval("analyze", "labels", "--run", run.folder, "--format", "csv").out))
    )
    cells = {(line["name"], line["measure"], line["of"]): line["value"] for line in lines}
    for student, of_student in found.items():
        assert float(cells[student, "macro_f1", "sorting / kind"]) == of_student["macro_f1"]
        for expected, row in of_student["confusion"].items():
            for stated, count in row.items():
                assert cells[student, "confusion", f"sorting / kind / {expected} / {stated}"] == str(count)
    markdown = coeval("analyze", "labels", "--run", run.folder, "--format", "markdown").out
    assert "<b>" not in markdown
    assert r"| expected | \<b\>praise\</b\> | bill | crash \| hang | no label |" in markdown
    assert f"| bill | {' | '.join(map(str, found['ann']['confusion']['bill'].values()))} |" in markdown


@pytest.mark.process
def test_many_values_are_told_by_their_mistakes(tmp_path: Path, coeval: Command) -> None:
    run = Run(tmp_path / "run", task="t")
    for n in range(1, 31):
        expected = f"kind-{n % 15:02d}"
        predicted = "kind-00" if n in (3, 18) else expected
        run.datapoint(n, sampled_target_attributes={"kind": expected})
        run.response(n, "ann")
        label = {"kind": {"expected": expected, "predicted": predicted, "match": predicted == expected}}
        run.evaluation(n, "ann", "exact_match", {}, label_scores=label)
    shown = coeval("analyze", "labels", "--run", run.folder).out
    assert ["kind-03", "kind-00", "2"] in [line.split() for line in shown.splitlines()]
    markdown = coeval("analyze", "labels", "--run", run.folder, "--format", "markdown").out
    assert "| kind-03 | kind-00 | 2 |" in markdown
    assert coeval("analyze", "--run", run.folder).out.startswith(
        "- ann states the right t (kind) in 93.3% of its answers, the only student."
    )


def test_macro_f1_counts_labels_that_occur() -> None:
    table = np.zeros((3, 4))
    table[0, 0], table[0, 1] = 6, 2
    assert macro_f1(table) == pytest.approx((12 / 14 + 0) / 2), "the second is only stated, the third neither"
    assert np.isnan(macro_f1(np.zeros((2, 3))))
    assert macro_f1_bounds(np.zeros((2, 3)), 0.0) is None


@pytest.mark.process
@pytest.mark.parametrize(("labels", "skill", "n"), [(2, 0.7, 40), (3, 0.7, 60), (3, 0.97, 20), (5, 0.8, 100)])
def test_intervals_of_macro_f1_hold_the_truth(labels: int, skill: float, n: int) -> None:
    """400 experiments with as many items of each label; what is wrong is any other label, or none."""
    random = np.random.default_rng(labels)
    given = np.full((labels, labels + 1), (1 - skill) / labels)
    np.fill_diagonal(given, skill)
    truth, held = float(macro_f1(given)), 0
    each = np.bincount(np.arange(n) % labels)
    for _ in range(400):
        table = np.stack([random.multinomial(size, row) for size, row in zip(each, given, strict=True)])
        bounds = macro_f1_bounds(table.astype(np.float64), float(macro_f1(table.astype(np.float64))))
        assert bounds is not None
        held += bounds.low <= truth <= bounds.high
    assert 0.90 <= held / 400 <= 0.995
