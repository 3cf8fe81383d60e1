"""What the redactor takes out of texts, and what it leaves alone."""

from __future__ import annotations

import random
import string
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from secret_encodings import ENCODINGS, MORE_ENCODINGS, left_of, pieces

from coeval.core.redaction import REDACTED, Redactor

Random = random.Random
ALPHANUMERIC = string.ascii_letters + string.digits

KINDS: dict[str, Callable[[Random], str]] = {
    "sk-proj": lambda rng: "sk-proj-" + _drawn(rng, ALPHANUMERIC + "_-", 40),
    "gsk": lambda rng: "gsk_" + _drawn(rng, ALPHANUMERIC, 52),
    "short": lambda rng: _drawn(rng, ALPHANUMERIC, 12),
    "hexadecimal": lambda rng: _drawn(rng, "0123456789abcdef", 32),
    "aws": lambda rng: _drawn(rng, ALPHANUMERIC + "+/", 40),
    "password": lambda rng: _drawn(rng, ALPHANUMERIC + "!$%&()*+,./:;<=>?@[]^{|}~#", 20),
    "token of three parts": lambda rng: ".".join(
        ("eyJhbGciOiJIUzI1NiJ9", _drawn(rng, ALPHANUMERIC, 60), _drawn(rng, ALPHANUMERIC + "-_", 43))
    ),
}

HONEST = (
    "Use `pip install scikit-learn`; sk-learn is its older name, and 123456789 rows took 95 % of 2024.",
    "export OPENAI_API_KEY=sk-... and keep it to yourself; keys begin with sk-proj- or sk-ant-api03-.",
    "The header of such a token, eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9, says how it is signed.",
    'def f(x):\n    return {"a": x % 7, "b": "\\u00e9\\n", "c": 0x73}  # see https://me:pass@host/x?key=abc#115;\n',
    "Das Wort »Schlüssel« — 鍵, مفتاح — steht hier ohne einen. Authorization: Bearer <your-key>",
    "password, EMPTY, ollama, not-needed, none, test, sk-no-key-required, lm-studio",
    "0f1e2d3c 4b5a6978 88a7b6c5 d4e3f201 and %73%6B is 'sk', &#115;&#107; too; MTIzNDU2Nzg5MDEyMzQ1Ng==",
)


def _drawn(rng: Random, alphabet: str, length: int) -> str:
    return "".join(rng.choices(alphabet, k=length))


