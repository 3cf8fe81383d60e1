"""What the redactor takes out of texts, and what it leaves alone."""

from __future__ import annotations

import json
import random
import string
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cli.coeval_process import called
from fakes.openai_chat import Answer, Behaviour, Fault, Raw, fake
from hypothesis import assume, given
from hypothesis import strategies as st
from pipeline.experiments import Lab, content, model, over_http, quiz, served, task
from secret_encodings import ENCODINGS, MORE_ENCODINGS, Encoding, left_of, pieces

from coeval.benchmarks.assets.library import Library, Presence, read_records
from coeval.core.errors import ModelError
from coeval.core.model import ModelSpec
from coeval.core.records import Message, Request
from coeval.core.redaction import REDACTED, Redactor
from coeval.models.keys import Keys
from coeval.models.open import Models
from coeval.models.transport.faults import excerpt

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


@pytest.mark.process
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("encoding", ENCODINGS | MORE_ENCODINGS)
def test_no_spelling_of_a_secret_stays_in_an_answer(encoding: str, kind: str) -> None:
    encode = (ENCODINGS | MORE_ENCODINGS)[encoding]
    for secret in secrets_of(kind):
        for text in (encode(secret), f"You said {encode(secret)} to me: 'x'.", f"Ж{encode(secret)}\n\n…"):
            clean = Redactor([secret]).redact_answer(text)
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
            assert head not in redactor.redact_answer(text)
            assert head not in redactor.redact_message(text)
        assert tail not in redactor.redact_answer(f"{tail} is no key")
        assert middle not in redactor.redact_message(f"not {middle} either")


def test_a_long_part_is_taken_out_wherever_it_stands() -> None:
    secret = "sk-proj-9aK2mQ7xR4vT1zW8"
    assert Redactor([secret]).redact_answer(f"It begins with {secret[:21]}, I think") == (
        f"It begins with {REDACTED}, I think"
    )


@pytest.mark.parametrize("text", HONEST)
def test_honest_answers_stay_as_they_are(text: str) -> None:
    for kind in KINDS:
        for secret in secrets_of(kind):
            assert Redactor([secret]).redact_answer(text) == text


@pytest.mark.parametrize(
    "weak",
    ["test", "ollama", "EMPTY", "none", "not-needed", "sk-no-key-required", "lm-studio", "Password", "secret",
     "12345678", "xxxxxxxxxxxx", "sk-xxxx", "s3cret", "your-api-key-here"],
)  # fmt: skip
def test_what_is_no_credential_worth_the_name_damages_no_answer(weak: str) -> None:
    text = f"The word {weak} is a word like any other: {weak.upper()}, x{weak}x."
    assert Redactor([weak, "", "sk-proj-9aK2mQ7xR4vT1zW8"]).redact_answer(text) == text


