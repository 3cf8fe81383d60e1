"""Battles of Arena-Hard, their style, and the points of HealthBench."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from coeval.analysis.intervals import clustered_mean
from coeval.analysis.pairwise.arena import (
    VERDICTS,
    ArenaJudgment,
    ArenaScore,
    Style,
    StyleControl,
    StyledPair,
    markdown_style,
    score_by_judge_and_category,
    style_differences,
)
from coeval.analysis.pairwise.rates import clipped_mean, healthbench_score


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
    (score,) = score_by_judge_and_category(judgments)
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
    assert score_by_judge_and_category([]) == ()


def test_an_unknown_label_is_named() -> None:
    with pytest.raises(ValueError, match=r"'A>>>B' \(judge j, prompt 7\)"):
        score_by_judge_and_category([judged(7, "A>>>B", "A>B")])


def test_tables_per_judge_and_category_and_of_all() -> None:
    judgments = [
        judged(1, "B>A", "A>B", judge="x"),
        judged(2, "A>B", "B>A", judge="x", category="creative_writing"),
        judged(1, "A>>B", "B>>A", judge="y"),
    ]
    found = {(s.judge, s.category): s for s in score_by_judge_and_category(judgments)}
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
    pooled = score_by_judge_and_category([*one, *two])[-1]
    assert pooled.judge is None
    assert pooled.win_rate == only(one).win_rate


@pytest.mark.process
def test_intervals_hold_what_they_promise() -> None:
    """The 90 % interval covers the true rate in about 90 of 100 repetitions, the 95% one in 95."""
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
    assert score_by_judge_and_category(judgments) == score_by_judge_and_category(judgments[::-1])
    assert score_by_judge_and_category(judgments) != score_by_judge_and_category(judgments, seed=1)


@pytest.mark.parametrize(("verdicts", "end"), [(("B>A", "A>B"), 100.0), (("A>>B", "B>>A"), 0.0)])
def test_unanimous_verdicts_have_an_interval_with_a_width(verdicts: tuple[str, str], end: float) -> None:
    win_rate = only([judged(n, *verdicts) for n in range(60)]).win_rate
    assert win_rate is not None
    assert (win_rate.value, win_rate.standard_error) == (end, 0.0)
    assert end in (win_rate.low_95, win_rate.high_95)
    assert 3 < win_rate.high_95 - win_rate.low_95 < 5


# test_pairwise_style


def test_counts_what_is_seen_of_markdown() -> None:
    text = """# Title
###### Six deep
####### seven is none
#no space
Some **bold** and __bold too__, not ** nor *slanted*.

1. one
  22. two
