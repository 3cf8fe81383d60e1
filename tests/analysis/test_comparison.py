"""What of two sides is compared: scores that have a counterpart, items that are the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli.written_output import output, verdicts
from cli.written_training import drawn, write_run
from pipeline.experiments import Lab, model
from pipeline.experiments import task as task_of
from written_run import Run

from coeval import compare as compared
from coeval import open_run
from coeval.analysis.panel.panel_findings import verdict_phrase
from coeval.core.errors import UsageError


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


@pytest.mark.process
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


@pytest.mark.process
def test_items_are_paired_by_what_was_asked(tmp_path: Path) -> None:
    """The second run asks the same in another order, and one thing that the first does not."""
    for name, shift in (("one", 0), ("two", 3)):
        run = Run(tmp_path / name)
        for n in range(1, 9):
            requested = (n + shift) % 9
            run.judged(n, "ann", "j", {"plot": "High" if requested % 2 else "Low"})
            run.datapoint(n, prompt=f"question {requested}")
    report = compared(tmp_path / "one", tmp_path / "two")
    [one] = report.comparisons
    assert (one.n, one.missing, one.difference) == (7, 2, 0.0)
    assert any("different prompts" in note for note in report.notes)


@pytest.mark.process
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
    assert sum("the factor plot has" in note for note in both) == 1
    notes = "; ".join(compared(tmp_path / "one", tmp_path / "two", students=["ann"]).notes)
    assert "haiku: j judged two by another recipe (model, parameters, prompt) than one" in notes
    assert "the factor plot has another description" in notes
    assert "style is described" not in notes
    for reported in (notes, "; ".join(both)):
        assert (
            reported.count("haiku: only two judged two but not one, so it is left out of the comparison") == 1
        )


@pytest.mark.process
def test_another_scale_and_other_weights_are_told(tmp_path: Path) -> None:
    plain = {"plot": "Things happen.", "style": {"criterion": "It reads well.", "scale": "1-5"}}
    other = {**plain, "style": {"criterion": "It reads well.", "scale": "0-10"}}
    runs = {
        "one": task_of(total=6, rubric=plain),
        "same": task_of(total=6, rubric=plain),
        "weights": task_of(total=6, rubric=plain, weights={"plot": 3.0}),
        "scale": task_of(total=6, rubric=other),
    }
    models = [model("ann", "teacher", "student"), model("jan", "judge")]
    for name, task in runs.items():
        assert Lab(tmp_path, models, [task], id=name).run().exit_code == 0
    one, same, weights, scale = (tmp_path / "runs" / name for name in runs)
    told = "story: its factors have other weights in weights than in one; those of weights are used"
    assert told in compared(one, weights).notes
    said = "story: the factor style has the scale 0 to 10 in scale, and 1 to 5 in one"
    assert said in compared(one, scale).notes
    assert not any("other weights" in note or "described" in note for note in compared(one, same).notes)


@pytest.mark.process
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
    reported = compared(tmp_path / "one", tmp_path / "two").notes
    assert reported == (
        "haiku: 3 of 8 items in common have another reference answer in two than in one: this may "
        "explain part of the difference",
        "haiku: 1 of 8 items in common have other attributes in two than in one: this may "
        "explain part of the difference",
    )


@pytest.mark.process
def test_attributes_in_another_order_are_the_same(tmp_path: Path) -> None:
    for name, order in (("one", 1), ("two", -1)):
        run = Run(tmp_path / name)
        for n in range(1, 4):
            attributes = dict(list({"form": "strict", "tone": "calm"}.items())[::order])
            run.datapoint(n, sampled_target_attributes=attributes)
            run.response(n, "ann")
            run.evaluation(n, "ann", "j", {"plot": "High"})
    assert compared(tmp_path / "one", tmp_path / "two").notes == ()


def test_an_interval_reaches_zero_where_the_test_sees_no_difference(tmp_path: Path) -> None:
    """Of 20 items four differ, all to one side: the exact test has p = 2/16, t's interval leaves 0 out."""
    run = Run(tmp_path)
    for n in range(1, 21):
        run.judged(n, "ann", "j", {"plot": "High" if n <= 10 else "Low"})
        run.judged(n, "ben", "j", {"plot": "High" if n <= 14 else "Low"})
    [one] = compared(tmp_path).comparisons
    assert one.p_adjusted == pytest.approx(0.125)
    assert one.ci95[0] == 0
    assert one.sentence.startswith(
        "ben and ann are tied on haiku: the gap is 20.0 [0.0, 36.6] points on 20 shared items. "
    )


@pytest.mark.process
def test_a_sentence_says_nothing_of_chance_where_interval_and_test_agree(tmp_path: Path) -> None:
    for name, better in (("apart", 20), ("alike", 11)):
        run = Run(tmp_path / name)
        for n in range(1, 21):
            run.judged(n, "ann", "j", {"plot": "High" if n <= 10 else "Low"})
            run.judged(n, "ben", "j", {"plot": "High" if n <= better else "Low"})
        [one] = compared(tmp_path / name).comparisons
        assert one.significant == (name == "apart") == (one.ci95[0] > 0)
        assert "chance" not in one.sentence


