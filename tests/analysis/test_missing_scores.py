"""Failures are no coin's toss: a student that fails where it would score low looks better than it is. What is
missing is therefore counted as 0 and as 1 too, and where that turns the order, it is said."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from cli.invoked import Command
from made_rows import student_row
from written_run import Run

import coeval as api
from coeval.analysis.measures.compute import compute_measures
from coeval.analysis.measures.robust_set import RobustOptions
from coeval.analysis.measures.run_measures import measures_to_json
from coeval.analysis.measures.score_grid import GridItems, ScoreGrid, TaskDesign
from coeval.analysis.measures.student_measures import (
    measure_students,
    sum_student_item_scores,
    unadjusted_scores,
)
from coeval.analysis.panel.bias_ledger import (
    AdjustedBias,
    Bias,
    FamilyBias,
    adjust_biases_by_judge,
    judge_length_contrast_sentences,
    judge_pair_contrasts,
)
from coeval.analysis.panel.panel_reading import (
    estimate_biases_by_judge,
    estimate_judge_residuals,
    family_and_self_biases,
    model_families,
    model_family,
)
from coeval.analysis.readers.run_reader import RunReader
from coeval.analysis.run_results import missing_scores_may_reorder_sentences
from coeval.core.html_table import MeasureRow
from evidence.leaning import (
    KIN_SCATTER,
    KIND,
    LONG,
    SIX,
    SIX_JUDGES,
    STRICT,
    STRICT_AND_MILD,
    THREE,
    VAIN,
    Planted,
    Scatter,
    World,
    contrasts,
    favours,
    named,
    places_named,
    simulate,
)
from evidence.planted import robust_false

NEAR = 1e-9
LEVELS = ("Low", "Medium", "High")


def written(folder: Path, levels: Mapping[str, Sequence[int | None]], failed: bool) -> Run:
    """Students' levels item by item, by two judges; None is an answer that failed, or is not there."""
    run = Run(folder)
    for student, of in levels.items():
        for n, level in enumerate(of, start=1):
            run.datapoint(n)
            if level is not None:
                run.response(n, student)
                for judge in ("j", "k"):
                    run.evaluation(n, student, judge, {"plot": LEVELS[level]})
            elif failed:
                run.response(n, student, response="", status="failed", error={"kind": "timeout"})
    return run


FAILING: Mapping[str, Sequence[int | None]] = {
    "ann": [2] * 8 + [None] * 2,
    "ben": [2] * 9 + [1],
    "cem": [0] * 10,
}


@pytest.mark.process
@pytest.mark.parametrize("failed", [True, False], ids=["failed", "missing"])
def test_bounds_stand_beside_every_score_and_a_lead_that_rests_on_failures_is_told(
    failed: bool, tmp_path: Path, coeval: Command
) -> None:
    run = written(tmp_path / "run", FAILING, failed)
    reported = (
        "Failed or missing scores could change who leads: counted as 0 or 100, they put ann between 80.0 and "
        "100.0 and ben at 95.7."
    )
    measures = api.open_run(run.folder).measures()
    assert reported in measures["findings"]
    student = measures["students"]["ann"]
    assert student["bounds"] == student["bounds_by_task"]["haiku"] == pytest.approx([0.8, 1.0])
    results = api.open_run(run.folder).results()
    assert [(s.student, s.least, s.most) for s in results.students if s.task is None] == [
        ("ann", pytest.approx(0.8), 1.0),
        ("ben", pytest.approx(0.957, abs=5e-4), pytest.approx(0.957, abs=5e-4)),
        ("cem", 0.0, 0.0),
    ]
    assert reported in results._repr_html_()
    for command, bounds in (("results", "80.0–100.0"), ("analyze", "80.0 100.0")):
        shown = coeval(command, "--run", run.folder).out
        assert " ".join(reported.split()) in " ".join(shown.split())
        assert "bounds" in shown
        [row] = [line for line in shown.splitlines() if line.strip().startswith("ann")][-1:]
        assert bounds in " ".join(row.split())
    found = json.loads(coeval("results", "--run", run.folder, "--json").out)["students"][0]
    assert (found["least"], found["most"]) == (pytest.approx(0.8), 1.0)