def test_a_short_secret_is_taken_out_of_messages_as_a_word_of_its_own() -> None:
    redactor = Redactor(["s3cr3t", "test"])
    assert redactor.redact_message("no user with s3cr3t, xs3cr3tx or test") == (
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
    assert Redactor().redact_message(text) == expected


def test_whoever_wants_to_know_is_told_that_an_answer_held_a_secret() -> None:
    reported: list[str] = []
    redactor = Redactor(["sk-proj-9aK2mQ7xR4vT1zW8"], lambda: reported.append("found"))
    for text in ("nothing here", "sk-proj-… it is", "it is sk-proj-9aK2mQ7xR4vT1zW8"):
        redactor.redact_answer(text)
    assert reported == ["found", "found"]


words = st.text(alphabet=st.characters(codec="utf-8"), max_size=40)
secrets = st.builds(
    lambda seed, kind: KINDS[kind](Random(seed)), st.integers(0, 10**6), st.sampled_from(sorted(KINDS))
)


@pytest.mark.process
@given(words, words, secrets, st.sampled_from(sorted(ENCODINGS | MORE_ENCODINGS)))
def test_no_surroundings_hide_a_secret(before: str, after: str, secret: str, encoding: str) -> None:
    written = (ENCODINGS | MORE_ENCODINGS)[encoding](secret)
    assert left_of(secret, Redactor([secret]).redact_answer(f"{before} {written} {after}")) == []
    assert left_of(secret, Redactor([secret]).redact_message(f"{before} {written} {after}")) == []


@pytest.mark.process
@given(words, st.lists(secrets, max_size=3))
def test_a_text_that_holds_no_part_of_a_secret_is_an_answer_as_it_is(text: str, known: list[str]) -> None:
    assert Redactor(known).redact_answer(text) == text


@pytest.mark.process
@given(words, secrets, st.data())
def test_nothing_around_a_secret_is_lost(text: str, secret: str, data: st.DataObject) -> None:
    assume(secret[-1].isalnum())  # what follows "&" may be a cut-off "&amp;"
    at = data.draw(st.integers(0, len(text)))
    before, after = text[:at] + " ", " " + text[at:]
    assert Redactor([secret]).redact_answer(before + secret + after) == before + REDACTED + after


@pytest.mark.system
def test_a_text_full_of_beginnings_takes_no_longer_than_its_length_asks_for() -> None:
    """At 1 MiB: a search that grew with the square of the length would take hours."""
    secret = "sk-proj-9aK2mQ7xR4vT1zW8"
    text = f"x {secret[:11]} " * 80_000
    assert Redactor([secret]).redact_answer(f"{text}{secret}.") == f"{text}{REDACTED}."
    message = Redactor([secret]).redact_message(text)
    assert not any(piece in message for piece in pieces(secret))


# A credential in everything that a host may say, in every spelling and at every cut: 80 cases over HTTP.

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


async def reported(behaviour: Behaviour) -> str:
    """All that comes of asking."""
    async with fake(*[behaviour] * 2) as server:
        spec = ModelSpec(name="m", interface="vllm", model="m", base_url=server.url, access_key=KEY)
        async with Models([spec], Keys.load(None, env={}, cwd=_NOWHERE, home=_NOWHERE)) as models:
            try:
                answer = await models["m"].complete(Request((Message("user", "hello"),)))
            except ModelError as error:
                return str(error)
    return repr(answer)


@pytest.mark.parametrize("spelling", ["as it is", "in base64", "half of it, and an ellipsis"])
@pytest.mark.parametrize("place", PLACES)
async def test_no_form_of_a_key_is_taken_over_from_a_host(spelling: str, place: str) -> None:
    said = await reported(PLACES[place](at_the_cut(SPELLINGS[spelling](KEY), place)))
    assert left_of(KEY, said) == []
    assert REDACTED[:2] in said  # an error is cut after it, too


@pytest.mark.process
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


# What holds no key stays as it is: real answers, code, whatever key a user has, and the scores with them.

ROOT = Path(__file__).parents[2]
PLAIN = (
    "test", "sk-test", "EMPTY", "none", "ollama", "lm-studio", "not-needed", "local", "high", "medium",
    "plot", "red", "12345678", "xxxxxxxxxxxx", "sk-no-key-required",
)  # fmt: skip
"""Keys that people give to servers which want none."""


def strong_secrets() -> list[str]:
    """Six keys of each kind."""
    return [kind(random.Random(f"{name} {number}")) for name, kind in KINDS.items() for number in range(6)]


def sources() -> Iterator[Path]:
    for pattern in ("src/**/*.py", "docs/**/*.md", "examples/*", "benchmark/*.yaml", "*.lock", "*.md"):
        yield from (path for path in ROOT.glob(pattern) if path.is_file())


@pytest.mark.process
def test_code_prose_hashes_and_addresses_are_answers_as_they_are() -> None:
    redactor = Redactor(strong_secrets())
    paths = list(sources())
    assert len(paths) > 300
    for path in paths:
        text = path.read_text(encoding="utf-8")
        assert redactor.redact_answer(text) == text, path


@pytest.mark.process
@pytest.mark.parametrize(
    "asset", ["arena-hard/baseline_o3_mini", "arena-hard/baseline_gemini", "alpaca-eval/baseline"]
)
def test_real_answers_of_models_stay_as_they_are(asset: str) -> None:
    presence, path = Library().presence(asset)
    if presence is not Presence.READY:
        pytest.skip(f"needs the benchmark's data: coeval datasets fetch {asset}")
    redactor = Redactor(strong_secrets())
    read = 0
    for record in read_records(path):
        for text in _texts(record):
            read += 1
            assert redactor.redact_answer(text) == text
    assert read > 1000


def _texts(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for item in value.values():
                yield from _texts(item)
        case list():
            for item in value:
                yield from _texts(item)


@pytest.mark.system
async def test_a_key_that_is_a_plain_word_changes_no_record_and_no_score(tmp_path: Path) -> None:
    """The words stand in prompts, labels and verdicts, and one run has each of them for a key."""
    models = [model("ann"), model("ben")]
    async with served(models) as host:

        async def run(name: str, key: str | None) -> Lab:
            entries = [over_http(entry, host) | ({"access_key": key} if key else {}) for entry in models]
            said = f"Use the words {', '.join(PLAIN)}."
            tasks = [task(description=said), quiz(description=said)]
            lab = Lab(tmp_path / name, models=entries, tasks=tasks)
            lab.folder.mkdir()
            assert (await lab.arun()).exit_code == 0
            return lab

        without = await run("without", None)
        for number, key in enumerate(PLAIN):
            with_key = await run(str(number), key)
            assert content(with_key) == content(without), key
            assert (with_key.path / "run.log").read_text().count("repeats a credential") == 0


async def test_that_an_answer_held_the_key_is_told_once_and_the_rest_of_it_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is a key and might be an honest word too is taken out, but never without a word."""
    async with fake(
        reply=lambda _: Answer('{"prompt": "Is password123 good?", "response": "No."}')
    ) as server:
        entry = model("ann", "teacher", "student") | {"interface": "vllm", "access_key": "password123"}
        entry["parameters"] = {"base_url": server.url}
        lab = Lab(tmp_path, models=[entry], tasks=[quiz()], settings={"probe_mode": "disable"})
        await lab.arun(progress=True)
    prompts = {record["prompt"] for record in lab.records("data_generation").values()}
    assert prompts == {f"Is {REDACTED} good?"}
    for reported in ((lab.path / "run.log").read_text(), capsys.readouterr().err):
        assert reported.count("repeats a credential in its answers") == 1
        assert "password123" not in reported


def answering(messages: list[dict[str, Any]]) -> Answer:
    """As a local model does that tells its name."""
    requested = messages[-1]["content"]
    if "High" in requested:
        return Answer(json.dumps({"plot": "High", "style": "Low"}))
    if "JSON" in requested:
        return Answer(json.dumps({"prompt": "Who are you?", "response": "I am qwen3-4b."}))
    return Answer("I am Qwen3-4B, served as qwen3-4b.")


@pytest.mark.process
@pytest.mark.parametrize(
    "key", ["qwen3-4b", "Qwen/Qwen3-4B", "qwen3-4b-of-team-7", "local-qwen3-4b", "qwen3-4b-qwen3-4b"]
)
async def test_a_key_that_is_or_holds_the_models_name_takes_the_name_out_of_nothing(
    tmp_path: Path, key: str
) -> None:
    """Usual with servers of one's own. A key that is more than a name never appears."""
    async with fake(reply=answering, keys=[key]) as server:
        local = model("qwen3-4b") | {
            "interface": "openai",
            "access_key": key,
            "parameters": {"model": "Qwen/Qwen3-4B", "base_url": server.url},
        }
        lab = Lab(tmp_path, [local], [task()])
        ended = await called(tmp_path, "run", "--config", lab.file)
        assert ended.code == 0, ended.err
        server.reply = lambda _: Answer(f"My key is {key}!")
        lab.tasks[0]["sampling"]["total"] = 4
        assert (await called(tmp_path, "run", "--config", lab.file, "--continue")).code == 3
        status = await called(tmp_path, "status", "--run", lab.path)
    answers = [record["response"] for record in lab.records("response_collection").values()]
    assert answers == ["I am Qwen3-4B, served as qwen3-4b."] * 3
    snapshot = (lab.path / "config.yaml").read_text()
    assert "model: Qwen/Qwen3-4B" in snapshot
    assert "access_key: '***'" in snapshot
    kept = [path for path in lab.path.rglob("*") if path.is_file()]
    whole = ended.out + ended.err + status.out + status.err + "".join(p.read_text() for p in kept)
    if key.lower() in ("qwen3-4b", "qwen/qwen3-4b"):
        assert "[redacted]" not in whole
    else:
        assert key not in whole
        assert "[redacted]" in whole


@pytest.mark.parametrize("key", ["a8f5f167f44f4964e6c998dee827110c", "sk-proj-9aK2mQ7xR4vT1zW8"])
def test_what_looks_like_a_key_is_no_name(key: str) -> None:
    said = f"it is {key}"
    assert key not in Redactor([key], names=[key, f"org/{key}"]).redact_answer(said)
    assert key not in Redactor([key], names=[key, f"org/{key}"]).redact_own_message(said)
