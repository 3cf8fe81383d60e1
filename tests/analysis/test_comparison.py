"""What of two sides is compared: scores that have a counterpart, items that are the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from written_run import Run

from coeval import compare as compared


def test_a_score_counts_only_with_its_counterpart(tmp_path: Path) -> None:
    """A strict judge who scored ann alone does not make her worse."""
    run = Run(tmp_path)
    for n in range(1, 9):
        for student in ("ann", "ben"):
            run.judged(n, student, "mild", {"plot": "High" if n % 2 else "Medium"})
        run.evaluation(n, "ann", "strict", {"plot": "Low"})
    run.evaluation(1, "ben", "strict", {"plot": "Low"})
    [one] = compared(tmp_path).comparisons
    assert (one.difference, one.n, one.metric) == (0.0, 8, "score")
    assert one.mean_a == pytest.approx((0.5 + 3 * 1 + 4 * 0.5) / 8)


def test_a_factor_that_one_side_lacks_is_left_out(tmp_path: Path) -> None:
    run = Run(tmp_path)
    for n in range(1, 7):
        run.judged(n, "ann", "j", {"plot": "High", "style": "Low"})
        run.judged(n, "ben", "j", {"plot": "Medium"})
    [score, plot] = compared(tmp_path).comparisons
    assert (score.metric, plot.metric) == ("score", "plot")
    assert score.difference == plot.difference == -0.5


def test_items_without_a_counterpart_are_missing_and_bound_the_difference(tmp_path: Path) -> None:
    run = Run(tmp_path)
    for n in range(1, 9):
        run.judged(n, "ann", "j", {"plot": "Medium"})
        if n > 2:
            run.judged(n, "ben", "j", {"plot": "High"})
    run.datapoint(9)
    [one] = compared(tmp_path).comparisons
    assert (one.n, one.missing, one.difference) == (6, 3, 0.5)
    assert one.bounds == pytest.approx(((3 - 0.5 - 0.5 - 1) / 9, (3 + 0.5 + 0.5 + 1) / 9))


def test_the_same_prompt_twice_is_two_items(tmp_path: Path) -> None:
    for name in ("one", "two"):
        run = Run(tmp_path / name)
        for n in range(1, 7):
            run.judged(n, "ann", "j", {"plot": "High" if name == "one" else "Medium"})
        run.datapoint(7, prompt="prompt 1")
        run.response(7, "ann")
        run.evaluation(7, "ann", "j", {"plot": "Low"})
    [one] = compared(tmp_path / "one", tmp_path / "two").comparisons
    assert (one.a, one.b, one.n, one.missing) == ("one", "two", 7, 0)
    assert one.difference == pytest.approx(-0.5 * 6 / 7)


def test_items_are_paired_by_what_was_asked(tmp_path: Path) -> None:
    """The second run asks the same in another order, and one thing that the first does not."""
    for name, shift in (("one", 0), ("two", 3)):
        run = Run(tmp_path / name)
        for n in range(1, 9):
            asked = (n + shift) % 9
            run.judged(n, "ann", "j", {"plot": "High" if asked % 2 else "Low"})
            run.datapoint(n, prompt=f"question {asked}")
    report = compared(tmp_path / "one", tmp_path / "two")
    [one] = report.comparisons
    assert (one.n, one.missing, one.difference) == (7, 2, 0.0)
    assert any("another prompt" in note for note in report.notes)


def test_another_recipe_of_the_judge_and_another_criterion_are_told(tmp_path: Path) -> None:
    for name in ("one", "two"):
        run = Run(tmp_path / name)
        rubric = tmp_path / name / "phase2_rubric" / "haiku.rubric.json"
        rubric.parent.mkdir(parents=True)
        rubric.write_text(f'{{"plot": "Plot {name}.", "style": "Style."}}')
        for n in range(1, 7):
            run.datapoint(n)
            for student in ("ann", "ben"):
                run.response(n, student)
                run.evaluation(n, student, "j", {"plot": "High", "style": "Low"}, recipe=name)
                run.evaluation(n, student, f"only {name}", {"plot": "High", "style": "Low"})
    both = compared(tmp_path / "one", tmp_path / "two").notes
    assert sum("another recipe" in note for note in both) == 1, "once for all students"
    assert sum("the factor plot is" in note for note in both) == 1
    notes = "; ".join(compared(tmp_path / "one", tmp_path / "two", students=["ann"]).notes)
    assert "haiku: j judged two by another recipe (model, parameters, prompt) than one" in notes
    assert "the factor plot is described otherwise" in notes
    assert "style is described" not in notes
    for told in (notes, "; ".join(both)):
        assert told.count("haiku: only two judged two but not one, so it is left out of the comparison") == 1


def test_other_reference_answers_and_labels_of_the_same_questions_are_told(tmp_path: Path) -> None:
    for name in ("one", "two"):
        run = Run(tmp_path / name)
        for n in range(1, 9):
            changed = name == "two" and n <= 3
            run.datapoint(
                n,
                reference_response=f"answer {n}{' anew' if changed else ''}",
                sampled_target_attributes={
                    "form": "loose" if changed and n == 1 else "strict",
                    "tone": "calm",
                },
            )
            run.response(n, "ann")
            run.evaluation(n, "ann", "j", {"plot": "High"})
    told = compared(tmp_path / "one", tmp_path / "two").notes
    assert told == (
        "haiku: 3 of 8 items in common have another reference answer in two than in one: part of the "
        "difference may be theirs",
        "haiku: 1 of 8 items in common were made for other attributes in two than in one: part of the "
        "difference may be theirs",
    )


def test_attributes_in_another_order_are_the_same(tmp_path: Path) -> None:
    for name, order in (("one", 1), ("two", -1)):
        run = Run(tmp_path / name)
        for n in range(1, 4):
            attributes = dict(list({"form": "strict", "tone": "calm"}.items())[::order])
            run.datapoint(n, sampled_target_attributes=attributes)
            run.response(n, "ann")
            run.evaluation(n, "ann", "j", {"plot": "High"})
    assert compared(tmp_path / "one", tmp_path / "two").notes == ()


def test_what_the_test_says_decides_where_the_interval_alone_would_say_otherwise(tmp_path: Path) -> None:
    """Of 20 items four differ, all to one side: the exact test has p = 2/16, the interval leaves zero out."""
    run = Run(tmp_path)
    for n in range(1, 21):
        run.judged(n, "ann", "j", {"plot": "High" if n <= 10 else "Low"})
        run.judged(n, "ben", "j", {"plot": "High" if n <= 14 else "Low"})
    [one] = compared(tmp_path).comparisons
    assert one.p_adjusted == pytest.approx(0.125)
    assert one.ci95[0] > 0
    assert one.sentence.startswith("ann and ben cannot be told apart on haiku: ben − ann is 20.0 [")
    assert (
        "20 paired items; the interval leaves zero out, but chance may well do that (p = 0.125)"
        in one.sentence
    )


def test_a_sentence_says_nothing_of_chance_where_interval_and_test_agree(tmp_path: Path) -> None:
    for name, better in (("apart", 20), ("alike", 11)):
        run = Run(tmp_path / name)
        for n in range(1, 21):
            run.judged(n, "ann", "j", {"plot": "High" if n <= 10 else "Low"})
            run.judged(n, "ben", "j", {"plot": "High" if n <= better else "Low"})
        [one] = compared(tmp_path / name).comparisons
        assert one.significant == (name == "apart") == (one.ci95[0] > 0)
        assert "chance" not in one.sentence
