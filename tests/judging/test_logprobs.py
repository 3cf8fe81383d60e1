from __future__ import annotations

import pytest

from coeval.core.errors import Unparsable
from coeval.core.records import Completion, TokenLogprob
from coeval.judging.pairwise import answer_logprobs, is_lost_in_reasoning


def token(text: str, **top: float) -> TokenLogprob:
    return TokenLogprob(text, -0.1, top)


def test_the_first_token_of_a_short_answer() -> None:
    said = Completion("M", logprobs=(token("M", M=-0.1, m=-2.3),))
    assert answer_logprobs(said) == {"M": -0.1, "m": -2.3}


def test_a_token_without_alternatives_is_its_own_list() -> None:
    assert answer_logprobs(Completion("M", logprobs=(token("M"),))) == {"M": -0.1}


@pytest.mark.parametrize(
    "tokens",
    [
        ("<think>", "m", " or", " M", "?", "</think>", "\n\n", "M", "<|im_end|>"),
        (
            "Better",
            ":",
            " M",
            " wins",
            "\n",
            "M",
        ),
        ("<think>", "ĠM", "</think>", "Ċ", "M"),
    ],
)
def test_reasoning_is_passed_over(tokens: tuple[str, ...]) -> None:
    last = max(number for number, text in enumerate(tokens) if text == "M")
    logprobs = tuple(token(text, right=-1.0) if n == last else token(text) for n, text in enumerate(tokens))
    assert answer_logprobs(Completion("M", reasoning="…", logprobs=logprobs)) == {"right": -1.0}


def test_an_answer_spelt_in_other_signs_begins_after_the_reasoning() -> None:
    logprobs = (token("<think>"), token("x"), token("</think>"), token("\n"), token("Ā", right=-1.0))
    assert answer_logprobs(Completion("é", reasoning="x", logprobs=logprobs)) == {"right": -1.0}


def test_a_blank_first_token_still_has_alternatives() -> None:
    assert answer_logprobs(Completion(" ", logprobs=(token(" ", M=-1.0),))) == {"M": -1.0}


@pytest.mark.parametrize(
    "said",
    [
        Completion("", reasoning="still thinking", logprobs=(token("still"),), truncated=True),
        Completion("", logprobs=(token("<think>"),), truncated=True),
    ],
)
def test_a_reply_that_is_all_reasoning_has_no_answer(said: Completion) -> None:
    assert is_lost_in_reasoning(said)
    with pytest.raises(Unparsable, match="before its answer"):
        answer_logprobs(said)


def test_without_log_probabilities_there_is_nothing_to_read() -> None:
    with pytest.raises(Unparsable, match="without log-probabilities"):
        answer_logprobs(Completion("M"))
