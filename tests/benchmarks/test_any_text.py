"""No text makes a verifier fail, and none makes it slow."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_ifbench_instructions import CASES as IFBENCH_CASES
from test_ifeval_instructions import CASES as IFEVAL_CASES

from coeval.benchmarks.language.text_analysis import Language
from coeval.benchmarks.tasks.following import INSTRUCTIONS, FollowingItem, check, score_prompt

ARGUMENTS: dict[str, dict[str, Any]] = {kind: kwargs for kind, kwargs, *_ in IFEVAL_CASES + IFBENCH_CASES}
ALL = FollowingItem(0, "", list(INSTRUCTIONS), [ARGUMENTS[kind] for kind in INSTRUCTIONS])
LANGUAGE = Language()

MARKS = st.text(
    st.sampled_from("aZé 1.,?!:;-*#\n\t\r\"'“”()[]{}<>|`~_\\/🙂日\u0301\u2028\x00\x1c\xa0"), max_size=60
)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.text(max_size=60) | MARKS)
def test_no_text_makes_a_verifier_fail(text: str) -> None:
    assert score_prompt(ALL, text, LANGUAGE).raised == {}


MEGABYTE = 1_000_000
CHARACTERS = random.Random(0).choices("abc.?!'\"-,*[](){}<>`\n ", k=MEGABYTE)


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        pytest.param(unit * (MEGABYTE // len(unit)), id=repr(unit))
        for unit in (
            "The old run_flow rose. ",
            ". ",
            "?",
            "[",
            "<<",
            "\n",
            "* a\n",
            "a@",
            '"',
            "'",
            "a,b\n",
            "A. ",
        )
    ]
    + [pytest.param("".join(CHARACTERS), id="any order")],
)
def test_no_instruction_takes_long_over_a_megabyte(text: str) -> None:
    """Time that grows with the square of the length would outlast the runner's limit."""
    for kind, kwargs in ARGUMENTS.items():
        check(kind, kwargs, text, LANGUAGE)
