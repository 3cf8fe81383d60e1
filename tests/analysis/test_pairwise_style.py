from __future__ import annotations

import numpy as np
import pytest

from coeval.analysis.pairwise.arena import style_differences
from coeval.analysis.pairwise.pairwise_models import (
    VERDICTS,
    ArenaJudgment,
    Style,
    StyleControl,
    StyledPair,
    arena_scores,
    markdown_style,
)


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
        (score,) = arena_scores(self.judgments, styles=self.styles)
        assert score.style is not None
        return score.style


def test_a_liking_for_length_is_taken_out() -> None:
    battles = Battles()
    (score,) = arena_scores(battles.judgments, styles=battles.styles)
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


def test_bootstrap_error_is_that_of_the_regression() -> None:
    """With one battle a prompt there is no clustering, and both say how sure the intercept is."""
    api = pytest.importorskip("statsmodels.api")
    battles = Battles(800)
    judgments = [
        ArenaJudgment(j.prompt, j.category, j.judge, "B>A" if won else "A>B", "A>B" if won else "B>A")
        for j in battles.judgments
        for won in [j.baseline_first in ("B>A", "B>>A")]
    ]
    (score,) = arena_scores(judgments, styles=battles.styles)
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
    (score,) = arena_scores(battles.judgments, styles=battles.styles)
    assert score.style is None
    assert score.win_rate is not None


def test_a_model_that_always_wins_still_has_a_rate() -> None:
    battles = Battles(60)
    won = [ArenaJudgment(j.prompt, j.category, j.judge, "B>A", "A>B") for j in battles.judgments]
    (score,) = arena_scores(won, styles=battles.styles)
    assert score.style is not None
    assert score.style.win_rate.value == pytest.approx(100, abs=0.1)


def test_a_judged_prompt_without_styles_is_named() -> None:
    battles = Battles(60)
    del battles.styles["p0007"]
    with pytest.raises(ValueError, match=r"lack 1 judged prompts, such as 'p0007'"):
        arena_scores(battles.judgments, styles=battles.styles)
