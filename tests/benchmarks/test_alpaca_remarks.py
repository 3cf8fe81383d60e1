from __future__ import annotations

import pytest

from coeval.analysis.pairwise.alpaca import LengthControl
from coeval.analysis.pairwise.rates import rate
from coeval.benchmarks.tasks.alpaca_eval import remarks_on


def controlled(value: float, n: int = 805) -> LengthControl:
    return LengthControl("length_controlled_v1", {}, rate(value, [value] * 2, n), 1.0, n)


@pytest.mark.parametrize(
    ("length_controlled", "win_rate", "factor"),
    [
        (12.2, 3.74, "3.6"),  # gpt4_gamed, which writes 68 characters
        (9.03, 2.76, "3.5"),  # text_davinci_001
        (19.6, 2.6, "9.1"),  # alpaca-7b, by the minimal formula
        (27.0, 73.0, "7.3"),
    ],
)
def test_rates_further_apart_than_published_ones_are_told(
    length_controlled: float, win_rate: float, factor: str
) -> None:
    [remark] = remarks_on(controlled(length_controlled), win_rate)
    assert f"differ extremely, their odds by a factor of {factor};" in remark


@pytest.mark.parametrize(
    ("length_controlled", "win_rate"),
    [
        (21.58, 9.4),  # gpt4_0613_concise
        (41.9, 22.92),  # gpt4_1106_preview_concise
        (27.23, 46.19),  # internlm2-chat-20b-ExPO
        (5.88, 2.59),  # alpaca-7b
        (0.05, 0.0),
        (99.95, 100.0),
    ],
)
def test_differences_as_published_and_those_at_the_very_ends_are_not(
    length_controlled: float, win_rate: float
) -> None:
    assert remarks_on(controlled(length_controlled), win_rate) == ()


def test_too_few_preferences_for_length_control_are_told() -> None:
    [remark] = remarks_on(controlled(55.0, 99), 50.0)
    assert "rests on 99 preferences; with fewer than 100" in remark
    assert remark.endswith("so it has no interval")
    assert remarks_on(controlled(55.0, 100), 50.0) == ()


def test_without_a_rate_there_is_nothing_to_say() -> None:
    assert remarks_on(None, 50.0) == ()
