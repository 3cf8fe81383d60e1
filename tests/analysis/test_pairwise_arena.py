from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from coeval.analysis.pairwise.pairwise_models import VERDICTS, ArenaJudgment, ArenaScore, arena_scores


def judged(
    prompt: int | str,
    baseline_first: str | None,
    model_first: str | None,
    *,
    category: str = "hard_prompt",
    judge: str = "j",
) -> ArenaJudgment:
    return ArenaJudgment(str(prompt), category, judge, baseline_first, model_first)


def only(judgments: list[ArenaJudgment]) -> ArenaScore:
    (score,) = arena_scores(judgments)
    return score


def rate(judgments: list[ArenaJudgment]) -> float:
    win_rate = only(judgments).win_rate
    assert win_rate is not None
    return win_rate.value


@pytest.mark.parametrize(
    ("baseline_first", "model_first", "expected"),
    [
        ("B>A", "A>B", 100.0),
        ("A>B", "B>A", 0.0),
        ("A>B", "A>B", 50.0),  # always the first: no evidence
        ("A=B", "B=A", 50.0),
        ("A>>B", "A>B", 25.0),  # lost three, won one
        ("B>>A", "B>A", 75.0),
        ("A=B", "A>>B", 87.5),  # half of one, three of three
        ("B>>A", "A>>B", 100.0),
        ("A<<B", "B<A", 100.0),
        ("B<<A", "A<B", 0.0),
    ],
)
def test_strong_verdicts_count_three_times(baseline_first: str, model_first: str, expected: float) -> None:
    assert rate([judged(1, baseline_first, model_first)]) == expected


@pytest.mark.parametrize("label", VERDICTS)
def test_a_verdict_read_the_other_way_round_says_the_same(label: str) -> None:
    mirrored = label.translate(str.maketrans("AB<>", "BA><"))
    swapped = label.translate(str.maketrans("AB", "BA"))
    assert VERDICTS[mirrored] == VERDICTS[label]
    assert VERDICTS[swapped] == (1 - VERDICTS[label][0], VERDICTS[label][1])
    assert rate([judged(1, label, swapped)]) == 100 * (1 - VERDICTS[label][0])


def test_a_prompt_weighs_by_its_verdicts() -> None:
    assert rate([judged(1, "B>>A", "A>>B"), judged(2, "A>B", "B>A")]) == 75.0


def test_a_judgment_without_both_verdicts_is_counted_and_left_out() -> None:
    score = only([judged(1, "B>A", "A>B"), judged(2, None, "A>>B"), judged(3, "A=B", None)])
    assert (score.n, score.n_judgments, score.n_failed) == (1, 1, 2)
    assert score.win_rate is not None
    assert (score.win_rate.value, score.win_rate.standard_error) == (100.0, None)
    assert score.win_rate.low_95 < 20, "one prompt says little"
    failed = only([judged(1, None, None)])
    assert (failed.win_rate, failed.n, failed.n_failed) == (None, 0, 1)


def test_nothing_judged_has_no_scores() -> None:
    assert arena_scores([]) == ()


def test_an_unknown_label_is_named() -> None:
    with pytest.raises(ValueError, match=r"'A>>>B' \(judge j, prompt 7\)"):
        arena_scores([judged(7, "A>>>B", "A>B")])


def test_tables_per_judge_and_category_and_of_all() -> None:
    judgments = [
        judged(1, "B>A", "A>B", judge="x"),
        judged(2, "A>B", "B>A", judge="x", category="creative_writing"),
        judged(1, "A>>B", "B>>A", judge="y"),
    ]
    found = {(s.judge, s.category): s for s in arena_scores(judgments)}
    values = {key: s.win_rate.value for key, s in found.items() if s.win_rate is not None}
    assert values == {
        ("x", "creative_writing"): 0.0,
        ("x", "hard_prompt"): 100.0,
        ("x", None): 50.0,
        ("y", "hard_prompt"): 0.0,
        ("y", None): 0.0,
        (None, "creative_writing"): 0.0,
        (None, "hard_prompt"): 25.0,
        (None, None): 20.0,
    }
    assert (found[None, "hard_prompt"].n, found[None, "hard_prompt"].n_judgments) == (1, 2)


