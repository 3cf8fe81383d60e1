"""Items that nearly repeat each other are one cluster: in intervals, ranks, labels and comparisons alike."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from written_run import Run

import coeval as api
from coeval.analysis.breakdown import breakdown
from coeval.analysis.comparison.paired_difference import PairedScores, paired_difference
from coeval.analysis.intervals import mean_over_strata
from coeval.analysis.readers.run_reader import RunReader
from coeval.analysis.scores import label_accuracies, student_scores

STUDENTS, JUDGES, GROUPS, EACH = ("a", "b", "c"), ("j", "k"), 12, 4
LEVELS = ("Low", "Medium", "High")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Twelve prompts, each asked four times in nearly the same words, and scored and labelled alike."""
    made = Run(tmp_path_factory.mktemp("repeated") / "run")
    drawn = random.Random(4)
    words = [f"word{n}" for n in range(300)]
    for group in range(GROUPS):
        prompt = " ".join(drawn.choices(words, k=25))
        level = {name: drawn.randrange(3) for name in STUDENTS}
        label = {name: drawn.random() < 0.6 for name in STUDENTS}
        for turn in range(EACH):
            n = 1 + turn * GROUPS + group
            made.datapoint(n, prompt=f"{prompt} {'please' * turn}", sampled_target_attributes={"tone": "yes"})
            for name in STUDENTS:
                made.response(n, name)
                for judge in JUDGES:
                    made.evaluation(n, name, judge, {"f": LEVELS[level[name]]})
                said = "yes" if label[name] else "no"
                made.evaluation(
                    n,
                    name,
                    "exact_match",
                    {},
                    label_scores={"tone": {"expected": "yes", "predicted": said, "match": label[name]}},
                )
    return made


@pytest.fixture(scope="module")
def measures(run: Run) -> dict[str, Any]:
    return api.open_run(run.folder).measures()


def of_groups(run: Run, student: str) -> list[float]:
    """Its score in each of the twelve."""
    with RunReader(run.folder) as reader:
        rows = reader.rows(
            "SELECT item, avg(value) FROM scores WHERE model = ? GROUP BY item ORDER BY item", [student]
        )
    return [value for _, value in rows][:GROUPS]


def test_the_finder_sees_them(run: Run, measures: dict[str, Any]) -> None:
    assert measures["coverage"]["haiku"]["near_duplicates"] == GROUPS * (EACH - 1)
    with RunReader(run.folder) as reader:
        names = [run.datapoint_id(n) for n in range(1, 1 + GROUPS * EACH)]
        clusters = reader.clusters_of(names)
    assert clusters is not None
    assert len(set(clusters.tolist())) == GROUPS


def test_every_mean_has_the_interval_of_as_many_independent_items(run: Run, measures: dict[str, Any]) -> None:
    for name in STUDENTS:
        expected = mean_over_strata([of_groups(run, name)])
        found = measures["students"][name]
        bounds = pytest.approx([expected.low, expected.high], abs=1e-9)
        assert found["headline"] == pytest.approx(expected.mean)
        for path in (["headline"], ["overall"], ["by_task", "haiku"], ["by_judge", "j"], ["by_aspect", "f"]):
            value: Any = found["ci95"]
            for part in path:
                value = value[part]
            assert value == bounds, path
        assert found["n"]["headline"] == GROUPS * EACH
    with RunReader(run.folder) as reader:
        scores = {one.student: one for one in student_scores(reader) if one.task is None}
        parts = {one.student: one for one in breakdown(reader, "judge") if one.part == "j"}
    for name in STUDENTS:
        shown = measures["students"][name]["ci95"]["headline"]
        assert [scores[name].low, scores[name].high] == pytest.approx(shown)
        assert [parts[name].low, parts[name].high] == pytest.approx(shown)
        assert scores[name].n == parts[name].n == GROUPS * EACH


def test_every_pair_is_tested_as_on_so_many_items(run: Run, measures: dict[str, Any]) -> None:
    for pair, found in measures["ranking"]["differences"].items():
        a, b = (np.array(of_groups(run, name)) for name in pair.split("|"))
        expected = paired_difference([PairedScores(a, b, np.ones(GROUPS))], family=3)
        assert found["difference"] == pytest.approx(expected.difference)
        assert found["ci95"]["difference"] == pytest.approx([expected.low, expected.high])
        assert found["p"] == pytest.approx(expected.p)
        assert found["minimum_detectable"] == pytest.approx(expected.minimum_detectable)
        assert found["n"]["difference"] == GROUPS * EACH


def test_the_error_of_a_difference_knows_it(run: Run, measures: dict[str, Any]) -> None:
    scores = [np.array(of_groups(run, name)) for name in STUDENTS]
    squares = [(one - other).var(ddof=1) / GROUPS for n, one in enumerate(scores) for other in scores[:n]]
    assert measures["next"][0]["difference"] == pytest.approx(np.sqrt(np.mean(squares)))


def test_labels_and_comparisons_count_groups(run: Run, measures: dict[str, Any]) -> None:
    found = measures["labels"]["haiku"]["tone"]
    with RunReader(run.folder) as reader:
        shown = {one.student: (one.low, one.high) for one in label_accuracies(reader)}
    for name in STUDENTS:
        low, high = found["students"][name]["ci95"]["accuracy"]
        assert high - low > 0.3, "twelve answers, and not forty-eight"
        assert shown[name] == pytest.approx((low, high))
    report = api.compare(run.folder)
    for one in report.comparisons:
        if one.task == "haiku" and one.metric == "score":
            pair = measures["ranking"]["differences"][f"{one.a}|{one.b}"]
            assert one.p == pytest.approx(pair["p"])
            assert one.ci95 == pytest.approx(tuple(pair["ci95"]["difference"]))


def test_agreement_of_judges_counts_groups(tmp_path: Path) -> None:
    """The same scores on prompts that are unlike each other have narrower intervals."""
    widths = []
    for name, again in (("alike", True), ("unlike", False)):
        made, drawn = Run(tmp_path / name), random.Random(1)
        words = [f"word{n}" for n in range(300)]
        for n in range(1, 81):
            if n % EACH == 1 or not again:
                prompt = " ".join(drawn.choices(words, k=25))
            made.datapoint(n, prompt=prompt)
            made.response(n, "a")
            group = random.Random((n - 1) // EACH)
            for judge in JUDGES:
                made.evaluation(n, "a", judge, {"f": group.choice(LEVELS)})
        low, high = api.open_run(made.folder).measures()["agreement"]["j|k"]["ci95"]["wpa"]
        widths.append(high - low)
    assert widths[0] > 1.5 * widths[1]