@pytest.mark.process
def test_label_accuracy_has_bounds_too(tmp_path: Path, coeval: Command) -> None:
    run = Run(tmp_path / "run")
    for student, rights in (("ann", [True] * 8 + [None] * 2), ("ben", [True] * 9 + [False])):
        for n, right in enumerate(rights, start=1):
            run.datapoint(n)
            if right is not None:
                run.response(n, student)
                said = {"expected": "strict", "predicted": "strict" if right else "free", "match": right}
                run.evaluation(n, student, "exact_match", {}, label_scores={"form": said})
            else:
                run.response(n, student, response="", status="failed", error={"kind": "timeout"})
    reported = (
        "Failed or missing answers could change who leads in haiku (form): counted as wrong or right, they "
        "put ann between 80.0 and 100.0 and ben at 90.0."
    )
    measures = api.open_run(run.folder).measures()
    assert reported in measures["findings"]
    found = measures["labels"]["haiku"]["form"]["students"]
    assert found["ann"]["bounds"] == pytest.approx([0.8, 1.0])
    labels = api.open_run(run.folder).results().labels
    assert [(one.student, one.least, one.most) for one in labels] == [("ann", 0.8, 1.0), ("ben", 0.9, 0.9)]
    for command, bounds in (("results", ["80.0–100.0"]), ("analyze", ["80.0", "100.0"])):
        shown = coeval(command, "--run", run.folder).out
        assert " ".join(reported.split()) in " ".join(shown.split())
        [ann, ben] = [line.split() for line in shown.splitlines() if line.startswith("haiku  form")]
        assert [name for name in ann[-3:] if name in bounds] == bounds
        assert ben[-3:].count("–") == len(bounds)


@pytest.mark.process
def test_where_nothing_is_missing_there_are_no_bounds_to_tell(tmp_path: Path, coeval: Command) -> None:
    run = written(tmp_path / "run", {"ann": [2] * 9 + [1], "ben": [1] * 10}, failed=True)
    for command in ("results", "analyze"):
        shown = coeval(command, "--run", run.folder).out
        assert "bounds" not in shown
        assert "could change" not in shown


def test_a_judge_who_has_scored_nobody_yet_moves_no_bounds(tmp_path: Path) -> None:
    run = written(tmp_path / "run", {"ann": [2, 1], "ben": [1, 1]}, failed=True)
    run.evaluation(1, "ann", "late", {}, status="failed", error={"kind": "timeout"})
    [ann, _] = [s for s in api.open_run(run.folder).results().students if s.task is None]
    assert (ann.least, ann.most) == (0.75, 0.75)


def score(name: str, mean: float, least: float, most: float) -> MeasureRow:
    low, high = mean - 0.03, mean + 0.03
    return student_row(name, None, mean, low, high, 100, 100, 0, least=least, most=most)


def test_who_may_change_places_is_told_where_bounds_overlap_by_more_than_is_shown() -> None:
    tied = [score("ann", 0.9, 0.896, 0.901), score("ben", 0.899, 0.899, 0.899)]
    assert list(missing_scores_may_reorder_sentences(tied)) == [], "less than a point"
    behind = [score("ann", 0.9, 0.9, 0.9), score("ben", 0.6, 0.5, 0.8), score("cem", 0.5, 0.4, 0.7)]
    assert list(missing_scores_may_reorder_sentences(behind)) == [
        "Failed or missing scores could change the order of ben, cem: counted as 0 or 100, they put ben "
        "between 50.0 and 80.0 and cem between 40.0 and 70.0."
    ]
    leading = [score("zoe", 0.95, 0.7, 0.96), *behind]
    assert len(list(missing_scores_may_reorder_sentences([score("zoe", 0.95, 0.3, 0.96), *behind]))) == 1, (
        "all may lead"
    )
    assert (
        list(missing_scores_may_reorder_sentences(leading))[1]
        == "They could also change the order of ben, cem."
    )


