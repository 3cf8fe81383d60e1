"""Human labels: the draw, PPI++ beside its reference, and what labels say of judges and students."""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace
from numpy.typing import NDArray
from written_run import Run

from coeval.analysis.measures.compute import compute_run_measures
from coeval.analysis.measures.score_grid import ScoreGrid, read_score_grid
from coeval.analysis.people.calibration import (
    ALL_FACTORS,
    LabelledStratum,
    count_labels_needed,
    estimate_best_weight,
    estimate_mean_as_line_in_weight,
    estimate_powered_difference,
    estimate_powered_mean,
)
from coeval.analysis.people.label_questions import (
    ShownTexts,
    assign_answers,
    draw_answers,
    judged_factors_by_task,
    make_empty_labels,
)
from coeval.analysis.people.labelled_rows import PANEL, match_labels_to_rows
from coeval.analysis.people.people_measures import (
    PeopleMeasures,
    labels_needed_sentences,
    people_leader_sentences,
)
from coeval.analysis.readers.run_reader import RunReader
from coeval.core.errors import UsageError
from coeval.core.records import response_id
from coeval.core.scale import HIGH_MEDIUM_LOW
from coeval.store.human_labels import add_labels, judge_id_of_valid_name, read_labels

STUDENTS = ("ann", "bob", "cem")
ITEMS = 60


# --- PPI++ beside ppi-python


def sample(seed: int, n: int, others: int, lean: float, noise: float) -> tuple[NDArray[np.float64], ...]:
    """Labels, judged scores of the same answers, and those of the others."""
    rng = np.random.default_rng(seed)
    truth = rng.beta(2, 2, n + others)
    people = np.round(truth * 2) / 2
    judged = np.clip(truth + lean + noise * rng.normal(size=n + others), 0, 1)
    return people[:n], judged[:n], judged[n:]


def stratum(
    people: NDArray[np.float64], own: NDArray[np.float64], rest: NDArray[np.float64]
) -> LabelledStratum:
    judged = np.concatenate([own, rest])
    padded = np.concatenate([people, np.full(len(rest), np.nan)])
    return LabelledStratum(padded, judged, np.arange(len(judged)))


@pytest.mark.parametrize(
    ("data", "value", "weight", "error"),
    [
        ((1, 60, 340, 0.2, 0.2), 0.5219149399570336, 0.5153351849157675, 0.029348008470514438),
        ((2, 30, 370, 0.0, 0.9), 0.5166666666666667, 0.0, 0.04990732151439044),
        ((3, 120, 280, -0.3, 0.05), 0.4986248708457617, 0.7640253330589588, 0.02001916024216124),
        ((4, 12, 40, 0.1, 0.3), 0.4188178961686706, 0.6309283290504778, 0.09308304729347255),
    ],
)
def test_the_plain_case_is_that_of_ppi_python(
    data: tuple[int, int, int, float, float], value: float, weight: float, error: float
) -> None:
    """The figures are those of ppi-python 0.2.3: ``ppi_mean_pointestimate`` and ``ppi_mean_ci``."""
    one = stratum(*sample(*data))
    assert estimate_best_weight([one]) == pytest.approx(weight, abs=1e-9)
    parts = estimate_mean_as_line_in_weight([one], len(one.judged), uncorrected=True)
    assert parts.value_at(weight) == pytest.approx(value, abs=1e-9)
    assert np.sqrt(parts.variance_at(weight)) == pytest.approx(error, abs=1e-9)


@pytest.mark.parametrize("seed", range(20))
def test_judges_never_widen_what_labels_say_alone(seed: int) -> None:
    rng = np.random.default_rng(seed)
    lean, noise = rng.uniform(-0.4, 0.4), rng.uniform(0, 1)
    people, own, rest = sample(seed, int(rng.integers(5, 80)), 200, lean, noise)
    found = estimate_powered_mean([stratum(people, own, rest)], 280)
    assert np.ptp(found.bounds) <= np.ptp(found.alone_bounds)
    assert 0 <= found.bounds.low <= found.value <= found.bounds.high <= 1
    assert 0 <= found.weight <= 1


def test_perfect_judges_make_labels_go_further_and_dice_do_not() -> None:
    people, _, rest = sample(5, 40, 360, 0.0, 0.0)
    honest = estimate_powered_mean([stratum(people, people, np.round(rest * 2) / 2)], 400)
    assert honest.weight > 0.8
    assert np.ptp(honest.bounds) < 0.6 * np.ptp(honest.alone_bounds)
    dice = np.random.default_rng(0).random(400)
    thrown = estimate_powered_mean([stratum(people, dice[:40], dice[40:])], 400)
    assert thrown.weight < 0.3
    assert thrown.value == pytest.approx(people.mean(), abs=0.03)