- three
\t* four
+ five
-none
```
# not a header
- not **an** item
```
"""
    style = markdown_style(text)
    assert (style.headers, style.lists, style.bold) == (2, 5, 2)
    assert style.length == len(text) / 4


def test_an_empty_answer_has_a_style() -> None:
    assert markdown_style("") == Style(0.0)


@pytest.mark.parametrize("filler", ["\n", " ", "*", "**a", "`", "```a``", "#", "1", "_ "])
def test_hostile_text_is_counted_in_no_time(filler: str) -> None:
    """Patterns that go back over what they have read would take hours here, and hit the time limit."""
    assert markdown_style(filler * 300_000).length > 0


def test_differences_are_relative_and_defined_for_empty_answers() -> None:
    pairs = [
        StyledPair(Style(300, headers=3, lists=0, bold=6), Style(100, headers=0, lists=1, bold=1)),
        StyledPair(Style(0), Style(50, headers=5)),
        StyledPair(Style(0), Style(0)),
    ]
    expected = [
        [0.5, 0.01 / 1.01, -0.01 / 1.01, (0.02 - 0.01) / 1.03],
        [-1.0, -0.1 / 1.1, 0.0, 0.0],
        [0.0, 0.0, 0.0, 0.0],
    ]
    np.testing.assert_allclose(style_differences(pairs), expected, atol=1e-12)


class Battles:
    """A judge who likes length and nothing else, a model as good as the baseline that writes more."""

    def __init__(self, count: int = 500, seed: int = 5) -> None:
        rng = np.random.default_rng(seed)
        self.judgments: list[ArenaJudgment] = []
        self.styles: dict[str, StyledPair] = {}
        for index in range(count):
            prompt = f"p{index:04d}"
            model, baseline = rng.uniform(250, 900), rng.uniform(150, 500)
            counts = rng.integers(0, 12, size=6).tolist()
            self.styles[prompt] = StyledPair(Style(model, *counts[:3]), Style(baseline, *counts[3:]))
            liking = 3 * (model - baseline) / (model + baseline)
            chance = 1 / (1 + np.exp(-liking))
            first, second = (bool(rng.random() < chance) for _ in range(2))
            strong = ">" * int(rng.integers(1, 3))
            self.judgments.append(
                ArenaJudgment(
                    prompt,
                    "hard_prompt",
                    "j",
                    f"B{strong}A" if first else f"A{strong}B",
                    "A=B" if index % 17 == 0 else ("A>B" if second else "B>A"),
                )
            )

    def control(self) -> StyleControl:
        (score,) = score_by_judge_and_category(self.judgments, styles=self.styles)
        assert score.style is not None
        return score.style


@pytest.mark.process
def test_a_liking_for_length_is_taken_out() -> None:
    battles = Battles()
    (score,) = score_by_judge_and_category(battles.judgments, styles=battles.styles)
    control = score.style
    assert score.win_rate is not None
    assert control is not None
    assert score.win_rate.value > 65
    assert control.win_rate.value == pytest.approx(50, abs=5)
    assert control.win_rate.low_95 is not None
    assert control.win_rate.high_95 is not None
    assert control.win_rate.low_95 < 50 < control.win_rate.high_95 < score.win_rate.value
    assert control.coefficients["length"] > 0.3
    assert max(abs(control.coefficients[name]) for name in ("headers", "lists", "bold")) < 0.25
    # Centred on its own mean style, the official normalisation takes nothing out.
    assert control.win_rate_at_mean_style == pytest.approx(score.win_rate.value, abs=3)


@pytest.mark.process
def test_equals_a_logistic_regression_over_every_single_battle() -> None:
    """Strong verdicts as three rows, features standardised over rows: the official construction."""
    api = pytest.importorskip("statsmodels.api")
    battles = Battles(120)
    outcomes, rows = [], []
    for judgment in battles.judgments:
        pair = battles.styles[judgment.prompt]
        for label, model_is_a in ((judgment.baseline_first, False), (judgment.model_first, True)):
            assert label is not None
            wins, times = VERDICTS[label]
            outcomes += [wins if model_is_a else 1 - wins] * times
            rows += [style_differences([pair])[0]] * times
    features = np.array(rows)
    deviation = features.std(axis=0, ddof=1)
    for centre, attribute in ((0.0, "equal"), (features.mean(axis=0), "mean")):
        design = np.column_stack([np.ones(len(rows)), (features - centre) / deviation])
        fit = api.GLM(np.array(outcomes), design, family=api.families.Binomial()).fit(tol=1e-12)
        expected = 100 / (1 + np.exp(-fit.params[0]))
        control = battles.control()
        found = control.win_rate.value if attribute == "equal" else control.win_rate_at_mean_style
        assert found == pytest.approx(expected, abs=1e-4)
        assert list(control.coefficients.values()) == pytest.approx(fit.params[1:], abs=1e-5)


@pytest.mark.process
def test_bootstrap_error_is_that_of_the_regression() -> None:
    """With one battle a prompt there is no clustering, and both say how sure the intercept is."""
    api = pytest.importorskip("statsmodels.api")
    battles = Battles(800)
    judgments = [
        ArenaJudgment(j.prompt, j.category, j.judge, "B>A" if won else "A>B", "A>B" if won else "B>A")
        for j in battles.judgments
        for won in [j.baseline_first in ("B>A", "B>>A")]
    ]
    (score,) = score_by_judge_and_category(judgments, styles=battles.styles)
    assert score.style is not None
    prompts = sorted(battles.styles)
    features = style_differences([battles.styles[prompt] for prompt in prompts])
    outcomes = np.array([float(j.model_first == "A>B") for j in judgments])
    fit = api.GLM(outcomes, api.add_constant(features), family=api.families.Binomial()).fit()
    share = score.style.win_rate.value / 100
    assert score.style.win_rate.standard_error == pytest.approx(
        100 * share * (1 - share) * fit.bse[0], rel=0.1
    )


def test_a_feature_that_never_differs_is_left_out() -> None:
    battles = Battles(100)
    battles.styles = {
        prompt: StyledPair(Style(pair.model.length), Style(pair.baseline.length))
        for prompt, pair in battles.styles.items()
    }
    control = battles.control()
    assert control.coefficients["length"] != 0
    assert [control.coefficients[name] for name in ("headers", "lists", "bold")] == [0, 0, 0]


def test_too_few_prompts_are_not_controlled() -> None:
    battles = Battles(49)
    (score,) = score_by_judge_and_category(battles.judgments, styles=battles.styles)
    assert score.style is None
    assert score.win_rate is not None


@pytest.mark.process
def test_a_model_that_always_wins_still_has_a_rate() -> None:
    battles = Battles(60)
    won = [ArenaJudgment(j.prompt, j.category, j.judge, "B>A", "A>B") for j in battles.judgments]
    (score,) = score_by_judge_and_category(won, styles=battles.styles)
    assert score.style is not None
    assert score.style.win_rate.value == pytest.approx(100, abs=0.1)


def test_a_judged_prompt_without_styles_is_named() -> None:
    battles = Battles(60)
    del battles.styles["p0007"]
    with pytest.raises(ValueError, match=r"lack 1 judged prompts, such as 'p0007'"):
        score_by_judge_and_category(battles.judgments, styles=battles.styles)


# test_pairwise_healthbench


@pytest.mark.parametrize(
    ("points", "met", "expected"),
    [
        ([7, 5, 10, -6], [True, False, True, True], 0.5),
        ([7, 5, 10, -6], [True, True, True, False], 1.0),
        ([5, -6], [False, True], -1.2),
        ([5], [False], 0.0),
        ([-6, -1], [True, False], None),
        ([], [], None),
    ],
)
def test_points_met_as_a_share_of_those_within_reach(
    points: list[float], met: list[bool], expected: float | None
) -> None:
    assert healthbench_score(points, met) == expected


def test_each_rubric_item_needs_a_verdict() -> None:
    with pytest.raises(ValueError, match="2 items, 1 verdicts"):
        healthbench_score([1, 2], [True])


def test_only_the_mean_is_clipped() -> None:
    assert clipped_mean([-1.0, 0.5, 1.0], [-1.0] * 3).mean == pytest.approx(1 / 6)
    below = clipped_mean([-1.0, -0.8, 0.1], [-2.0] * 3)
    assert below.mean == 0.0
    assert below.bootstrap_std is not None
    assert below.bootstrap_std < np.std([-1.0, -0.8, 0.1]) / np.sqrt(3) / 4  # most resamples are clipped too


def test_the_bootstrap_deviation_is_the_error_of_the_mean() -> None:
    scores = np.random.default_rng(42).uniform(0.2, 0.8, size=500).tolist()
    result = clipped_mean(scores, [-0.5] * 500)
    assert result.n == 500
    assert result.bootstrap_std == pytest.approx(np.std(scores) / np.sqrt(500), rel=0.07)
    assert result == clipped_mean(scores, [-0.5] * 500)
    assert result != clipped_mean(scores, [-0.5] * 500, seed=1)


def test_its_interval_knows_how_far_down_the_scores_can_go_and_ends_at_0() -> None:
    scores = [1.0, 0.9, 1.0, 0.2, 0.6]
    plain = clustered_mean(scores, range(5))
    assert clipped_mean(scores, [0.0] * 5).bounds == (plain.low, plain.high)
    deeper = clipped_mean(scores, [-1.0, -2.0, 0.0, -1.0, -1.0]).bounds
    assert deeper is not None
    assert plain.low is not None
    assert 0 < deeper.low < plain.low
    around = clipped_mean([-0.5, 0.4, 0.1], [-1.0] * 3).bounds
    assert around is not None
    assert (around.low, 0.2 < around.high < 0.8) == (0.0, True)


def test_surely_below_0_its_interval_is_that_of_zeros() -> None:
    far_below = clipped_mean([-1.0 + n / 1000 for n in range(40)], [-1.0] * 40)
    zeros = clustered_mean([0.0] * 40, range(40))
    assert (far_below.mean, far_below.bounds) == (0.0, (zeros.low, zeros.high))


def test_nothing_has_no_mean_and_a_failure_is_no_value() -> None:
    assert clipped_mean([], []) == (None, None, None, 0)
    with pytest.raises(ValueError, match="leave out what has no score"):
        clipped_mean([0.5, float("nan")], [0.0, 0.0])
