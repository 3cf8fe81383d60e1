"""A credential in everything that a host may say, in every spelling and at every cut: 80 cases over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from fakes.openai_chat import Answer, Behaviour, Fault, Raw, fake
from secret_encodings import ENCODINGS, Encoding, left_of

from coeval.core.errors import ModelError
from coeval.core.model import ModelSpec
from coeval.core.records import Message, Request
from coeval.core.redaction import REDACTED, Redactor
from coeval.models.keys import Keys
from coeval.models.open import Models
from coeval.models.transport.faults import excerpt

KEY = "sk-proj-9aK2mQ7xR4vT1zW8+/b5Nc3Yd6Lg0Hj"
_NOWHERE = Path("/nonexistent")
CUT = 300
"""Characters of an error's text that a message shows."""

SPELLINGS: dict[str, Encoding] = {
    **ENCODINGS,
    "with case changed": str.swapcase,
    "its first 8 signs, and cut": lambda key: key[:8],
    "half of it, and an ellipsis": lambda key: f"{key[:19]}…",
    "its last 8 signs, masked before": lambda key: f"****{key[-8:]}",
}
BEFORE = "The request was refused because it came with the key "
PLACES: dict[str, Callable[[str], Behaviour]] = {
    "answer": lambda said: Answer(said),
    "reasoning": lambda said: Answer("Yes.", message={"reasoning_content": said}),
    "finish reason": lambda said: Answer("Yes.", finish_reason=said),
    "error": lambda said: Fault(400, said, code=said),
    "page": lambda said: Raw(said.encode(), 404, "text/html"),
}


def at_the_cut(spelling: str, place: str) -> str:
    """A text that ends in the spelling; of an error, with the spelling across the character it is cut at."""
    if place not in ("error", "page"):
        return BEFORE + spelling
    return (BEFORE * 9)[: CUT - len(spelling) // 2] + spelling


async def told(behaviour: Behaviour) -> str:
    """All that comes of asking."""
    async with fake(*[behaviour] * 2) as server:
        spec = ModelSpec(name="m", interface="vllm", model="m", base_url=server.url, access_key=KEY)
        async with Models([spec], Keys.load(None, env={}, cwd=_NOWHERE, home=_NOWHERE)) as models:
            try:
                answer = await models["m"].complete(Request((Message("user", "hello"),)))
            except ModelError as error:
                return str(error)
    return repr(answer)


CASES = [(spelling, place) for place in PLACES for spelling in SPELLINGS]


def test_there_are_as_many_cases_as_the_page_on_security_says() -> None:
    assert len(CASES) == 80


@pytest.mark.parametrize(("spelling", "place"), CASES)
async def test_no_form_of_a_key_is_taken_over_from_a_host(spelling: str, place: str) -> None:
    said = await told(PLACES[place](at_the_cut(SPELLINGS[spelling](KEY), place)))
    assert left_of(KEY, said) == []
    assert REDACTED[:2] in said  # an error is cut after it, too


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_key_may_stand_anywhere_around_the_cut(spelling: str) -> None:
    redactor = Redactor([KEY])
    written = SPELLINGS[spelling](KEY)
    for start in range(CUT - len(written) - 2, CUT + 2):
        text = (BEFORE * 9)[:start]
        for said in (f"{text}{written}", f"{text}{written} and more", f"{text} {written}"):
            assert left_of(KEY, excerpt(said, redactor)) == []
            assert left_of(KEY, excerpt(said.encode(), redactor, 500)) == []


def test_a_key_across_the_end_of_what_is_read_of_an_error_shows_none_of_it() -> None:
    """16,384 characters of a body are looked at; blanks in it would bring its end into the message."""
    redactor = Redactor([KEY])
    for shown in range(len(KEY)):
        body = "refused" + " " * ((1 << 14) - 7 - shown) + KEY
        assert left_of(KEY, excerpt(body, redactor)) == []
