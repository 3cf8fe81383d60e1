"""How a model in a role is asked, and asked again until the answer is what was asked for."""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coeval.core.errors import (
    AskError,
    BadRequest,
    CoevalError,
    ContentFiltered,
    CutOff,
    EmptyReply,
    QuotaExhausted,
    ServerFault,
    Unparsable,
)
from coeval.core.model import Model, ModelSpec
from coeval.core.records import CallId, Completion, Message, Request, Role, SamplingParameters, Usage
from coeval.engine.model_work import Recipe, RoleModel, choose_base_seed, differing_parts, make_recipe
from coeval.engine.work import Tally, ask

SPEC = ModelSpec(name="m", interface="vllm", model="m-1", extra_body={"min_p": 0.1}, options={"skill": 1})
SAMPLING = SamplingParameters(temperature=0.5)


def made(
    spec: ModelSpec = SPEC,
    role: Role = "judge",
    sampling: SamplingParameters = SAMPLING,
    system: str | None = "Be fair.",
    template: str = "t",
) -> Recipe:
    return make_recipe(spec, role, sampling, system, {"template": template})


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        (made(msgspec.structs.replace(SPEC, interface="openai")), ["interface"]),
        (made(msgspec.structs.replace(SPEC, model="m-2")), ["parameters.model"]),
        (made(msgspec.structs.replace(SPEC, extra_body={"min_p": 0.2})), ["parameters.extra_body"]),
        (made(msgspec.structs.replace(SPEC, options={"skill": 0})), ["parameters.skill"]),
        (made(sampling=SamplingParameters(temperature=0.6)), ["parameters.temperature (judge)"]),
        (made(sampling=SamplingParameters()), ["parameters.temperature (judge)"]),
        (made(system=None), ["parameters.system_prompt (judge)"]),
        (made(template="other"), ["template"]),
    ],
)
def test_a_recipe_says_what_shapes_an_answer(changed: Recipe, named: list[str]) -> None:
    assert changed.hash != made().hash
    assert differing_parts(made().parts, changed.parts) == named


def test_where_and_as_whom_a_model_is_asked_is_no_part_of_its_recipe() -> None:
    elsewhere = msgspec.structs.replace(
        SPEC, name="other", base_url="http://h/v1", access_key="k", timeout_s=1.0, max_concurrency=1
    )
    slow = msgspec.structs.replace(elsewhere, options={"skill": 1, "latency_s": 3})
    assert made(elsewhere) == made(slow) == made()


def test_a_request_says_whom_it_is_asked_of_and_what_about() -> None:
    requested = RoleModel(
        name="m",
        model="m-1",
        role="judge",
        sampling=SAMPLING,
        recipe=made(),
        system="Be fair.",
        seed=7,
        sample=2,
    )
    request = requested.request(Request((Message("user", "Well?"),), top_logprobs=5), "evaluation", "k", 3)
    assert request.messages == (Message("system", "Be fair."), Message("user", "Well?"))
    assert (request.sampling, request.top_logprobs, request.purpose) == (SAMPLING, 5, "evaluation")
    assert (request.call, request.seed) == (CallId("k", 2, 3), CallId("k", 2, 3).seed(7))


@pytest.mark.parametrize(
    ("interface", "sampling", "seed"),
    [
        ("vllm", {}, 7),
        ("simulated", {}, 7),
        ("openai", {}, None),
        ("auto", {}, None),
        ("vllm", {"seed": 1, "top_k": 3}, 1),
        ("openai", {"seed": 1}, 1),
    ],
)
def test_our_base_seeds_are_sent_where_they_are_taken_and_none_is_set(
    interface: str, sampling: dict[str, Any], seed: int | None
) -> None:
    assert (
        choose_base_seed(
            msgspec.structs.replace(SPEC, interface=interface), SamplingParameters.of(sampling), 7
        )
        == seed
    )


class Scripted(Model):
    """Gives the answers of a script, in turn."""

    name, interface = "scripted", "test"

    def __init__(self, *script: str | CoevalError) -> None:
        self.script = deque(script)
        self.seeds: list[int | None] = []

    async def complete(self, request: Request) -> Completion:
        self.seeds.append(request.seed)
        answer = self.script.popleft()
        if isinstance(answer, CoevalError):
            raise answer
        return Completion(answer, usage=Usage(10, len(answer)))