def test_all_labels_alike_still_have_a_width() -> None:
    ones = np.ones(30)
    found = estimate_powered_mean([stratum(ones, ones, np.ones(100))], 130)
    assert (found.value, found.bounds.high) == (1.0, 1.0)
    assert 0.8 < found.bounds.low < 0.99
    parts = estimate_mean_as_line_in_weight([stratum(ones, ones, np.ones(100))], 130)
    same = estimate_powered_difference(parts, parts)
    assert same.difference == 0
    assert same.low < 0 < same.high
    assert same.p == pytest.approx(1.0)


def test_students_labelled_on_the_same_items_are_compared_on_them() -> None:
    """A hard item is hard for both, so their difference is surer than two independent ones."""
    rng = np.random.default_rng(3)
    item, few = rng.normal(size=400), np.arange(400) < 60
    both = []
    for gain in (0.0, 0.1):
        true = np.clip(0.5 + gain + 0.25 * item + 0.05 * rng.normal(size=400), 0, 1)
        judged = np.clip(true + 0.1 * rng.normal(size=400), 0, 1)
        both.append(LabelledStratum(np.where(few, true, np.nan), judged, np.arange(400)))
    first, second = (estimate_mean_as_line_in_weight([one], 400) for one in both)
    paired = estimate_powered_difference(second, first)
    assert paired.p is not None
    assert paired.p < 0.001
    apart = sum(np.ptp(estimate_powered_mean([one], 400).bounds) ** 2 for one in both) ** 0.5
    assert paired.high - paired.low < apart / 2


def test_how_many_labels_are_needed_shrinks_with_better_judges() -> None:
    people, own, rest = sample(1, 60, 940, 0.0, 0.05)
    good = count_labels_needed([stratum(people, own, rest)], 0.03)
    poor = count_labels_needed(
        [stratum(people, *np.split(np.random.default_rng(0).random(1000), [60]))], 0.03
    )
    assert good is not None
    assert poor is not None
    assert 60 < good < poor / 2
    assert count_labels_needed([stratum(people, own, rest[:40])], 0.001) is None


@pytest.mark.parametrize("value", [0.0, 0.5, 1.0])
def test_labels_that_are_all_alike_still_need_some(value: float) -> None:
    """So many as the interval itself takes for ± 3 points."""
    few = np.full(10, value)
    needed = count_labels_needed([stratum(few, few, np.full(490, value))], 0.03)
    assert needed is not None
    widths = []
    for n in (needed - 1, needed):
        labels = np.full(n, value)
        low, high = estimate_powered_mean([stratum(labels, labels, np.full(500 - n, value))], 500).bounds
        widths.append((high - low) / 2)
    assert widths[1] <= 0.03 < widths[0]