# What a comparison says against itself: kin judges, cut-off and empty answers, tasks that one lacks; and
# that what concerns several is said once.

HIGH, LOW = {"plot": "High"}, {"plot": "Low"}


def judged(folder: Path, score: Callable[[int, str, str], str], judges: tuple[str, ...]) -> Run:
    """Twelve items, two students and each judge."""
    run = Run(folder)
    for n in range(1, 13):
        for student in ("gpt-4o-mini", "claude-haiku"):
            run.datapoint(n)
            run.response(n, student)
            for judge in judges:
                run.evaluation(n, student, judge, {"plot": score(n, student, judge)})
    return run


def kind_to_its_family(n: int, student: str, judge: str) -> str:
    if judge.startswith("gpt"):
        return "High" if student.startswith("gpt") else "Low"
    return "High" if n % 3 else "Medium" if student.startswith("gpt") else "Low"


@pytest.mark.process
def test_a_judge_of_the_leader_s_family_is_told_with_the_difference_without_it(tmp_path: Path) -> None:
    """The verdict is that of a run whose only judges are the others."""
    run = judged(tmp_path, kind_to_its_family, ("gpt-4o", "mistral-large", "qwen-max"))
    report = compared(tmp_path)
    assert report.comparisons[0].mean_b > report.comparisons[0].mean_a
    run.evaluations("gpt-4o").unlink()
    [others] = compared(tmp_path).comparisons
    assert report.doubts == (
        "gpt-4o, 1 of the 3 judges, is of gpt-4o-mini's family: without its scores, "
        f"{verdict_phrase(others.a, others.b, others)} on haiku.",
    )
    assert "1 of the 3 judges" in report._repr_html_()


@pytest.mark.process
def test_without_family_is_without_those_of_either(tmp_path: Path) -> None:
    """One rule in compare and analyze: a judge who is kin to the other one is no fair judge of a lead."""
    run = judged(tmp_path, kind_to_its_family, ("gpt-4o", "claude-opus", "mistral-large"))
    [doubt] = compared(tmp_path).doubts
    for judge in ("gpt-4o", "claude-opus"):
        run.evaluations(judge).unlink()
    [neither] = compared(tmp_path).comparisons
    assert doubt == (
        "gpt-4o, 1 of the 3 judges, is of gpt-4o-mini's family: without the scores of claude-opus and "
        f"gpt-4o, {verdict_phrase(neither.a, neither.b, neither)} on haiku."
    )


def test_where_all_judges_are_family_nobody_can_tell(tmp_path: Path) -> None:
    judged(tmp_path, kind_to_its_family, ("gpt-4o",))
    assert compared(tmp_path).doubts == (
        "The only judge, gpt-4o, is of gpt-4o-mini's family: whether it favours it cannot be tested here; "
        "add a judge of another family.",
    )


@pytest.mark.process
def test_a_judge_who_is_family_to_the_other_or_to_both_is_no_doubt(tmp_path: Path) -> None:
    def unkind(n: int, student: str, judge: str) -> str:
        return "High" if student.startswith("claude") else "Low"

    judged(tmp_path / "other", unkind, ("gpt-4o", "mistral-large"))
    assert compared(tmp_path / "other").doubts == ()
    for name, level in (("one", HIGH), ("two", LOW)):
        run = Run(tmp_path / name)
        for n in range(1, 9):
            run.judged(n, "gpt-4o-mini", "gpt-4o", level)
    assert compared(tmp_path / "one", tmp_path / "two").doubts == ()


@pytest.mark.process
def test_one_who_judges_itself_is_told_for_all_that_it_leads(tmp_path: Path) -> None:
    run = Run(tmp_path)
    for n in range(1, 9):
        for student, scores in (("a", HIGH), ("b", LOW), ("c", LOW)):
            run.datapoint(n)
            run.response(n, student)
            run.evaluation(n, student, "a", scores)
            run.evaluation(n, student, "z", {"plot": "Medium"})
    [doubt] = compared(tmp_path).doubts
    assert doubt == (
        "a, 1 of the 2 judges, judges its own answers: without its scores, a and b are tied on haiku and "
        "1 more."
    )


@pytest.mark.process
def test_comparing_labels_is_not_judging(tmp_path: Path) -> None:
    run = judged(tmp_path, kind_to_its_family, ("gpt-4o", "mistral-large"))
    for n in range(1, 13):
        for student in ("gpt-4o-mini", "claude-haiku"):
            found = {"form": {"expected": "strict", "predicted": "strict", "match": True}}
            run.evaluation(n, student, "exact_match", {}, label_scores=found)
    [doubt] = compared(tmp_path).doubts
    assert doubt.startswith("gpt-4o, 1 of the 2 judges, ")
    run.evaluations("exact_match").unlink()
    for n in range(1, 13):
        run.evaluation(n, "claude-haiku", "exact_match", {}, label_scores=found)
    assert not any("exact_match" in note for note in compared(tmp_path).notes)