def asking(attempt: int) -> Request:
    return Request((Message("user", "2 + 2?"),), seed=attempt)


def number(completion: Completion) -> int:
    if not completion.text:
        raise EmptyReply("nothing")
    if not completion.text.isdigit():
        raise Unparsable("no number", raw=completion.text)
    return int(completion.text)


async def test_an_answer_is_taken_at_once() -> None:
    tally = Tally()
    assert await ask(Scripted("4"), asking, number, retries=2, tally=tally) == 4
    assert (tally.attempts, tally.calls, tally.usage) == (1, 1, Usage(10, 1))


@pytest.mark.parametrize("first", ["four", "", ServerFault("500")])
async def test_what_may_pass_is_asked_anew(first: str | CoevalError) -> None:
    model, tally = Scripted(first, "4"), Tally()
    assert await ask(model, asking, number, retries=1, tally=tally) == 4
    assert model.seeds == [0, 1]
    assert tally.attempts == 2
    answered = 1 + isinstance(first, str)
    assert tally.usage is not None
    assert tally.usage.input_tokens == 10 * answered, "a refused answer has cost its tokens all the same"


async def test_what_an_answer_took_counts_though_it_was_withheld() -> None:
    tally = Tally()
    withheld = ServerFault("broken off", usage=Usage(7, 2))
    assert await ask(Scripted(withheld, "4"), asking, number, retries=1, tally=tally) == 4
    assert tally.usage == Usage(17, 3)


async def test_patience_ends_with_the_last_failure() -> None:
    tally = Tally()
    with pytest.raises(Unparsable) as last:
        await ask(Scripted("a", "b", "c", "4"), asking, number, retries=2, tally=tally)
    assert (last.value.raw, tally.attempts) == ("c", 3)


@pytest.mark.parametrize(
    "final",
    [BadRequest("400"), ContentFiltered("no"), ServerFault("down", retry_advised=False), QuotaExhausted("0")],
)
async def test_what_can_only_fail_again_is_not_asked_again(final: CoevalError) -> None:
    model = Scripted(final, "4")
    with pytest.raises(type(final)):
        await ask(model, asking, number, retries=5, tally=Tally())
    assert model.seeds == [0]


async def test_the_parts_of_a_record_add_up() -> None:
    whole, first, second = Tally(), Tally(), Tally()
    await ask(Scripted("x", "1"), asking, number, retries=1, tally=first)
    await ask(Scripted("22"), asking, number, retries=1, tally=second)
    for part in (first, second):
        whole.merge(part)
    assert (whole.attempts, whole.calls, whole.usage) == (2, 3, Usage(30, 4))
    assert whole.last is not None
    assert whole.last.text == "22"


@given(st.integers(), st.text(), st.integers(0, 100))
def test_seeds_are_31_bits_and_the_same_in_any_process(run: int, key: str, attempt: int) -> None:
    seed = CallId(key, 0, attempt).seed(run)
    assert 0 <= seed < 2**31
    assert seed == CallId(key, 0, attempt).seed(run)
    assert seed != CallId(key, 0, attempt + 1).seed(run)


def test_the_seed_of_a_request_never_changes() -> None:
    """Runs on disk are gone on with: their next attempts must draw what they would have drawn."""
    assert CallId("story__ann__00001").seed(0) == 128_687_197


class CutShort(Model):
    name = interface = "short"

    async def complete(self, request: Request) -> Completion:
        return Completion("{", finish_reason="length", truncated=True)


async def test_what_is_missing_of_a_cut_answer_is_missing_because_it_was_cut() -> None:
    def parse(completion: Completion) -> str:
        raise Unparsable("it is half an object", raw=completion.text)

    own = CutShort()
    own.answer_limit = "max_answer_bytes"
    with pytest.raises(Unparsable, match="cut off at max_answer_bytes"):
        await ask(own, lambda _: Request((Message("user", "?"),)), parse, retries=0, tally=Tally())
    for top_logprobs, kind in ((None, "cut_off"), (5, "unparsable")):
        made = {0: Request((Message("user", "?"),), top_logprobs=top_logprobs)}
        with pytest.raises(Unparsable) as caught:
            await ask(CutShort(), made.__getitem__, parse, retries=0, tally=Tally())
        assert caught.value.kind == kind
        assert ("cut off at max_tokens" in str(caught.value)) == (kind == "cut_off")