def test_the_last_judgment_of_a_prompt_counts() -> None:
    assert rate([judged(1, "A>B", "B>A"), judged(1, "B>A", "A>B")]) == 100.0
    assert only([judged(1, None, None), judged(1, "B>A", "A>B")]).n_failed == 0


def test_intervals_are_of_prompts_and_not_of_verdicts() -> None:
    """Two verdicts that always agree are one piece of evidence, not two."""
    judgments = [judged(n, "B>A", "A>B") if n % 4 == 0 else judged(n, "A>B", "B>A") for n in range(200)]
    win_rate = only(judgments).win_rate
    assert win_rate is not None
    assert win_rate.value == 25.0
    error = win_rate.standard_error
    assert error is not None
    assert error == pytest.approx(100 * np.sqrt(0.25 * 0.75 / 200), rel=0.08)
    bounds = (win_rate.low_95, win_rate.low_90, 25.0, win_rate.high_90, win_rate.high_95)
    for lower, upper in itertools.pairwise(bounds):
        assert lower < upper
    assert win_rate.low_95 == pytest.approx(25 - 1.96 * error, abs=1.0)
    assert win_rate.high_90 == pytest.approx(25 + 1.645 * error, abs=1.0)


def test_a_second_judge_who_agrees_adds_no_certainty() -> None:
    one = [judged(n, *(("B>A", "A>B") if n % 3 else ("A>B", "B>A"))) for n in range(90)]
    two = [ArenaJudgment(j.prompt, j.category, "k", j.baseline_first, j.model_first) for j in one]
    pooled = arena_scores([*one, *two])[-1]
    assert pooled.judge is None
    assert pooled.win_rate == only(one).win_rate


def test_intervals_hold_what_they_promise() -> None:
    """The 90 % interval covers the true rate in about 90 of 100 repetitions, the 95 % one in 95."""
    generator = random.Random(99)
    covered = {90: 0, 95: 0}
    for _ in range(300):
        outcomes = [("B>A", "A>B"), ("A>>B", "B>>A"), ("A=B", "A>B")]
        drawn = [judged(n, *generator.choice(outcomes)) for n in range(60)]
        win_rate = only(drawn).win_rate
        assert win_rate is not None
        truth = 100 * (2 + 0 + 1.5) / (2 + 6 + 2)
        covered[90] += win_rate.low_90 <= truth <= win_rate.high_90
        covered[95] += win_rate.low_95 <= truth <= win_rate.high_95
    assert 0.85 <= covered[90] / 300 <= 0.94
    assert 0.90 <= covered[95] / 300 <= 0.98


def test_the_order_of_judgments_does_not_matter_and_the_seed_does() -> None:
    judgments = [judged(n, "B>A", "A>B" if n % 3 else "B>A", judge=str(n % 2)) for n in range(40)]
    assert arena_scores(judgments) == arena_scores(judgments[::-1])
    assert arena_scores(judgments) != arena_scores(judgments, seed=1)


@pytest.mark.parametrize(("verdicts", "end"), [(("B>A", "A>B"), 100.0), (("A>>B", "B>>A"), 0.0)])
def test_unanimous_verdicts_have_an_interval_with_a_width(verdicts: tuple[str, str], end: float) -> None:
    win_rate = only([judged(n, *verdicts) for n in range(60)]).win_rate
    assert win_rate is not None
    assert (win_rate.value, win_rate.standard_error) == (end, 0.0)
    assert end in (win_rate.low_95, win_rate.high_95)
    assert 3 < win_rate.high_95 - win_rate.low_95 < 5


def test_near_the_end_intervals_hold_what_they_promise() -> None:
    """The percentiles of the bootstrap alone hold it in 63 of 100 repetitions."""
    generator = random.Random(5)
    truth, covered = 98.0, 0
    for _ in range(300):
        drawn = [
            judged(n, *(("B>A", "A>B") if generator.random() < truth / 100 else ("A>B", "B>A")))
            for n in range(50)
        ]
        win_rate = only(drawn).win_rate
        assert win_rate is not None
        covered += win_rate.low_95 <= truth <= win_rate.high_95
    assert covered / 300 > 0.93
