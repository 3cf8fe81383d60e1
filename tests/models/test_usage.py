"""Tokens as they are booked: what the cache keeps, what a host leaves unknown."""

from __future__ import annotations

import asyncio
import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from conformance.interface import Interface
from conformance.registered import REGISTERED
from fakes.anthropic_messages import CHARS_PER_TOKEN, AnthropicServer, Error, Spoken, anthropic_fake
from fakes.openai_chat import Raw
from opened import opened
from pipeline.experiments import Lab, model, task

from coeval.core.errors import BadRequest
from coeval.core.model import ModelSpec
from coeval.core.records import Completion, Message, Request, SamplingParameters, Usage
from coeval.engine.model_work import make_recipe
from coeval.models.address import load_dialect
from coeval.models.catalog import HOSTS
from coeval.models.dialects.anthropic_messages import ANTHROPIC
from coeval.models.metering.account_file import Terms, read_accounts
from coeval.models.metering.meter import Ledger
from coeval.models.pacing.admission import SharedPrefixes
from coeval.pricing.tariff import Rates, Tariff, make_cost_bound_unless_free, make_pricer
from perf.dialects import SAID, TYPICAL

ARTICLE = "A long article. " * 400
QUESTIONS = [f"Question {number}?" for number in range(6)]
MODEL = "claude-sonnet-4-5"


def about(head: str, question: str, system: str = "") -> Request:
    before = (Message("system", system),) if system else ()
    return Request((*before, Message("user", head + question)), shared=len(head))


def spec(url: str | None = None, **fields: Any) -> ModelSpec:
    return ModelSpec(**{"name": "m", "interface": "anthropic", "model": MODEL, "base_url": url, **fields})


def sent(request: Request, **fields: Any) -> Any:
    return json.loads(ANTHROPIC.encode(request, spec(**fields), HOSTS["anthropic"]))["messages"][-1][
        "content"
    ]


async def ask_all(server: AnthropicServer, requests: list[Request], **fields: Any) -> list[Completion]:
    async with opened(spec(server.url, **fields), {}) as judge:
        return await asyncio.gather(*map(judge.complete, requests))


# What is marked


def test_the_mark_stands_where_the_shared_part_ends_and_no_character_is_lost() -> None:
    kept, rest = sent(about(ARTICLE, "Who?"))
    assert kept == {"type": "text", "text": ARTICLE, "cache_control": {"type": "ephemeral"}}
    assert rest == {"type": "text", "text": "Who?"}


@pytest.mark.parametrize(
    ("request_", "fields"),
    [
        (about("Short. ", "Who?"), {}),
        (about(ARTICLE, "Who?"), {"prompt_caching": False}),
        (about(ARTICLE, "Who?"), {"model": "claude-haiku-4-5"}),
        (about(" " * 9999, "Who?"), {}),
        (Request((Message("user", f"{ARTICLE}Who?"),)), {}),
    ],
    ids=["too short", "turned off", "too short for the family", "blank", "nothing shared"],
)
def test_a_request_is_left_as_it_is_where_the_cache_would_not_keep_it(
    request_: Request, fields: dict[str, Any]
) -> None:
    plain = msgspec.structs.replace(request_, shared=0)
    assert sent(request_, **fields) == sent(plain, **fields) == request_.messages[-1].content


def test_what_stands_before_counts_and_no_block_is_blank() -> None:
    assert len(sent(about("Short. ", "Who?", system=ARTICLE))) == 2
    assert sent(about(ARTICLE, " \n")) == [
        {"type": "text", "text": f"{ARTICLE} \n", "cache_control": {"type": "ephemeral"}}
    ]


@pytest.mark.parametrize("interface", sorted(set(HOSTS) - {"anthropic"}))
def test_no_other_dialect_sends_anything_else(interface: str) -> None:
    host = HOSTS[interface]
    if host.dialect in ("simulated", "benchmark", "local", "own_code"):
        return
    dialect, requested = load_dialect(host), ModelSpec(name="m", interface=interface, model="m-1")
    shared = about(ARTICLE, "Who?")
    assert dialect.encode(shared, requested, host) == dialect.encode(
        msgspec.structs.replace(shared, shared=0), requested, host
    )


# Who goes first


