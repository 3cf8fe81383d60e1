"""Every interface, asked as a run asks it, at a fake of its host that is strict about requests.

One test is one promise that holds whoever answers. To try another interface, write an `Interface` and
register it in ``registered.py``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
from conformance.interface import LEVELS, SECRET, Behaviour, Heard, Host, Interface, Said
from conformance.registered import NOT_ASKED_OVER_HTTP, REGISTERED

from coeval.core.errors import (
    AccessDenied,
    BadRequest,
    ContentFiltered,
    ModelError,
    NotFound,
    ServerFault,
    Unreadable,
)
from coeval.core.model import Model
from coeval.core.records import (
    TYPED_PARAMETERS,
    Completion,
    Message,
    ModelRole,
    Request,
    SamplingParameters,
    Schema,
    TokenLogprob,
    Usage,
)
from coeval.models.catalog import HOSTS
from coeval.models.keys import Keys
from coeval.models.open import Models
from coeval.models.transport.http import Http

HELLO = (Message("user", "Say hello, as JSON."),)
VALUES: dict[str, Any] = {
    "temperature": 0.3,
    "top_p": 0.9,
    "top_k": 40,
    "max_tokens": 321,
    "stop": ("END", "\n\n"),
    "seed": 7,
    "reasoning_effort": "low",
    "thinking_budget": 2048,
}
UNICODE = 'Grüß Gott – 你好, नमस्ते, 🏳️‍🌈 \u2028 \u0000 \U0010ffff “x” \\ " </script>'
EVERY_ATTEMPT = 8

every_interface = pytest.mark.parametrize("interface", REGISTERED, ids=repr)
# What the transport does of itself is the same for all hosts of a dialect.
every_dialect = pytest.mark.parametrize(
    "interface",
    {HOSTS[interface.name].dialect: interface for interface in reversed(REGISTERED)}.values(),
    ids=repr,
)


def of_those(interfaces: Iterable[Interface]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("interface", list(interfaces), ids=repr)


@dataclass
class Asking:
    """A model opened at a fake host."""

    interface: Interface
    host: Host
    model: Model
    waits: list[float] = field(default_factory=list)
    """Seconds that retries waited for, or would have: nothing waits here."""

    async def complete(self, request: Request) -> Completion:
        return await self.model.complete(request)

    @property
    def heard(self) -> list[Heard]:
        return [self.interface.heard(requested) for requested in self.host.requested]


@asynccontextmanager
async def asking(interface: Interface, *script: Behaviour, **fields: Any) -> AsyncIterator[Asking]:
    waits: list[float] = []

    async def no_wait(seconds: float) -> None:
        waits.append(seconds)

    nowhere = Path("/nonexistent")
    async with interface.serve(*script) as host:
        keys = Keys.load(None, env=interface.env, cwd=nowhere, home=nowhere)
        spec = interface.spec(host.url, **fields)
        async with Models([spec], keys, http=Http(sleep=no_wait)) as models:
            yield Asking(interface, host, models[spec.name], waits)


def ask(content: str = "hello", **fields: Any) -> Request:
    return Request(messages=(Message("user", content),), **{"purpose": "response_collection", **fields})


def test_every_interface_is_tried() -> None:
    assert {interface.name for interface in REGISTERED} == set(HOSTS) - NOT_ASKED_OVER_HTTP


# What is sent, and what comes back


@every_interface
async def test_a_plain_question_is_answered(interface: Interface) -> None:
    async with asking(interface, interface.says(Said("Servus."))) as it:
        completion = await it.complete(ask("Grüß Gott"))
    assert (completion.text, completion.finish_reason, completion.truncated) == ("Servus.", "stop", False)
    assert (completion.attempts, completion.refusal, completion.dropped) == (1, None, ())
    assert completion.latency_s > 0
    [heard] = it.heard
    assert (heard.model, list(heard.turns), heard.system) == (interface.model, [("user", "Grüß Gott")], None)
    assert heard.key is None or heard.key == SECRET


@every_interface
async def test_a_system_prompt_and_earlier_turns_arrive_as_such(interface: Interface) -> None:
    turns: list[tuple[ModelRole, str]] = [("user", "One?"), ("assistant", "Two."), ("user", "Three?")]
    messages = (Message("system", "Be brief."), *(Message(role, text) for role, text in turns))
    async with asking(interface) as it:
        await it.complete(Request(messages=messages))
    [heard] = it.heard
    assert (heard.system, list(heard.turns)) == ("Be brief.", turns)


@every_interface
@pytest.mark.parametrize("name", TYPED_PARAMETERS)
async def test_a_typed_parameter_is_translated_or_refused_by_name(interface: Interface, name: str) -> None:
    value = interface.values.get(name, VALUES[name])
    request = ask(sampling=SamplingParameters.of({name: value}))
    async with asking(interface, model=interface.models.get(name, interface.model)) as it:
        if name in interface.refuses | interface.hosts_refusal:
            with pytest.raises(BadRequest, match=name):
                await it.complete(request)
            assert len(it.host.requested) == (name in interface.hosts_refusal)
            return
        await it.complete(request)
    reported = it.heard[0].sampling[name]
    assert (tuple(reported) if name == "stop" else reported) == value


@every_dialect
async def test_the_longest_prompts_and_every_character_pass_unchanged(interface: Interface) -> None:
    long = "ein Wort " * 22_222
    assert len(long) > 199_000
    for text in (long, UNICODE):
        async with asking(interface, interface.says(Said(text))) as it:
            completion = await it.complete(ask(text))
        assert it.heard[0].turns[0][1] == text
        assert completion.text == text


@every_interface
async def test_tokens_are_counted_and_those_of_cache_and_reasoning_apart(interface: Interface) -> None:
    whole = Usage(1000, 300, cached_tokens=400, cache_write_tokens=50, reasoning_tokens=200)
    names = ("cached_tokens", "cache_write_tokens", "reasoning_tokens")
    reported = {name: getattr(whole, name) for name in names if name in interface.tells}
    usage = Usage(whole.input_tokens, whole.output_tokens, **reported)
    async with asking(interface, interface.says(Said(usage=usage))) as it:
        completion = await it.complete(ask())
    assert completion.usage == usage


@of_those(interface for interface in REGISTERED if interface.schema)
async def test_an_answer_follows_the_schema_it_is_sent(interface: Interface) -> None:
    answer = interface.says(Said('{"tone":"High"}', as_schema=True))
    async with asking(interface, answer) as it:
        completion = await it.complete(Request(messages=HELLO, schema=LEVELS))
    assert completion.text.replace(" ", "") == '{"tone":"High"}'
    assert completion.finish_reason in ("stop", "tool_calls")
    assert it.heard[0].schema == LEVELS.body


@of_those(interface for interface in REGISTERED if interface.schema and interface.schema_refusals)
async def test_a_schema_that_is_not_taken_is_left_out_from_then_on_and_no_other(
    interface: Interface, caplog: pytest.LogCaptureFixture
) -> None:
    for words in interface.schema_refusals:
        async with asking(interface, interface.fails(400, words)) as it:
            for schema in (LEVELS, LEVELS, Schema("another", LEVELS.body)):
                assert (await it.complete(Request(messages=HELLO, schema=schema))).text == "ok"
        assert [heard.schema is not None for heard in it.heard] == [True, False, False, True]
    assert "is now called without the schema scores" in caplog.text


@every_interface
async def test_no_schema_is_sent_where_the_model_is_to_have_none(interface: Interface) -> None:
    async with asking(interface, structured_output=False) as it:
        await it.complete(Request(messages=HELLO, schema=LEVELS))
    assert it.heard[0].schema is None


@of_those(interface for interface in REGISTERED if interface.reasoning)
async def test_reasoning_is_kept_apart_from_the_answer(interface: Interface) -> None:
    async with asking(interface, interface.says(Said("4", reasoning="2 + 2"))) as it:
        completion = await it.complete(ask())
    assert (completion.text, completion.reasoning) == ("4", "2 + 2")


@every_interface
async def test_an_answer_cut_at_its_limit_is_marked(interface: Interface) -> None:
    async with asking(interface, interface.says(Said("Once upon", ends="length"))) as it:
        completion = await it.complete(ask(sampling=SamplingParameters(max_tokens=2)))
    assert (completion.text, completion.finish_reason, completion.truncated) == ("Once upon", "length", True)


@every_interface
async def test_an_answer_ended_by_a_stop_sequence_is_whole(interface: Interface) -> None:
    async with asking(interface, interface.says(Said("one, two", ends="stop sequence"))) as it:
        completion = await it.complete(ask(sampling=SamplingParameters(stop=("three",))))
    assert (completion.text, completion.finish_reason, completion.truncated) == ("one, two", "stop", False)


@every_interface
async def test_log_probabilities_come_or_are_refused_in_words_that_name_them(interface: Interface) -> None:
    said = Said("m", logprobs=(("m", -0.25),))
    async with asking(interface, interface.says(said)) as it:
        if not interface.logprobs:
            with pytest.raises(BadRequest, match="logprobs"):
                await it.complete(ask(top_logprobs=5))
            assert not it.host.requested
            return
        completion = await it.complete(ask(top_logprobs=5))
    assert it.heard[0].top_logprobs == 5
    assert completion.logprobs == (TokenLogprob("m", -0.25, {"m": -0.25}),)


# What the host or the model declines


@of_those(interface for interface in REGISTERED if interface.refusals("No."))
async def test_a_refusal_of_the_model_is_told_in_its_words(interface: Interface) -> None:
    for behaviour in interface.refusals("I would rather not."):
        async with asking(interface, behaviour) as it:
            completion = await it.complete(ask())
        assert completion.refusal == "I would rather not."


@pytest.mark.process
@of_those(interface for interface in REGISTERED if interface.filters())
async def test_a_filtered_prompt_or_answer_is_an_error_of_its_own_and_not_asked_again(
    interface: Interface,
) -> None:
    for behaviour in interface.filters():
        async with asking(interface, behaviour) as it:
            with pytest.raises(ContentFiltered):
                await it.complete(ask())
        assert len(it.host.requested) == 1


# What goes wrong


@every_dialect
@pytest.mark.parametrize(
    ("status", "error"),
    [(400, BadRequest), (401, AccessDenied), (403, AccessDenied), (404, NotFound), (413, BadRequest)],
)
async def test_an_error_that_asking_again_cannot_mend_is_told_at_once(
    interface: Interface, status: int, error: type[ModelError]
) -> None:
    times = 2 if status == 401 and interface.renews else 1  # once more with a token that is new
    async with asking(interface, *[interface.fails(status, "this cannot be done")] * times) as it:
        with pytest.raises(error, match="this cannot be done") as raised:
            await it.complete(ask())
    assert raised.value.status == status
    assert len(it.host.requested) == times


@every_interface
async def test_a_parameter_that_the_host_refuses_is_left_out_where_nobody_asked_for_it(
    interface: Interface,
) -> None:
    refusal = interface.fails(400, "Unsupported parameter: 'temperature' is not supported with this model.")
    request = ask(sampling=SamplingParameters(temperature=0.3, max_tokens=2000))
    async with asking(interface, refusal) as it:
        with pytest.raises(BadRequest, match="temperature"):
            await it.complete(request)
        assert len(it.host.requested) == 1
    async with asking(interface, refusal, interface.says(Said("without"))) as it:
        completion = await it.complete(msgspec.structs.replace(request, droppable=("temperature",)))
    assert (completion.text, completion.dropped) == ("without", ("temperature",))
    assert "temperature" not in it.heard[1].sampling


@pytest.mark.process
@of_those(interface for interface in REGISTERED if interface.field_refusals)
async def test_a_refusal_names_the_parameter_to_leave_out_by_our_name(interface: Interface) -> None:
    for words, name in interface.field_refusals.items():
        async with asking(interface, interface.fails(400, words)) as it:
            with pytest.raises(BadRequest, match=f"leave {name} out"):
                await it.complete(ask())


@of_those(interface for interface in REGISTERED if SECRET in interface.env.values())
async def test_a_key_that_is_not_known_is_no_access(interface: Interface) -> None:
    wrong = {name: value.replace(SECRET, "sk-another-key") for name, value in interface.env.items()}
    nowhere = Path("/nonexistent")
    async with interface.serve() as host:
        keys = Keys.load(None, env=wrong, cwd=nowhere, home=nowhere)
        async with Models([interface.spec(host.url)], keys) as models:
            with pytest.raises(AccessDenied):
                await models["m"].complete(ask())


@every_dialect
async def test_who_asks_too_often_waits_as_long_as_the_host_says(interface: Interface) -> None:
    busy = interface.fails(429, "slow down", {"Retry-After": "17"})
    async with asking(interface, busy, interface.says(Said("at last"))) as it:
        completion = await it.complete(ask())
    assert (completion.text, completion.attempts) == ("at last", 2)
    assert it.waits == [pytest.approx(17, abs=5)]
    assert it.waits[0] >= 17


@pytest.mark.process
@every_dialect
@pytest.mark.parametrize("status", [500, 502, 503, 529])
async def test_trouble_of_the_host_passes(interface: Interface, status: int) -> None:
    trouble = interface.fails(status, "something broke")
    async with asking(interface, trouble, trouble, interface.says(Said("well again"))) as it:
        completion = await it.complete(ask())
    assert (completion.text, completion.attempts) == ("well again", 3)
    assert it.host.requested[0].body == it.host.requested[2].body


@pytest.mark.process
@every_dialect
async def test_trouble_that_stays_is_told(interface: Interface) -> None:
    trouble = interface.fails(503, "something broke")
    async with asking(interface, *[trouble] * EVERY_ATTEMPT) as it:
        with pytest.raises(ServerFault, match="something broke") as raised:
            await it.complete(ask())
    assert raised.value.status == 503
    assert 1 < len(it.host.requested) <= EVERY_ATTEMPT


@pytest.mark.process
@every_dialect
async def test_what_is_no_answer_is_asked_for_once_more_and_then_told(interface: Interface) -> None:
    for garbage in interface.garbage():
        async with asking(interface, *[garbage] * 3) as it:
            with pytest.raises(Unreadable):
                await it.complete(ask())
        assert len(it.host.requested) == 2


@every_interface
async def test_a_credential_that_the_host_repeats_is_in_nothing_we_keep(interface: Interface) -> None:
    echo = f"you sent {SECRET}, did you not"
    said = interface.says(Said(echo, reasoning=echo if interface.reasoning else None))
    async with asking(interface, said, *[interface.fails(400, echo)] * 2) as it:
        completion = await it.complete(ask())
        with pytest.raises(BadRequest, match="did you not") as raised:
            await it.complete(ask())
    assert "did you not" in completion.text
    assert SECRET not in f"{completion!r} {raised.value} {raised.value!r}"


@of_those(interface for interface in REGISTERED if interface.renews)
async def test_a_token_that_expires_in_mid_run_is_renewed(interface: Interface) -> None:
    async with asking(interface) as it:
        for _ in range(3):
            assert (await it.complete(ask())).text == "ok"
            interface.expire(it.host)
    shown = [heard.key for heard in it.heard]
    assert len(set(shown)) > 1