def test_cut_off_and_empty_answers_are_counted_on_each_side(tmp_path: Path) -> None:
    run = Run(tmp_path)
    for n in range(1, 11):
        for student in ("ann", "ben"):
            bad: dict[str, Any] = {"truncated": True, "response": "" if n == 1 else "half"} if n < 4 else {}
            run.datapoint(n)
            run.response(n, student, **(bad if student == "ben" else {}))
            run.evaluation(n, student, "j", LOW if bad and student == "ben" else HIGH)
    assert compared(tmp_path).doubts == (
        "Cut off at max_tokens: 3 of 10 answers of ben, 0 of 10 answers of ann. Part of the difference may "
        "come from that: raise max_tokens (of your own code: max_answer_bytes) before trusting it.",
        "Empty, and counted like all others: 1 of 10 answers of ben, 0 of 10 answers of ann (of all these, "
        "cut off: 1). Part of the difference may come from that.",
    )


def test_outputs_tell_of_empty_answers_too(tmp_path: Path) -> None:
    a = output(tmp_path / "a", "base", verdicts([1, 0] * 5))
    b = output(tmp_path / "b", "tuned", verdicts([0, 1] * 5))
    responses = b / "ifeval" / "responses.jsonl"
    responses.write_text(responses.read_text().replace('"text"', '" "', 2))
    [doubt] = compared(a, b).doubts
    assert doubt.startswith(
        "Empty, and counted like all others: 2 of 10 answers of tuned, 0 of 10 answers of base."
    )


@pytest.mark.process
def test_who_has_some_tasks_only_is_told_once(tmp_path: Path) -> None:
    for task in ("haiku", "saga", "verse"):
        run = Run(tmp_path, task=task)
        for n in range(1, 7):
            for student in ("ann", "ben", "cleo"):
                if student == "ann" or task == "haiku" or (student, task) == ("ben", "verse"):
                    run.judged(n, student, "j", HIGH if n % 2 else LOW)
                else:
                    run.datapoint(n)
    assert compared(tmp_path).doubts == (
        "No score in tasks that others have: ben (saga), cleo (saga, verse). These tasks are not in "
        "their differences; overall is over the other tasks.",
    )


@pytest.mark.process
def test_judges_of_some_students_only_are_told_once_for_all(tmp_path: Path) -> None:
    """In two tasks alike: j judges all, k and l the first two of three students."""
    for task in ("haiku", "saga"):
        run = Run(tmp_path, task=task)
        for n in range(1, 7):
            for student in ("ann", "ben", "cleo"):
                run.judged(n, student, "j", HIGH if n % 2 else LOW)
                for judge in ("k", "l") if student != "cleo" else ():
                    run.evaluation(n, student, judge, HIGH)
    assert compared(tmp_path).notes == (
        "haiku, saga: k, l judged ann, ben but not cleo, so they are left out where compared with cleo",
    )


@pytest.mark.process
@pytest.mark.parametrize("students", [("ann",), ("ann", "ben", "cleo")])
def test_folders_with_no_judge_in_common_are_told_once(students: tuple[str, ...], tmp_path: Path) -> None:
    for name, judge in (("one", "strict"), ("two", "mild")):
        for task in ("haiku", "saga"):
            run = Run(tmp_path / name, task=task)
            for n in range(1, 7):
                for student in students:
                    run.judged(n, student, judge, HIGH if n % 2 else LOW)
    assert compared(tmp_path / "one", tmp_path / "two").notes == (
        "haiku, saga: strict judged one, mild judged two, and no judge both: the difference also reflects "
        "the judges",
    )


@pytest.mark.process
def test_students_with_a_judge_each_are_told_once(tmp_path: Path) -> None:
    run = Run(tmp_path)
    for n in range(1, 7):
        for student, judge in (("ann", "j"), ("ben", "k"), ("cleo", "l")):
            run.judged(n, student, judge, HIGH if n % 2 else LOW)
    said = "haiku: j judged ann, k judged ben, l judged cleo, and no judge any two of these: their scores "
    with pytest.raises(UsageError) as refused:
        compared(tmp_path)
    assert str(refused.value).count(f"{said}are not compared") == 1


@pytest.mark.process
def test_a_comparison_counts_the_samples_that_the_results_of_each_side_count(tmp_path: Path) -> None:
    """The second sample of one side is unfinished, and its items are the easy ones."""
    for step, scores in drawn({100: 0.4, 200: 0.7}, 40, 2).items():
        folder = tmp_path / f"step_{step}"
        write_run(folder / "run_0", scores[:, 0])
        easy = np.where(scores[:, 1] == 1, 1.0, np.nan)
        if step == 100:
            write_run(folder / "run_1", easy, complete=False, missing={"missing": 40 - int(np.nansum(easy))})
        else:
            write_run(folder / "run_1", scores[:, 1])
    folders = [tmp_path / "step_100", tmp_path / "step_200"]
    values = [open_run(folder).results().frame("metrics")["value"][0] for folder in folders]
    [one] = compared(*folders).comparisons
    assert (one.mean_a, one.mean_b) == pytest.approx(values)
    assert one.n == 40
