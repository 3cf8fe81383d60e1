"""What a host leaves unknown of an answer's tokens is never booked as nothing, whatever dialect it speaks."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conformance.interface import Interface
from conformance.registered import REGISTERED
from fakes.openai_chat import Raw
from opened import opened

from coeval.core.records import Message, Request, SamplingParameters
from coeval.models.catalog import HOSTS
from coeval.models.hosts.address import dialect_of
from coeval.models.metering.account_file import Terms, read_accounts
from coeval.models.metering.ledger import Ledger
from coeval.pricing.tariff import Rates, Tariff, pricer, upper_price
from perf.dialects import SAID, TYPICAL

TARIFF = Tariff(rates=Rates(input_usd_per_mtok=3.0, output_usd_per_mtok=15.0), source="test")
BILLED = (500 * 3.0 + 20 * 15.0) / 1e6
"""What the host bills for each of `TYPICAL`'s answers, whatever it says of them."""
ANSWERS = 24
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
    """The answer with one to all of its counts gone or impossible, or its usage as a whole."""
    answer = copy.deepcopy(answer)
    field = "usage" if "usage" in answer else "usageMetadata"
    if draw.random() < 0.2:
        put(answer, field, draw.choice(NO_USAGE))
        return answer
    counts = list(counts_in(answer[field]))
    for place, name in draw.sample(counts, draw.randint(1, len(counts))):
        impossible = [value for value in NO_COUNT if name in COUNTS or (value is not ABSENT and value)]
        put(place, name, draw.choice(impossible))
    return answer


def put(place: dict[str, Any], name: str, value: Any) -> None:
    if value is ABSENT:
        del place[name]
    else:
        place[name] = value


def answer_of(interface: Interface) -> dict[str, Any]:
    dialect = type(dialect_of(HOSTS[interface.name]))
    return next(
        dict(typical.answer)
        for name, typical in TYPICAL.items()
        if issubclass(dialect, type(dialect_of(HOSTS[name])))
    )


@pytest.mark.parametrize("own", [False, True], ids=["budget", "quota"])
@pytest.mark.parametrize("interface", REGISTERED, ids=repr)
async def test_an_answer_whose_tokens_are_not_known_keeps_what_was_set_aside(
    interface: Interface, own: bool, tmp_path: Path
) -> None:
    """The host keeps its own bill: what is on account is never less, and what is known is never invented."""
    draw = random.Random(f"{interface.name} {own}")
    whole = answer_of(interface)
    answers = [whole, *(damaged(whole, draw) for _ in range(ANSWERS))]
    path, budget = tmp_path / "usage.json", 1.0
    terms = Terms(
        price=pricer(TARIFF), most=upper_price(TARIFF), max_cost_usd=budget if own else None, priced_by="test"
    )
    asked = Request((Message("user", "hello"),), sampling=SamplingParameters(max_tokens=64))
    async with interface.serve(*(Raw(json.dumps(answer).encode()) for answer in answers)) as host:
        ledger = Ledger(path, {"m": terms}, budget_usd=None if own else budget)
        async with opened(interface.spec(host.url), interface.env, ledger=ledger) as model:
            for number, answer in enumerate(answers):
                before = read_accounts(path).get("m")
                completion = await model.complete(asked)
                ledger.flush()
                account = read_accounts(path)["m"]
                assert completion.text == SAID
                assert account.spent_usd >= (number + 1) * BILLED - 1e-12, answer
                if completion.usage.cost_usd is not None:
                    assert completion.usage.cost_usd == pytest.approx(BILLED), answer
                elif before is not None:
                    assert account.uncertain_usd > before.uncertain_usd + BILLED, answer
    assert account.unpriced > ANSWERS / 2