async def test_of_requests_that_share_one_writes_and_the_others_read() -> None:
    tokens = len(ARTICLE) // CHARS_PER_TOKEN
    async with anthropic_fake(always=Spoken(delay_s=0.05)) as server:
        answers = await ask_all(server, [about(ARTICLE, question) for question in QUESTIONS])
    usage = [answer.usage for answer in answers]
    assert [one.cache_write_tokens for one in usage] == [tokens, 0, 0, 0, 0, 0]
    assert [one.cached_tokens for one in usage] == [0, *[tokens] * 5]
    assert {one.input_tokens for one in usage} == {tokens + len(QUESTIONS[0]) // CHARS_PER_TOKEN}


@pytest.mark.process
async def test_requests_that_begin_otherwise_do_not_wait_for_each_other() -> None:
    heads = [f"{number} {ARTICLE}" for number in range(4)]
    requests = [about(head, "Who?") for head in heads] + [about(ARTICLE, "Who?", "Be brief.")]
    async with anthropic_fake(always=Spoken(delay_s=0.2)) as server:
        asking = asyncio.create_task(ask_all(server, requests))
        while len(server.requested) < len(requests):
            await asyncio.sleep(0.01)
            assert not asking.done()
        await asking


@pytest.mark.process
async def test_who_goes_ahead_and_fails_or_is_given_up_holds_nobody_up() -> None:
    refusal, usual = Error(400, "not this one"), Spoken(delay_s=0.1)
    async with anthropic_fake(refusal, always=usual) as server, opened(spec(server.url), {}) as judge:
        first, *others = [
            asyncio.create_task(judge.complete(about(ARTICLE, question))) for question in QUESTIONS[:3]
        ]
        with pytest.raises(BadRequest, match="not this one"):
            await first
        assert [answer.text for answer in await asyncio.gather(*others)] == ["ok", "ok"]
        ahead, behind = [
            asyncio.create_task(judge.complete(about(f"{ARTICLE} again", question)))
            for question in QUESTIONS[:2]
        ]
        await asyncio.sleep(0.02)
        ahead.cancel()
        assert (await behind).text == "ok"


async def test_a_prefix_that_was_not_used_for_long_is_written_anew() -> None:
    now = 0.0
    turns = SharedPrefixes(lambda: now)
    under_way: list[str] = []

    async def ask(name: str, let_go: asyncio.Event) -> None:
        async with turns.wait_turn(about(ARTICLE, name)):
            under_way.append(name)
            await let_go.wait()

    async def at_once(*names: str) -> list[str]:
        """Who of those is under way before any of them is answered."""
        under_way.clear()
        let_go = asyncio.Event()
        tasks = [asyncio.create_task(ask(name, let_go)) for name in names]
        for _ in range(10):
            await asyncio.sleep(0)
        before = list(under_way)
        let_go.set()
        await asyncio.gather(*tasks)
        assert sorted(under_way) == sorted(names)
        return before

    assert await at_once("a", "b", "c") == ["a"]
    now += 200
    assert await at_once("d", "e") == ["d", "e"]
    now += 200  # within five minutes of the last use
    assert await at_once("f", "g") == ["f", "g"]
    now += 400
    assert await at_once("h", "i") == ["h"]


# In a run


async def judged(folder: Path, **parameters: Any) -> list[Usage]:
    """What the evaluations of a run took that ask for three factors one by one."""
    rubric = {"plot": "Things happen for a reason.", "style": "It reads well.", "length": "It ends in time."}
    described = task(total=2, description=ARTICLE, rubric=rubric, evaluation_mode="per_factor")
    async with anthropic_fake(always=Spoken('{"score": "High"}', delay_s=0.02)) as server:
        requested = {"model": MODEL, "base_url": server.url, **parameters}
        judge = {"name": "claude", "interface": "anthropic", "roles": ["judge"], "parameters": requested}
        lab = Lab(folder, [model("ann", "teacher", "student"), judge], [described])
        assert (await lab.arun()).exit_code == 0
    return [msgspec.convert(line["usage"], Usage) for line in lab.lines("evaluation")]


def price(usage: Usage) -> float:
    """In prices of a token of input: Anthropic takes 1.25 to write one to its cache, and 0.1 to read it."""
    read, written = usage.cached_tokens or 0, usage.cache_write_tokens or 0
    return usage.input_tokens - read - written + 1.25 * written + 0.1 * read


def test_whether_the_cache_is_used_is_no_part_of_a_recipe() -> None:
    made = [
        make_recipe(spec(prompt_caching=kept), "judge", SamplingParameters(), None, {})
        for kept in (True, False)
    ]
    assert made[0] == made[1]


@pytest.mark.process
async def test_judging_by_factor_pays_once_for_what_its_prompts_share(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    kept = await judged(tmp_path)
    plain = await judged(tmp_path / "plain", prompt_caching=False)
    assert [one.input_tokens for one in kept] == pytest.approx([one.input_tokens for one in plain], abs=3)
    for one in kept:
        assert one.cache_write_tokens
        assert one.cached_tokens == 2 * one.cache_write_tokens
    assert not any(one.cached_tokens or one.cache_write_tokens for one in plain)
    assert sum(map(price, kept)) < 0.55 * sum(map(price, plain))


TARIFF = Tariff(rates=Rates(input_usd_per_mtok=3.0, output_usd_per_mtok=15.0), source="test")
BILLED = (500 * 3.0 + 20 * 15.0) / 1e6
"""What the host bills for each of `TYPICAL`'s answers, whatever it says of them."""
DAMAGED = 18
ABSENT = object()
NO_COUNT: tuple[Any, ...] = (ABSENT, None, "400", -1, 399.5, [40], True, 1 << 40, 1e99, {}, "")
NO_USAGE: tuple[Any, ...] = (ABSENT, None, [], "none", {}, 7)
COUNTS = frozenset(
    {
        *("prompt_tokens", "completion_tokens", "input_tokens", "output_tokens"),
        *("inputTokens", "outputTokens", "promptTokenCount", "candidatesTokenCount"),
    }
)
"""The two counts that every answer has, as hosts call them; others may be left out."""
PARTS = frozenset(
    {
        *("cached_tokens", "reasoning_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"),
        *("cacheReadInputTokens", "cacheWriteInputTokens", "cachedContentTokenCount", "thoughtsTokenCount"),
    }
)


def counts_in(usage: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    for name, value in usage.items():
        if isinstance(value, dict):
            yield from counts_in(value)
        elif name in COUNTS | PARTS:
            yield usage, name


def damaged(answer: dict[str, Any], draw: random.Random) -> dict[str, Any]:
    """The answer with one to all of its counts gone or impossible."""
    answer = copy.deepcopy(answer)
    counts = list(counts_in(answer[usage_of(answer)]))
    for place, name in draw.sample(counts, draw.randint(1, len(counts))):
        impossible = [value for value in NO_COUNT if name in COUNTS or (value is not ABSENT and value)]
        put(place, name, draw.choice(impossible))
    return answer


def usage_of(answer: dict[str, Any]) -> str:
    return "usage" if "usage" in answer else "usageMetadata"


def without_usage(answer: dict[str, Any], value: Any) -> dict[str, Any]:
    answer = dict(answer)
    put(answer, usage_of(answer), value)
    return answer


def put(place: dict[str, Any], name: str, value: Any) -> None:
    if value is ABSENT:
        del place[name]
    else:
        place[name] = value


def answer_of(interface: Interface) -> dict[str, Any]:
    dialect = type(load_dialect(HOSTS[interface.name]))
    return next(
        dict(typical.answer)
        for name, typical in TYPICAL.items()
        if issubclass(dialect, type(load_dialect(HOSTS[name])))
    )


@pytest.mark.process
@pytest.mark.parametrize("own", [False, True], ids=["budget", "quota"])
@pytest.mark.parametrize("interface", REGISTERED, ids=repr)
async def test_an_answer_whose_tokens_are_not_known_keeps_what_was_set_aside(
    interface: Interface, own: bool, tmp_path: Path
) -> None:
    """The host keeps its own bill: what is on account is never less, and what is known is never invented."""
    draw = random.Random(f"{interface.name} {own}")
    whole = answer_of(interface)
    answers = [whole, *(without_usage(whole, value) for value in NO_USAGE)]
    answers += [damaged(whole, draw) for _ in range(DAMAGED)]
    path, budget = tmp_path / "usage.json", 1.0
    terms = Terms(
        price=make_pricer(TARIFF),
        most=make_cost_bound_unless_free(TARIFF),
        max_cost_usd=budget if own else None,
        priced_by="test",
    )
    requested = Request((Message("user", "hello"),), sampling=SamplingParameters(max_tokens=64))
    async with interface.serve(*(Raw(json.dumps(answer).encode()) for answer in answers)) as host:
        ledger = Ledger(path, {"m": terms}, budget_usd=None if own else budget)
        async with opened(interface.spec(host.url), interface.env, ledger=ledger) as model:
            for number, answer in enumerate(answers):
                before = read_accounts(path).get("m")
                completion = await model.complete(requested)
                ledger.write_with_reservations_of_one_block()
                account = read_accounts(path)["m"]
                assert completion.text == SAID
                assert account.spent_usd >= (number + 1) * BILLED - 1e-12, answer
                if completion.usage.cost_usd is not None:
                    assert completion.usage.cost_usd == pytest.approx(BILLED), answer
                elif before is not None:
                    assert account.uncertain_usd > before.uncertain_usd + BILLED, answer
    assert account.unpriced > len(answers) / 2