# --- A run and its draw


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three students whose second judge is generous."""
    folder = tmp_path_factory.mktemp("people") / "run"
    written = Run(folder)
    rng = np.random.default_rng(1)
    levels = ("Low", "Medium", "High")
    for n in range(1, ITEMS + 1):
        for place, student in enumerate(STUDENTS):
            true = int(np.clip(rng.integers(0, 3) + (place == 2), 0, 2))
            written.datapoint(n, prompt=f"{rng.random()} of {rng.random()}")
            written.response(n, student, response=f"quality {true}")
            for judge, more in (("j1", 0), ("j2", 1)):
                scores = {factor: levels[min(true + more, 2)] for factor in ("plot", "form")}
                written.evaluation(n, student, judge, scores)
    return folder


def grid_of(reader: RunReader) -> ScoreGrid:
    return read_score_grid(reader)


def test_a_larger_draw_begins_with_the_smaller_one_and_strata_are_even(run: Path) -> None:
    with RunReader(run) as reader:
        grid = grid_of(reader)
    factors = judged_factors_by_task(grid)
    assert factors == {"haiku": ("form", "plot")}
    small, large = draw_answers(grid, factors, 30, 0), draw_answers(grid, factors, 60, 0)
    assert [key for key, _ in small] == [key for key, _ in large[:30]]
    assert {key.student for key, _ in small[:3]} == set(STUDENTS)
    assert {how.probability for _, how in small if how} == {10 / ITEMS}
    assert {how.stratum for _, how in small if how} == {f"haiku × {student}" for student in STUDENTS}
    assert [key for key, _ in draw_answers(grid, factors, 30, 1)] != [key for key, _ in small]
    assert len(draw_answers(grid, factors, 10_000, 0)) == 3 * ITEMS
    with pytest.raises(UsageError, match="--factor rhyme: judges score form, plot"):
        judged_factors_by_task(grid, ["rhyme"])


@pytest.mark.process
def test_every_answer_is_as_likely_to_be_drawn(run: Path) -> None:
    """Over many seeds an item is drawn as often as its probability says."""
    with RunReader(run) as reader:
        grid = grid_of(reader)
    factors = judged_factors_by_task(grid)
    counts = dict.fromkeys(grid.items.ids, 0)
    for seed in range(200):
        for item in {key.item for key, _ in draw_answers(grid, factors, 60, seed)}:
            counts[item] += 1
    expected = 200 * 20 / ITEMS
    squares = sum((count - expected) ** 2 / (expected * (1 - 20 / ITEMS)) for count in counts.values())
    assert 30 < squares < 100  # χ² of 59 degrees of freedom: 0.1% to 99.9%


def test_two_people_share_the_overlap_and_split_the_rest(run: Path) -> None:
    with RunReader(run) as reader:
        grid = grid_of(reader)
    drawn = draw_answers(grid, judged_factors_by_task(grid), 50, 0)
    anna, ben = (assign_answers(drawn, ("ben", "anna"), name, 0.2) for name in ("anna", "ben"))
    assert anna[:10] == ben[:10] == drawn[:10]
    assert {key.answer for key, _ in anna} & {key.answer for key, _ in ben} == {
        key.answer for key, _ in drawn[:10]
    }
    assert {key.answer for key, _ in (*anna, *ben)} == {key.answer for key, _ in drawn}
    with pytest.raises(UsageError, match="--by cem is not among anna, ben"):
        assign_answers(drawn, ("ben", "anna"), "cem", 0.2)


def label_all(run: Path, folder: Path, people: tuple[str, ...] = ("anna",), n: int = 90) -> Path:
    """A copy of the run, whose people give each answer its true quality."""
    shutil.copytree(run, folder)
    with RunReader(folder) as reader:
        grid = grid_of(reader)
        factors = judged_factors_by_task(grid)
        drawn = draw_answers(grid, factors, n, 0)
        texts = ShownTexts(reader, {key.answer for key, _ in drawn}, grid)
        for name in people:
            labels = []
            for label in make_empty_labels(texts, drawn, factors, judge_id_of_valid_name(name)):
                shown = texts.texts_of(label.response_id)
                assert shown is not None
                level = HIGH_MEDIUM_LOW.levels[int(shown[1][-1])]
                labels.append(replace(label, level=level, value=HIGH_MEDIUM_LOW.value(level)))
            add_labels(folder, labels)
    return folder


@pytest.fixture(scope="module")
def labelled(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return label_all(run, tmp_path_factory.mktemp("labelled") / "run")


@pytest.fixture(scope="module")
def found(labelled: Path) -> PeopleMeasures:
    return people_of(labelled)


def people_of(folder: Path) -> PeopleMeasures:
    with RunReader(folder) as reader:
        found = compute_run_measures(reader).measures.people
    assert found is not None
    return found


def grow(written: Run, first: int, last: int, rng: np.random.Generator) -> None:
    """Items that judges score by their quality, 0 to 2, which the prompt and the answer end in."""
    for n in range(first, last + 1):
        written.datapoint(n, prompt=f"{rng.random()} of {rng.random()}")
        for student in ("ann", "bob"):
            true = int(rng.integers(0, 3))
            written.response(n, student, response=f"quality {true}")
            written.evaluation(n, student, "j1", {"plot": ("Low", "Medium", "High")[true]})


@pytest.mark.process
def test_items_that_came_after_the_draw_are_outside_it(tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    written = Run(tmp_path / "small")
    grow(written, 1, 20, rng)
    labelled = label_all(written.folder, tmp_path / "run", n=24)
    before = people_of(labelled)
    assert (before.later, {label.drawn.items for label in read_labels(labelled).values() if label.drawn}) == (
        0,
        {20},
    )
    grow(Run(labelled), 21, 60, rng)
    after = people_of(labelled)
    assert (after.later, after.labels) == (40, 24)
    for name, student in after.whole_scale.students.items() if after.whole_scale is not None else ():
        assert before.whole_scale is not None
        assert student.people[:3] == pytest.approx(before.whole_scale.students[name].people[:3])
    assert any(
        "40 items, or answers to them, were added after the labels were drawn" in said
        for said in people_leader_sentences(after)
    )
    label_all(labelled, tmp_path / "again", n=80, people=("ben",))
    again = people_of(tmp_path / "again")
    assert again.later == 40, "ben was asked of all, anna of 20: they have 20 in common"


@pytest.mark.process
@pytest.mark.parametrize("lacking", [range(1, 30), range(30, 50), [2, 3, 5, 7]])
def test_items_that_a_student_has_no_answer_to_came_not_after_the_draw(
    tmp_path: Path, lacking: Collection[int]
) -> None:
    rng = np.random.default_rng(9)
    written = Run(tmp_path / "run")
    grow(written, 1, 50, rng)
    for file, key in ((written.responses("bob"), "id"), (written.evaluations("j1"), "response_id")):
        lines = file.read_text().splitlines(keepends=True)
        gone = {f"{written.datapoint_id(n)}__bob" for n in lacking}
        file.write_text("".join(line for line in lines if json.loads(line)[key] not in gone))
    found = people_of(label_all(written.folder, tmp_path / "labelled", n=40))
    assert found.later == 0
    assert found.whole_scale_name == "plot", "one factor is not called all factors"
    assert found.whole_scale is not None
    judged = {name: one.judged.n for name, one in found.whole_scale.students.items()}
    assert judged == {"ann": 50, "bob": 50 - len(lacking)}


def test_pairs_of_students_on_shared_items_have_one_mean(run: Path) -> None:
    rng = np.random.default_rng(4)
    few = np.arange(40) < 12
    one, same, other = (
        estimate_mean_as_line_in_weight(
            [LabelledStratum(np.where(known, rng.random(40), np.nan), rng.random(40), np.arange(40))], 40
        )
        for known in (few, few, ~few & (np.arange(40) < 24))
    )
    assert ((one - same).degrees_of_freedom, (one - other).degrees_of_freedom) == (11, 22)


@pytest.mark.process
def test_labels_put_students_on_the_human_scale(found: PeopleMeasures) -> None:
    assert (found.labels, found.asked, found.people) == (180, 180, ("anna",))
    assert found.judges["j1"].kappa.value == pytest.approx(1.0)
    assert found.judges["j1"].bias.value == pytest.approx(0.0)
    generous = found.judges["j2"]
    assert generous.bias.value is not None
    assert generous.bias.value > 0.2
    assert generous.bias_by_level["High"].value == pytest.approx(0.0)
    assert generous.bias_by_level["Low"].value == pytest.approx(0.5)
    assert generous.confusion["Low"]["Medium"] > 0 == generous.confusion["Low"]["Low"]
    panel = found.judges[PANEL].confusion["Low"]
    assert 0 < panel["Low"] == panel["Medium"], "half way between the judges' levels is half of each"
    scale = found.scales[ALL_FACTORS]
    assert list(found.scales) == [ALL_FACTORS, "form", "plot"]
    for student in scale.students.values():
        assert student.people.value is not None
        assert student.judged.value is not None
        assert student.people.value < student.judged.value - 0.05
        assert student.labels == 30
    assert any("cem leads" in sentence for sentence in people_leader_sentences(found))
    assert found.judges[PANEL].count == 180
    [goal] = labels_needed_sentences(scale)
    assert goal.startswith("± 3 points for each student takes")


@pytest.mark.process
def test_differences_by_judges_are_those_of_the_ranking(labelled: Path) -> None:
    with RunReader(labelled) as reader:
        measures = compute_run_measures(reader).measures
    assert measures.people is not None
    pairs = measures.people.scales[ALL_FACTORS].pairs
    assert len(pairs) == 3
    for (one, other), found in pairs.items():
        assert found.people.low is not None
        assert found.people.high is not None
        assert found.is_significant == (not found.people.low <= 0 <= found.people.high), (
            "the interval belongs to p"
        )
        gap = measures.ranking.difference(one, other)
        assert gap is not None
        assert found.judged[:3] == pytest.approx((gap.swapped.difference, *gap.swapped.ci95))


@pytest.mark.process
def test_who_judges_and_agrees_is_the_same_with_labels_and_without(run: Path, tmp_path: Path) -> None:
    """People enter neither judges' agreement nor panels."""
    labelled = label_all(run, tmp_path / "run", ("anna", "ben"))
    with RunReader(run) as before, RunReader(labelled) as after:
        one, other = compute_run_measures(before).measures, compute_run_measures(after).measures
    assert one.agreement == other.agreement
    assert one.panel == other.panel
    assert one.students == other.students
    assert one.people is None
    assert other.people is not None
    agreed = other.people.agreement["human:anna", "human:ben"]
    assert (agreed.count, agreed.spa.value) == (180, 1.0)
    assert other.people.labels == 360


