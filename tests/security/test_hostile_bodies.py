"""What a host sends is data: whatever its bytes are, they become an answer or the model's error.

Every body is sent as an answer and as each kind of refusal, through the whole of our HTTP layer.
"""

from __future__ import annotations

import json
import random

import pytest
from fakes.openai_chat import Answer, Raw, Server, fake

from coeval.core.errors import AskError, ModelError, RateLimited, ServerFault
from coeval.core.model import ModelSpec
from coeval.core.records import Completion, Message, Request, Usage
from coeval.models.catalog import HOSTS
from coeval.models.dialects.openai_chat import OPENAI_CHAT
from coeval.models.hosted import HostedModel
from coeval.models.hosts.address import ModelAddress
from coeval.models.pacing.admission import Admission
from coeval.models.pacing.limits import Limiter
from coeval.models.transport.http import Endpoint, Http

DEEP = 100_000
GOOD = json.dumps(
    {
        "choices": [{"message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 11, "completion_tokens": 3},
    }
).encode()


def content(value: bytes) -> bytes:
    return GOOD.replace(b'"ok"', value)


def usage(value: bytes) -> bytes:
    return GOOD.replace(b'{"prompt_tokens": 11, "completion_tokens": 3}', value)


def beside(value: bytes) -> bytes:
    """A good answer with one field more, which we do not read."""
    return GOOD[:-1] + b', "more": ' + value + b"}"


def error(value: bytes) -> bytes:
    return b'{"error": {"message": "slow down", "code": ' + value + b"}}"


ENDLESS = b"1" + b"0" * 5000
BODIES: dict[str, bytes] = {
    "nothing": b"",
    "blank": b" \n",
    "a NUL": b"\0",
    "NULs": b"\0" * 4096,
    "no UTF-8": b"\xff\xfe\xfd",
    "no UTF-8 in the text": content(b'"\xff\xfe"'),
    "a cut-off character": content(b'"\xe2\x82"'),
    "an overlong character": content(b'"\xc0\xaf"'),
    "a surrogate in bytes": content(b'"\xed\xa0\x80"'),
    "a lone surrogate": content(rb'"\ud800"'),
    "a lone low surrogate": content(rb'"\udc00"'),
    "no UTF-8 in a key": b'{"\xff": 1, ' + GOOD[1:],
    "no UTF-8 in a message": error(b'"\xff\xfe"'),
    "UTF-16 that ends within a character": GOOD.decode().encode("utf-16")[:-1],
    "UTF-32 of no characters": b"\xff\xfe\0\0" + b"\xff" * 64,
    "deep lists": b"[" * DEEP + b"]" * DEEP,
    "deep lists left open": b"[" * DEEP,
    "deep objects": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "a deep content": content(b"[" * DEEP + b"]" * DEEP),
    "something deep beside": beside(b"[" * DEEP + b"]" * DEEP),
    "a deep error": b'{"error": ' + b"[" * DEEP + b"]" * DEEP + b"}",
    "1e400": b"1e400",
    "1e400 as the content": content(b"1e400"),
    "1e400 as an error's code": error(b"1e400"),
    "endless digits": ENDLESS,
    "endless digits as an error's code": error(ENDLESS),
    "endless digits beside": beside(ENDLESS),
    "many digits as an error's code": error(b"9" * 4000),
    "NaN": content(b"NaN"),
    "infinity": content(b"-Infinity"),
    "two values": GOOD + GOOD,
    "a byte order mark": b"\xef\xbb\xbf" + GOOD,
    "no choices": b'{"choices": []}',
    "choices of another kind": b'{"choices": {"message": 1}}',
    "a finish reason of another kind": GOOD.replace(b'"stop"', b"[1e400]"),
    "an error of another kind": b'{"error": [[["' + b"x" * 70_000 + b'"]]]}',
}
STATUSES = (200, 400, 404, 429, 500)


async def no_wait(seconds: float) -> None:
    """A retry's wait, without the waiting."""


def address_of(spec: ModelSpec, server: Server) -> ModelAddress:
    path = OPENAI_CHAT.path(spec)
    return ModelAddress(spec, HOSTS["openai"], OPENAI_CHAT, server.url, path, None, None)


async def asked(*script: Raw | Answer) -> Completion:
    async with fake(*script) as server:
        http = Http(sleep=no_wait)
        endpoint = Endpoint(server.url, None, Limiter())
        spec = ModelSpec(name="m", interface="openai", model="gpt-4o-mini", timeout_s=30.0)
        model = HostedModel(address_of(spec, server), http, endpoint, Admission("m"))
        try:
            return await model.complete(Request((Message("user", "hello"),)))
        finally:
            await http.aclose()


async def outcome(*script: Raw | Answer) -> Completion | ModelError:
    try:
        return await asked(*script)
    except ModelError as error:
        return error


def test_there_are_as_many_bodies_as_the_page_on_security_says() -> None:
    assert len(BODIES) == 36


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("status", STATUSES)
async def test_any_body_is_an_answer_or_the_error_of_its_status(status: int, body: bytes) -> None:
    told = await outcome(*[Raw(body, status)] * 8)
    if isinstance(told, ModelError):
        inner = {502} if status == 200 and body.startswith(b'{"error"') else set()
        assert told.status in {status} | inner
        assert len(str(told)) < 1000
        str(told).encode()  # it can be written to any file
    else:
        assert status == 200
        told.text.encode()


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("status", [429, 500])
async def test_a_passing_refusal_is_tried_again_whatever_its_body(status: int, body: bytes) -> None:
    answer = await asked(Raw(body, status), Answer("fine"))
    assert (answer.text, answer.attempts) == ("fine", 2)


@pytest.mark.slow
async def test_random_damage_of_bodies_never_ends_in_anything_else() -> None:
    """600 answers and errors with bytes changed, cut, repeated or put in; each is asked for at most twice."""
    draw = random.Random(9)
    bodies = [_damaged(draw.choice([GOOD, error(b'"rate_limit"'), usage(b"{}")]), draw) for _ in range(600)]
    async with fake() as server:
        http = Http(sleep=no_wait)
        spec = ModelSpec(name="m", interface="openai", model="gpt-4o-mini", timeout_s=30.0)
        try:
            for body in bodies:
                endpoint = Endpoint(server.url, None, Limiter())
                model = HostedModel(address_of(spec, server), http, endpoint, Admission("m"))
                server.script.extend([Raw(body, draw.choice(STATUSES))] * 2)
                try:
                    (await model.complete(Request((Message("user", "hello"),)))).text.encode()
                except AskError as told:
                    str(told).encode()
                server.script.clear()
        finally:
            await http.aclose()


def _damaged(body: bytes, draw: random.Random) -> bytes:
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(body) + 1)
        to = min(len(body), at + draw.randint(0, 8))
        put = draw.choice(
            [
                b"",
                draw.randbytes(3),
                b"1e999",
                ENDLESS,
                b"[" * DEEP,
                b"\\ud800",
                b'"',
                b"-",
                b"null",
                body[at:to] * 3,
            ]
        )
        body = body[:at] + put + body[to:]
    return body


NOT_BOOKED = {
    "left out": b"{}",
    "null": b"null",
    "null counts": b'{"prompt_tokens": null, "completion_tokens": null}',
    "negative": b'{"prompt_tokens": -5, "completion_tokens": -1}',
    "over 2**53": b'{"prompt_tokens": 9007199254740993, "completion_tokens": 99999999999999999999999}',
    "endless digits": b'{"prompt_tokens": %b, "completion_tokens": -1}' % ENDLESS,
    "1e400": b'{"prompt_tokens": 1e400, "completion_tokens": 1e-1}',
    "more than any context": b'{"prompt_tokens": 1000000000, "completion_tokens": 1000000000}',
    "half a token": b'{"prompt_tokens": 11.5, "completion_tokens": 0.5}',
    "text": b'{"prompt_tokens": "11", "completion_tokens": "3"}',
    "truth values": b'{"prompt_tokens": true, "completion_tokens": true}',
    "a list": b"[11, 3]",
    "deep": b"[" * 500 + b"]" * 500,
}


@pytest.mark.parametrize("told", NOT_BOOKED.values(), ids=NOT_BOOKED)
async def test_token_counts_that_cannot_be_are_not_booked_and_cost_no_answer(told: bytes) -> None:
    answer = await asked(Raw(usage(told)))
    assert (answer.text, answer.usage, answer.attempts) == ("ok", Usage(0, 0, uncounted=True), 1)


async def test_one_count_that_cannot_be_does_not_spoil_the_other() -> None:
    answer = await asked(Raw(usage(b'{"prompt_tokens": 11, "completion_tokens": -3}')))
    assert answer.usage == Usage(11, 0, uncounted=True)
    answer = await asked(Raw(usage(b'{"prompt_tokens": 11.0, "completion_tokens": 3}')))
    assert answer.usage == Usage(11, 3)


async def test_the_reason_is_told_in_words() -> None:
    with pytest.raises(ServerFault, match="nested too deep"):
        await asked(*[Raw(BODIES["something deep beside"])] * 2)
    with pytest.raises(ServerFault, match="not UTF-8"):
        await asked(*[Raw(BODIES["no UTF-8 in the text"])] * 2)
    with pytest.raises(RateLimited, match="429"):
        await asked(*[Raw(BODIES["deep lists"], 429)] * 8)