def secrets_of(kind: str, count: int = 12) -> list[str]:
    rng = Random(kind)
    return [KINDS[kind](rng) for _ in range(count)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("encoding", ENCODINGS | MORE_ENCODINGS)
def test_no_spelling_of_a_secret_stays_in_an_answer(encoding: str, kind: str) -> None:
    encode = (ENCODINGS | MORE_ENCODINGS)[encoding]
    for secret in secrets_of(kind):
        for text in (encode(secret), f"You said {encode(secret)} to me: 'x'.", f"Ж{encode(secret)}\n\n…"):
            clean = Redactor([secret]).answer(text)
            assert REDACTED in clean
            assert left_of(secret, clean) == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("length", [8, 9, 11])
def test_what_a_cut_leaves_of_a_secret_goes_too(kind: str, length: int) -> None:
    for secret in secrets_of(kind):
        redactor = Redactor([secret])
        head, tail, middle = secret[:length], secret[-length:], secret[1 : length + 1]
        for text in (
            f"The key is {head}",
            f'{{"error": "key {head}',
            f"no {head}… known",
            f"{head}*****",
        ):
            assert head not in redactor.answer(text)
            assert head not in redactor.message(text)
        assert tail not in redactor.answer(f"{tail} is no key")
        assert middle not in redactor.message(f"not {middle} either")


def test_a_long_part_is_taken_out_wherever_it_stands() -> None:
    secret = "sk-proj-9aK2mQ7xR4vT1zW8"
    assert Redactor([secret]).answer(f"It begins with {secret[:21]}, I think") == (
        f"It begins with {REDACTED}, I think"
    )


@pytest.mark.parametrize("text", HONEST)
def test_honest_answers_stay_as_they_are(text: str) -> None:
    for kind in KINDS:
        for secret in secrets_of(kind):
            assert Redactor([secret]).answer(text) == text


@pytest.mark.parametrize(
    "weak",
    ["test", "ollama", "EMPTY", "none", "not-needed", "sk-no-key-required", "lm-studio", "Password", "secret",
     "12345678", "xxxxxxxxxxxx", "sk-xxxx", "s3cret", "your-api-key-here"],
)  # fmt: skip
def test_what_is_no_credential_worth_the_name_damages_no_answer(weak: str) -> None:
    text = f"The word {weak} is a word like any other: {weak.upper()}, x{weak}x."
    assert Redactor([weak, "", "sk-proj-9aK2mQ7xR4vT1zW8"]).answer(text) == text


def test_a_short_secret_is_taken_out_of_messages_as_a_word_of_its_own() -> None:
    redactor = Redactor(["s3cr3t", "test"])
    assert redactor.message("no user with s3cr3t, xs3cr3tx or test") == (
        f"no user with {REDACTED}, xs3cr3tx or test"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Incorrect API key provided: sk-proj-********wxyz.", f"Incorrect API key provided: {REDACTED}."),
        ("Authorization: Bearer abc.def/ghi=", f"Authorization: Bearer {REDACTED}"),
        ("the key AIzaSyA1234567890abcdef is wrong", f"the key {REDACTED} is wrong"),
        ("AKIAIOSFODNN7EXAMPLE may not", f"{REDACTED} may not"),
        ("see https://me:pw@host:8/a?api_key=abc&page=2#x", "see https://***@host:8/a?api_key=***&page=2#x"),
        ("no route /sk-0123456789ab/v1", f"no route /{REDACTED}/v1"),
        ("task-oriented sk-learning hf_hub_download", "task-oriented sk-learning hf_hub_download"),
    ],
)
def test_what_looks_like_a_key_is_taken_out_of_messages(text: str, expected: str) -> None:
    assert Redactor().message(text) == expected


def test_whoever_wants_to_know_is_told_that_an_answer_held_a_secret() -> None:
    told: list[str] = []
    redactor = Redactor(["sk-proj-9aK2mQ7xR4vT1zW8"], lambda: told.append("found"))
    for text in ("nothing here", "sk-proj-… it is", "it is sk-proj-9aK2mQ7xR4vT1zW8"):
        redactor.answer(text)
    assert told == ["found", "found"]


words = st.text(alphabet=st.characters(codec="utf-8"), max_size=40)
secrets = st.builds(
    lambda seed, kind: KINDS[kind](Random(seed)), st.integers(0, 10**6), st.sampled_from(sorted(KINDS))
)


@given(words, words, secrets, st.sampled_from(sorted(ENCODINGS | MORE_ENCODINGS)))
def test_no_surroundings_hide_a_secret(before: str, after: str, secret: str, encoding: str) -> None:
    written = (ENCODINGS | MORE_ENCODINGS)[encoding](secret)
    assert left_of(secret, Redactor([secret]).answer(f"{before} {written} {after}")) == []
    assert left_of(secret, Redactor([secret]).message(f"{before} {written} {after}")) == []


@given(words, st.lists(secrets, max_size=3))
def test_a_text_that_holds_no_part_of_a_secret_is_an_answer_as_it_is(text: str, known: list[str]) -> None:
    assert Redactor(known).answer(text) == text


@given(words, secrets, st.data())
def test_nothing_around_a_secret_is_lost(text: str, secret: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(text)))
    before, after = text[:at] + " ", " " + text[at:]
    assert Redactor([secret]).answer(before + secret + after) == before + REDACTED + after


def test_a_text_full_of_beginnings_takes_no_longer_than_its_length_asks_for() -> None:
    """At 1 MiB: a search that grew with the square of the length would take hours."""
    secret = "sk-proj-9aK2mQ7xR4vT1zW8"
    text = f"x {secret[:11]} " * 80_000
    assert Redactor([secret]).answer(f"{text}{secret}.") == f"{text}{REDACTED}."
    message = Redactor([secret]).message(text)
    assert not any(piece in message for piece in pieces(secret))