@pytest.mark.process
def test_what_was_picked_by_hand_or_has_changed_enters_no_estimate(
    labelled: Path, found: PeopleMeasures, tmp_path: Path
) -> None:
    folder, before = Path(shutil.copytree(labelled, tmp_path / "run")), found
    some = [label for label in read_labels(folder).values() if label.is_persons_level]
    by_hand = replace(some[0], judge_model_id=judge_id_of_valid_name("ben"), drawn=None)
    changed = replace(some[1], judge_model_id=judge_id_of_valid_name("ben"), input_hash="0")
    elsewhere = replace(some[2], judge_model_id=judge_id_of_valid_name("ben"), level="Superb")
    gone = replace(some[3], judge_model_id=judge_id_of_valid_name("ben"), response_id="x__y__z__#9")
    add_labels(folder, [by_hand, changed, elsewhere, gone])
    with (folder / "labels.jsonl").open("a") as file:
        file.write('{"judge_model_id": 5}\n["no label"]\n{"judge_model_id": "human:eve", "torn')
    after = people_of(folder)
    assert (after.hand_picked, after.stale, after.unfit, after.damaged) == (1, 2, 1, 2)
    assert after.labels == before.labels
    said = [*people_leader_sentences(after)]
    assert "1 label with a level that the scale lacks: in no estimate." in said
    assert "2 lines of labels.jsonl damaged: in no estimate." in said
    assert after.scales == before.scales
    assert after.judges == before.judges