class Cutting(Model):
    """Answers in as many digits as it may, of ``needed``; with fewer they are cut off."""

    name = interface = "cutting"

    def __init__(self, needed: int, dropped: tuple[str, ...] = ()) -> None:
        self.needed = needed
        self.dropped = dropped
        self.limits: list[int | None] = []

    async def complete(self, request: Request) -> Completion:
        most = request.sampling.max_tokens or self.needed
        self.limits.append(request.sampling.max_tokens)
        cut = most < self.needed
        return Completion("…" if cut else "4", truncated=cut, dropped=self.dropped)


def greedy(limit: int | None, *, theirs: bool, temperature: float | None = 0.0) -> Request:
    sampling = SamplingParameters(temperature=temperature, max_tokens=limit)
    droppable = () if theirs else ("temperature", "max_tokens")
    return Request((Message("user", "2 + 2?"),), sampling=sampling, droppable=droppable)


async def test_greedy_decoding_gets_more_room_where_the_limit_is_ours() -> None:
    model = Cutting(needed=30)
    assert await ask(model, lambda _: greedy(10, theirs=False), number, retries=2, tally=Tally()) == 4
    assert model.limits == [10, 20, 40]


async def test_a_host_that_refuses_the_room_leaves_the_answer_cut_off() -> None:
    class Narrow(Cutting):
        async def complete(self, request: Request) -> Completion:
            assert request.raised == ((request.sampling.max_tokens or 0) > 10)
            if request.raised:
                raise BadRequest("max_tokens=20 cannot be greater than max_model_len=15")
            return await super().complete(request)

    with pytest.raises(CutOff, match="cut off at max_tokens"):
        await ask(Narrow(30), lambda _: greedy(10, theirs=False), number, retries=2, tally=Tally())


@pytest.mark.parametrize(
    ("model", "request_", "words"),
    [
        (Cutting(30), greedy(10, theirs=True), "cut off at your max_tokens of 10"),
        (Scripted("four", "4"), greedy(None, theirs=True), "no number"),
        (Scripted("", "4"), greedy(99, theirs=False), "nothing"),
    ],
    ids=["the user's limit", "unreadable", "empty"],
)
async def test_greedy_decoding_is_not_asked_the_same_again(
    model: Model, request_: Request, words: str
) -> None:
    tally = Tally()
    with pytest.raises(
        AskError, match=f"{words}.*; not retried: at temperature 0 the reply would be the same"
    ):
        await ask(model, lambda _: request_, number, retries=2, tally=tally)
    assert tally.calls == 1


@pytest.mark.parametrize("temperature", [None, 0.7])
async def test_what_is_drawn_by_chance_is_asked_again_at_the_limit_that_it_has(
    temperature: float | None,
) -> None:
    model = Cutting(30)
    request = greedy(10, theirs=True, temperature=temperature)
    with pytest.raises(AskError, match="cut off at your max_tokens of 10"):
        await ask(model, lambda _: request, number, retries=2, tally=Tally())
    assert model.limits == [10, 10, 10]


async def test_a_host_that_takes_no_temperature_may_answer_otherwise() -> None:
    model = Cutting(30, dropped=("temperature",))
    with pytest.raises(AskError):
        await ask(model, lambda _: greedy(10, theirs=True), number, retries=2, tally=Tally())
    assert len(model.limits) == 3


async def test_a_question_that_tells_why_is_asked_again() -> None:
    def telling(attempt: int) -> Request:
        return msgspec.structs.replace(greedy(None, theirs=True), messages=(Message("user", f"{attempt}?"),))

    assert await ask(Scripted("four", "4"), telling, number, retries=2, tally=Tally()) == 4


async def test_a_host_that_answers_nothing_keeps_the_seed_and_an_unusable_reply_moves_it() -> None:
    role = RoleModel(name="m", model="m-1", role="judge", sampling=SAMPLING, recipe=made(), seed=7)
    question = Request((Message("user", "Well?"),))
    first, again, later, moved = (
        role.request(question, "evaluation", "k", attempt, unanswered)
        for attempt, unanswered in ((0, 0), (1, 1), (5, 5), (2, 1))
    )
    assert first.seed == again.seed == later.seed == CallId("k").seed(7)
    assert moved.seed == CallId("k", 0, 1).seed(7)
    assert len({request.call for request in (first, again, later, moved)}) == 4
    assert "seed" in first.droppable