def simulated(random: np.random.Generator, items: int = 100, judges: int = 3) -> ScoreGrid:
    """Three students who are alike; the first fails a fifth of the items, those that are hardest for it."""
    hard = random.normal(size=items)
    quality = 1.8 - hard + random.normal(0, 0.5, (3, items))
    levels = np.digitize(quality[..., None] + random.normal(0, 0.3, (3, items, judges)), [0.0, 1.0])
    levels[0, np.argsort(quality[0])[: items // 5]] = -1
    named = tuple(f"judge-{at}" for at in range(judges))
    return ScoreGrid(
        item=np.tile(np.arange(items), 3),
        student=np.repeat(np.arange(3), items),
        factor=np.zeros(3 * items, np.int32),
        levels=levels.reshape(-1, judges).astype(np.int8),
        items=GridItems([f"{n:03}" for n in range(items)], np.zeros(items, int), np.zeros(items, int), {}),
        students=("ann", "ben", "cem"),
        judges=named,
        factors=("plot",),
        tasks=("story",),
        teachers=("t",),
        designs=(TaskDesign(set(named), {"plot"}),),
    )


@pytest.mark.process
def test_a_student_that_fails_its_hardest_fifth_is_never_first_without_a_word() -> None:
    """Its plain mean is the highest in all of 200 runs of equals. That it need not be is told in each, unless
    it leads even with its failures at 0."""
    first = reported = leads = 0
    for seed in range(200):
        grid = simulated(np.random.default_rng(seed))
        found = measure_students(grid, unadjusted_scores(grid, sum_student_item_scores(grid)))
        means = {name: one.mean_recorded.value or 0.0 for name, one in found.items()}
        ends = {name: one.bounds or (0.0, 0.0) for name, one in found.items()}
        order = sorted(means, key=lambda name: -means[name])
        assert all(ends[name][0] - NEAR <= means[name] <= ends[name][1] + NEAR for name in order)
        first += order[0] == "ann"
        leads += order[0] == "ann" and ends["ann"][0] >= max(ends["ben"][1], ends["cem"][1])
        said = missing_scores_may_reorder_sentences([score(name, means[name], *ends[name]) for name in order])
        reported += any(one.startswith("Failed or missing scores could change who leads") for one in said)
    assert (first, reported + leads) == (200, 200)
    assert reported > 190


# Students without the scores that they gave themselves, on a run so small that it can be told by hand.


def measures(run: Run) -> dict[str, Any]:
    with RunReader(run.folder) as reader:
        return measures_to_json(compute_measures(reader).measures)


@pytest.mark.process
def test_a_kind_and_strict_panel_is_no_difference_between_students(tmp_path: Path, coeval: Command) -> None:
    """kind gives everybody High and itself too, strict everybody Low, fair says that kind is worse."""
    run = Run(tmp_path / "run")
    for n in range(1, 13):
        for student in ("kind", "strict"):
            run.judged(n, student, "kind", {"f": "High"})
            run.judged(n, student, "strict", {"f": "Low"})
            run.judged(n, student, "fair", {"f": "Medium" if student == "kind" else "High"})
    found = measures(run)
    others = found["without_own"]
    assert others["applicable"]
    assert others["judges"] == ["kind", "strict"]
    scores = {name: others["students"][name]["score"] for name in ("kind", "strict")}
    assert scores == pytest.approx({"kind": 0.375, "strict": 0.875}), "half apart, around 0.25 and 1.0"
    assert others["students"]["strict"]["score_by_task"] == pytest.approx({"haiku": 0.875})
    pair = others["ranking"]["differences"]["kind|strict"]
    assert pair["difference"] == 0.5, (
        "by fair alone, who is neither: kind and strict are no panel for each other"
    )
    assert others["ranking"]["ranges"] == {"strict": [1, 1], "kind": [2, 2]}
    printed = coeval("analyze", "students", "--run", run.folder).out
    assert "Without self-judgments" in printed
    assert found["students"]["kind"]["score"] == 0.5
    assert found["students"]["kind"]["score_by_task"] == {"haiku": 0.5}


@pytest.mark.process
def test_where_nobody_scored_itself_there_is_nothing_to_leave_out(tmp_path: Path, coeval: Command) -> None:
    run = Run(tmp_path / "run")
    for n in range(1, 5):
        run.judged(n, "a", "j", {"f": "High"})
        run.response(n, "j")
    assert not measures(run)["without_own"]["applicable"]
    assert "self-judgments" not in coeval("analyze", "--run", run.folder).out


@pytest.mark.process
def test_two_who_are_the_only_judges_have_no_order_without_own_scores(
    tmp_path: Path, coeval: Command
) -> None:
    """Each would be scored by the other: that compares the judges."""
    run = Run(tmp_path / "run")
    for n in range(1, 9):
        for student in ("kind", "strict"):
            run.judged(n, student, "kind", {"f": "High"})
            run.judged(n, student, "strict", {"f": "Low"})
    others = measures(run)["without_own"]
    assert (others["applicable"], others["judges"], others["students"]) == (False, ["kind", "strict"], {})
    assert "self-judgments" not in coeval("analyze", "--run", run.folder).out


# The robust filter, on runs so small that who stays can be told by hand.

JUDGES = ("a", "b", "c", "d")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Forty datapoints. Judges a and b always agree, c is a level off on every second datapoint, d says the
    opposite. On the last datapoint a and b say the opposite of each other."""
    made = Run(tmp_path / "run")
    for n in range(1, 41):
        for student, level in (("good", "High" if n % 4 else "Low"), ("bad", "Low" if n % 3 else "High")):
            opposite = "Low" if level == "High" else "High"
            said = {"a": level, "b": level, "c": "Medium" if n % 2 else level, "d": opposite}
            if n == 40:
                said["b"] = opposite
            for judge, score in said.items():
                made.judged(n, student, judge, {"f": score})
    return made


def robust(run: Run, **options: Any) -> dict[str, Any]:
    with RunReader(run.folder) as reader:
        measured = compute_measures(reader, options=RobustOptions(**options)).measures
    found: dict[str, Any] = measures_to_json(measured)["robust"]
    return found


@pytest.mark.process
def test_the_judges_who_agree_best_keep_the_datapoints_they_agree_on(run: Run) -> None:
    found = robust(run)
    assert found["applicable"]
    assert found["judges"] == ["a", "b"]
    assert found["teachers"] == ["t.1"]
    assert (found["datapoints"], found["of_datapoints"]) == (39, 40)
    assert found["students"]["good"]["valid_evals"] == 2 * 39
    assert found["students"]["good"]["n"]["overall"] == 39
    assert found == api.open_run(run.folder).measures()["robust"]


@pytest.mark.process
def test_a_set_that_its_own_scores_chose_tests_nothing(run: Run) -> None:
    """Teachers are chosen by how far their items happen to tell students apart, and tests on these would call
    students different who are not: see `robust_false`."""
    ranks = robust(run)["ranking"]
    assert (ranks["order"], ranks["ranges"], ranks["differences"]) == (["good", "bad"], {}, {})
    of = robust_false(40)
    assert of.everything <= 0.06 < of.robust


@pytest.mark.process
def test_fewer_than_two_ranked_judges_have_no_robust_set(tmp_path: Path) -> None:
    small = Run(tmp_path / "small")
    for n in range(1, 15):
        for judge in ("a", "b"):
            small.judged(n, "s", judge, {"f": "High" if n % 2 else "Low"})
    found = robust(small)
    assert not found["applicable"]
    assert "30 scores or more in common" in found["reason"]
    measures = api.open_run(small.folder).measures()
    assert measures["judges"]["a"]["degenerate"]
    assert measures["panel"]["krippendorff_alpha"] is None
    assert measures["agreement"]["a|b"]["spa"] == 1.0


@pytest.mark.process
def test_of_three_teachers_the_two_that_tell_most_apart_stay(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    apart = {"sharp": ("High", "Low"), "fair": ("High", "Medium"), "blunt": ("High", "High")}
    for teacher, (good, bad) in apart.items():
        made = Run(folder, teacher=teacher)
        for n in range(1, 21):
            for judge in ("a", "b"):
                made.judged(n, "good", judge, {"f": good})
                made.judged(n, "bad", judge, {"f": bad})
    found = robust(Run(folder))
    assert found["teachers"] == ["sharp", "fair"]
    assert found["datapoints"] == 40
    assert found["options"] == msgspec.to_builtins(RobustOptions())


# Judges who favour their own are named; honest ones, however strict and whomever they like, are not.

REPEATS = 60
"""Few: docs/evidence/leaning.md has the shares of a thousand."""


@pytest.mark.process
@pytest.mark.parametrize("world", [KIND, VAIN], ids=["family", "self"])
def test_a_judge_that_favours_its_own_is_named_and_honest_ones_beside_it_are_not(world: World) -> None:
    found = named(world, REPEATS)
    assert found.leaning is not None
    assert found.leaning >= 0.75
    assert found.any_honest <= 0.15


@pytest.mark.process
@pytest.mark.parametrize("world", [STRICT, KIN_SCATTER], ids=["strict", "scatter"])
def test_a_judge_that_is_strict_or_likes_some_students_favours_nobody(world: World) -> None:
    """Where all give full marks a strict judge looks as kind as the others: that is no favour."""
    assert named(world, REPEATS).any_honest <= 0.15


@pytest.mark.process
def test_three_families_are_enough_for_a_verdict() -> None:
    """Each judge is of one of them, so that a single degree of freedom is left."""
    assert all(one.p_adjusted is not None for seed in range(10) for one in favours(THREE, seed).values())
    found = named(THREE, REPEATS)
    assert found.leaning is not None
    assert found.leaning > 0.05 >= found.any_honest


def test_a_favour_is_tested_as_a_regression_of_the_cells_does_it() -> None:
    """By statsmodels, on the cells themselves: one item noise apart, t with the degrees of freedom left."""
    formula = pytest.importorskip("statsmodels.formula.api")
    pandas = pytest.importorskip("pandas")
    judges = {name: Planted(noise=0.02) for name in SIX_JUDGES}
    grid = simulate(judges, 200, 3, SIX, Scatter(0.1)).grid
    families = model_families((*SIX, *judges), {})
    seen = estimate_judge_residuals(grid)
    assert seen is not None
    student, judge = (place.ravel() for place in np.indices(seen.values.shape[1:]))
    frame = {"view": seen.values[0].ravel(), "student": student, "judge": judge}
    kin = np.array([[families[one] == families[other] for other in grid.judges] for one in grid.students])
    for place in range(len(grid.judges)):
        frame[f"kin{place}"] = (kin.ravel() & (judge == place)).astype(int)
    terms = " + ".join(f"kin{place}" for place in range(len(grid.judges)))
    fit = formula.ols(f"view ~ C(student) + C(judge) + {terms}", pandas.DataFrame(frame)).fit()
    favours = family_and_self_biases(grid, families)
    for place, name in enumerate(grid.judges):
        found = favours[name]["family"]
        assert found.p == pytest.approx(fit.pvalues[f"kin{place}"], rel=1e-6)
        slope = seen.slopes[kin[:, place], place].mean()
        assert found.value == pytest.approx(fit.params[f"kin{place}"] * slope, rel=1e-6)
        assert found.usual == pytest.approx(np.sqrt(fit.scale) * slope, rel=1e-6)


def test_of_two_families_there_is_a_figure_and_no_verdict() -> None:
    students = {"kin-1": 0.6, "kin-2": 0.5, "two-1": 0.6, "two-2": 0.5}
    judges = {"kin-judge": Planted(family=0.2), "two-judge": Planted(), "four-judge": Planted()}
    grid, _ = simulate(judges, 60, 1, students)
    found = adjust_biases_by_judge(estimate_biases_by_judge(grid, model_families((*students, *judges), {})))[
        "kin-judge"
    ].family
    assert found.value is not None
    assert found.value > 0.05
    assert (found.ci95, found.p_adjusted) == (None, None)
    assert not found.is_significant


@pytest.mark.process
def test_of_two_who_like_length_and_one_who_does_not_nobody_is_named_alone() -> None:
    found = contrasts(LONG, 1)
    assert found["kin-judge", "three-judge"].is_significant
    assert found["three-judge", "two-judge"].is_significant
    assert not found["kin-judge", "two-judge"].is_significant
    [said] = judge_length_contrast_sentences(found)
    assert said.startswith("kin-judge and two-judge score answers of twice the length ")
    assert said.endswith(" points higher than three-judge does: either side may be the biased one.")
    honest = contrasts(STRICT_AND_MILD, 1)
    assert not list(judge_length_contrast_sentences(honest))


def test_a_contrast_of_length_is_the_slope_of_the_difference() -> None:
    """That of statsmodels with a level for each student, its error clustered by item."""
    formula = pytest.importorskip("statsmodels.formula.api")
    pandas = pytest.importorskip("pandas")
    grid, lengths = simulate({"a": Planted(length=0.1), "b": Planted(0.1)}, 80, 2)
    found = judge_pair_contrasts(grid, lengths)["a", "b"]
    answers = slice(None, None, 2)  # two factors each
    apart = (grid.levels[:, 0] - grid.levels[:, 1]).reshape(-1, 2).mean(axis=1) / 2
    frame = {"y": apart, "x": np.log2(lengths[answers] + 1), "s": grid.student[answers]}
    fit = formula.ols("y ~ C(s) + x", pandas.DataFrame(frame)).fit(
        cov_type="cluster", cov_kwds={"groups": grid.item[answers]}, use_t=True
    )
    assert found.more.value == pytest.approx(fit.params["x"], rel=1e-9)
    low, high = fit.conf_int().loc["x"]
    assert found.more.low == pytest.approx(low, abs=0.005)
    assert found.more.high == pytest.approx(high, abs=0.005)
    assert found.more.n == 80


def test_p_values_are_adjusted_for_the_judges_of_whom_a_bias_can_be_told() -> None:
    ledger = {
        name: dict.fromkeys(("severity", "family", "self", "position"), bias)
        for name, bias in (
            ("a", Bias(0.1, 0.01, 0.19, 0.03)),
            ("b", Bias(0.0, -0.1, 0.1, 0.8)),
            ("c", Bias(None, None, None, None)),
        )
    }
    found = adjust_biases_by_judge(ledger)
    assert found["a"].family == FamilyBias(0.1, (0.01, 0.19), 0.06, None)
    assert found["b"].family.p_adjusted == 0.8
    assert found["c"].family == FamilyBias(None, None, None, None)


@pytest.mark.parametrize(("both", "items"), [(True, 100), (False, 250)])
def test_a_judge_that_likes_what_stands_first_is_named_and_an_honest_one_is_not(
    both: bool, items: int
) -> None:
    assert places_named(0.1, items, 100, both=both) >= 0.9
    assert places_named(0.0, items, 100, both=both) <= 0.1


@pytest.mark.process
def test_severity_is_what_the_others_give_more() -> None:
    grid, _ = simulate({"a": Planted(0.2), "b": Planted(), "c": Planted()}, 60, 1)
    ledger = estimate_biases_by_judge(grid, {})
    scores = grid.levels / 2
    expected = scores[:, 1:].mean() - scores[:, 0].mean()
    found = ledger["a"]["severity"]
    assert found.value == pytest.approx(expected, abs=1e-12)
    models = pytest.importorskip("statsmodels.api")
    difference = scores[:, 1:].mean(axis=1) - scores[:, 0]
    fit = models.OLS(difference, np.ones(len(difference))).fit(
        cov_type="cluster", cov_kwds={"groups": grid.item, "use_correction": False}, use_t=True
    )
    error = fit.bse[0] * np.sqrt(60 / 59)
    assert found.low is not None
    assert found.value is not None
    stats = pytest.importorskip("scipy.stats")
    assert found.value - found.low == pytest.approx(stats.t.ppf(0.975, 59) * error, rel=1e-9)
    assert found.value > found.low > 0


def test_what_the_scores_cannot_tell_is_not_told() -> None:
    alone = simulate({"a": Planted()}, 30, 1)
    assert not any(bias.value for bias in estimate_biases_by_judge(alone.grid, {})["a"].values())
    assert not judge_pair_contrasts(*alone)
    related = {"one": 0.5, "two": 0.7}
    grid, lengths = simulate({"a": Planted(), "b": Planted()}, 30, 1, related)
    ledger = estimate_biases_by_judge(grid, dict.fromkeys(("one", "two", "a", "b"), "same"))
    assert ledger["a"].keys() == {"severity"}
    assert judge_pair_contrasts(grid, lengths).keys() == {("a", "b")}
    assert not judge_pair_contrasts(grid, np.full_like(lengths, 100.0))
    assert not judge_pair_contrasts(grid, np.full_like(lengths, np.nan))


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("gpt-4o-mini", "gpt"),
        ("openai/o3-mini", "gpt"),
        ("us.anthropic.claude-sonnet-4-v1:0", "claude"),
        ("meta-llama/Llama-3.1-8B", "llama"),
        ("Qwen/Qwen3-4B", "qwen"),
        ("sim-large", "sim"),
        ("mine:7b", "mine"),
        ("7b", "7b"),
    ],
)
def test_families_are_told_by_names(name: str, family: str) -> None:
    assert model_family(name) == family


@pytest.mark.parametrize(("items", "known"), [(2, False), (5, False), (6, True)])
def test_of_too_few_datapoints_nobody_is_strict(items: int, known: bool) -> None:
    grid, _ = simulate({"a": Planted(0.3), "b": Planted(), "c": Planted()}, items, 1)
    found = adjust_biases_by_judge(estimate_biases_by_judge(grid, {}))["a"].severity
    assert (found.value is not None) == (found.ci95 is not None) == known
    assert (found.p_adjusted is not None) == known


def test_judges_apart_by_the_same_everywhere_leave_no_spread_to_be_sure_by() -> None:
    grid, _ = simulate({"a": Planted(), "b": Planted()}, 12, 1)
    grid.levels[:] = [0, 1]
    found = adjust_biases_by_judge(estimate_biases_by_judge(grid, {}))["a"].severity
    assert found == AdjustedBias(None, None, None)