def test_a_level_of_another_scale_is_none_of_this_one(run: Path) -> None:
    """The same words worth other values, or other words, are another question."""
    with RunReader(run) as reader:
        grid = grid_of(reader)
        [design] = grid.designs
        answer = response_id("haiku__t.1__00001", "ann")
        found = set()
        for scale in (HIGH_MEDIUM_LOW, replace(HIGH_MEDIUM_LOW, values=(0.0, 0.7, 1.0))):
            of_it = grid._replace(designs=(design._replace(scales={"plot": scale}),))
            found.add(ShownTexts(reader, {answer}, of_it).hash_texts_and_criterion(answer, "haiku", "plot"))
    assert len(found) == 2
    assert all(shown for shown, _ in found)


@pytest.mark.process
def test_labels_of_answers_that_are_not_there_are_left_out(run: Path, tmp_path: Path) -> None:
    """Neither its number nor an empty hash makes one that of another answer."""
    folder = label_all(run, tmp_path / "run")
    [first, *_] = [label for label in read_labels(folder).values() if label.is_persons_level]
    foreign = [
        replace(
            first, judge_model_id=judge_id_of_valid_name("eve"), response_id=f"{first.response_id}{number}"
        )
        for number in ("#2", "#0", "#-1", "#" + "9" * 400, "#x", "##2")
    ]
    add_labels(folder, [*foreign, *(replace(one, input_hash="", factor="plot") for one in foreign)])
    after = people_of(folder)
    assert (after.labels, after.stale) == (180, 12)
    with RunReader(folder) as reader:
        assert not match_labels_to_rows(grid_of(reader), foreign).by_person


def test_a_student_without_labels_says_so(run: Path, tmp_path: Path) -> None:
    folder = label_all(run, tmp_path / "run")
    kept = [label for label in read_labels(folder).values() if not label.response_id.endswith("__ann")]
    (folder / "labels.jsonl").unlink()
    add_labels(folder, kept)
    found = people_of(folder)
    scale = found.scales[ALL_FACTORS]
    assert scale.students["ann"].people.value is None  # two others are too few
    assert set(scale.pairs) == {("bob", "cem")}
    said = " ".join(people_leader_sentences(found))
    assert "ann: too few labels" in said
    assert "better than every other student with labels of its own (bob, cem)." in said


@pytest.mark.process
def test_a_bias_that_is_not_significant_is_said_to_be_so(found: PeopleMeasures) -> None:
    panel = found.judges[PANEL]
    assert any(sentence.startswith("Judges give ") for sentence in people_leader_sentences(found))
    doubtful = replace(panel, bias=panel.bias._replace(value=-0.074, low=-0.173, high=0.026))
    [said] = [
        sentence
        for sentence in people_leader_sentences(replace(found, judges={PANEL: doubtful}))
        if sentence.startswith("Judges show no significant bias")
    ]
    assert "they give 7.4 points less than people (" in said
    assert "(± 9.9; " in said or "([−2.6, 17.3]; " in said


@pytest.mark.process
def test_people_are_written_as_elsewhere(run: Path, tmp_path: Path) -> None:
    found = people_of(label_all(run, tmp_path / "run", ("anna", "ben")))
    assert [*found.agreement_by_person_name] == [("anna", "ben")]
    assert "human:" not in " ".join(people_leader_sentences(found))
