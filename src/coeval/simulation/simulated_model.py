"""Simulated model: one coroutine that plays every role."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from itertools import islice
from math import log
from typing import Any, TypeAlias

import msgspec

from coeval.core.errors import BadRequest, ServerFault
from coeval.core.model import Model, ModelSpec
from coeval.core.records import LEVELS, Completion, Request, SamplingParameters, TokenLogprob, Usage
from coeval.simulation.parts import choose_player
from coeval.simulation.prose import REFUSAL, Draws, Fenced, OfferedChoice, Reply, SimulatedAsk
from coeval.simulation.traits import VARIED, parse_traits

# --- Spoilt replies

Spoil: TypeAlias = Callable[[Any], str]


def encode_reply(reply: Reply) -> str:
    """Write a reply: compact JSON for an object."""
    match reply:
        case OfferedChoice():
            return reply.text
        case Fenced():
            return f"```json\n{msgspec.json.encode(reply.value).decode()}\n```"
        case str():
            return reply
        case _:
            return msgspec.json.encode(reply).decode()


def spoil_reply(reply: Reply, draws: Draws) -> str:
    """Choose a way to spoil a reply, by its kind: object, levels, bare level, choice or text."""
    if isinstance(reply, OfferedChoice):
        return draws.pick("way to go wrong", _OF_A_CHOICE)(reply)
    if isinstance(reply, Fenced):
        return draws.pick("way to go wrong", _OF_AN_OBJECT + _OF_A_GRADE)(reply.value)
    if isinstance(reply, str):
        ways = _OF_A_LEVEL if reply in LEVELS else _OF_A_TEXT
        ways = _OF_A_VERDICT if "[[" in reply else ways
    elif reply and all(_read_level(value) in LEVELS for value in reply.values()):
        ways = _OF_AN_OBJECT + _OF_LEVELS
    else:
        ways = _OF_AN_OBJECT
    return draws.pick("way to go wrong", ways)(reply)


def _spoil_with_fence(reply: dict[str, Any]) -> str:
    """Spoil repairably: a fence, a comma too many, and talk around it."""
    return f"Here is the JSON:\n```json\n{encode_reply(reply)[:-1]},}}\n```\nLet me know if it should change."


def _spoil_by_cutting(reply: Reply) -> str:
    text = encode_reply(reply)
    return text[: len(text) * 2 // 3]


def _read_level(value: Any) -> Any:
    return value.get("score") if isinstance(value, dict) else value


def _replace_level(value: Any, level: str) -> Any:
    return {**value, "score": level} if isinstance(value, dict) else level


def _spoil_in_lower_case(reply: dict[str, Any]) -> str:
    return encode_reply(
        {name: _replace_level(value, _read_level(value).lower()) for name, value in reply.items()}
    )


def _spoil_with_grade(reply: dict[str, Any]) -> str:
    """Write a grade out of ten in place of the first level."""
    first = next(iter(reply))
    return encode_reply({**reply, first: _replace_level(reply[first], "8/10")})


def _spoil_by_refusing(_: Reply) -> str:
    return REFUSAL


def _spoil_by_evading(_: Reply) -> str:
    return "There are good points and weak ones here, and much depends on what one looks for."


_OF_AN_OBJECT: tuple[Spoil, ...] = (
    _spoil_with_fence,
    _spoil_by_cutting,
    _spoil_by_refusing,
    _spoil_by_evading,
)
_OF_LEVELS: tuple[Spoil, ...] = (
    _spoil_in_lower_case,
    _spoil_with_grade,
    lambda reply: encode_reply(dict(list(reply.items())[:-1])),  # the last factor is missing
)
_OF_A_LEVEL: tuple[Spoil, ...] = (str.lower, lambda _: "8/10", _spoil_by_refusing, _spoil_by_evading)
_OF_A_GRADE: tuple[Spoil, ...] = (
    # A text where a number or a truth value belongs; a number off the scale, which is also no truth value.
    lambda reply: encode_reply({name: f"{value}" for name, value in reply.items()}),
    lambda reply: encode_reply(
        {name: value if isinstance(value, str) else 42 for name, value in reply.items()}
    ),
)
_OF_A_VERDICT: tuple[Spoil, ...] = (
    _spoil_by_refusing,
    _spoil_by_evading,
    lambda reply: f"It could be [[A>B]], or else [[B>A]]. {reply.partition('[[')[0]}",
    lambda reply: f"{reply.partition('[[')[0]}that both have their merits.",
)
_OF_A_CHOICE: tuple[Spoil, ...] = (_spoil_by_refusing, _spoil_by_evading, lambda _: "Both")
_OF_A_TEXT: tuple[Spoil, ...] = (_spoil_by_refusing, _spoil_by_cutting)


# The rule of thumb for English; only usage and cuts depend on it.
CHARACTERS_PER_TOKEN = 4
# Longer prompts are refused, as by hosts; searching them for marks and demands would take time.
CONTEXT_TOKENS = 500_000
# The logarithm of zero has no place in JSON.
_LEAST_CHANCE = 1e-300
_OTHER_TOKENS = (
    "The", "It", "A", "In", "This", "So", "We", "1", "2", "\n", " a", " of", " to", " is", " in", " and",
    " the", ",", ".", ":",
)  # fmt: skip


class SimulatedModel(Model):
    """A model that answers according to its `Traits`, in about 40 µs of CPU.

    The text depends on the model id (``spec.model``, which is what a server is sent too), the
    messages, ``request.seed``, the schema (none with ``structured_output: false``) and the traits:
    not on sampling parameters, except that ``max_tokens`` cuts it and ``stop`` ends it, and not on
    the state of the process, except that a request that failed may succeed next. A token is four characters.
    """

    interface = "simulated"

    def __init__(self, spec: ModelSpec) -> None:
        """Read the model's traits; raises UsageError for unknown options."""
        self.name = spec.name
        self.model = spec.model
        self._takes_schemas = spec.structured_output
        self.traits = parse_traits(spec)
        self._failures: Counter[int] = Counter()

    async def complete(self, request: Request) -> Completion:
        """Answer after the latency of its traits. Raises ServerFault: the share ``failure_rate`` of requests;
        BadRequest: the prompt exceeds the context, or the schema is none that a simulated model can fill."""
        if self.traits.latency_s:
            await asyncio.sleep(self.traits.latency_s)
        completion = self.answer(request)
        pace = self.traits.tokens_per_s
        if pace:
            await asyncio.sleep(completion.usage.output_tokens / pace)
        return completion

    def answer(self, request: Request) -> Completion:
        """Answer at once; see `complete`."""
        taken = count_tokens(sum(len(m.content) for m in request.messages))
        if taken > CONTEXT_TOKENS:
            raise BadRequest(
                f"the context of a simulated model is {CONTEXT_TOKENS:,} tokens; the messages take {taken:,}",
                status=400,
            )
        draws = Draws(self.model, request)
        earlier = self._failures[draws.bits("failure")]
        if draws.uniform(f"failure {earlier}" if earlier else "failure") < self.traits.failure_rate:
            self._failures[draws.bits("failure")] += 1
            raise ServerFault("simulated failure", status=500)
        text = next((m.content for m in reversed(request.messages) if m.role == "user"), "")
        schema = request.schema if self._takes_schemas else None
        own = {name: value for name, value in request.sampling.rest.items() if name in VARIED}
        traits = msgspec.structs.replace(self.traits, **own) if own else self.traits
        ask = SimulatedAsk(self.model, traits, text, schema, draws, request.labels)
        reply = choose_player(ask)(ask)
        spoiled = draws.uniform("malformed") < self.traits.malformed_rate
        whole = _cut_at_stop(spoil_reply(reply, draws) if spoiled else encode_reply(reply), request.sampling)
        limit = _find_token_limit(request.sampling)
        kept = whole if limit is None else whole[: limit * CHARACTERS_PER_TOKEN]
        cut = len(kept) < len(whole)
        chances = reply.chances if isinstance(reply, OfferedChoice) and not spoiled else None
        usage = Usage(taken, count_tokens(len(kept)))
        pace = self.traits.tokens_per_s
        return Completion(
            text=kept,
            usage=usage,
            finish_reason="length" if cut else "stop",
            latency_s=self.traits.latency_s + (usage.output_tokens / pace if pace else 0.0),
            logprobs=_make_logprobs(kept, request.top_logprobs, chances, draws),
            truncated=cut,
        )


def count_tokens(characters: int) -> int:
    """Count the tokens of so many characters, at least one."""
    return max(1, -(-characters // CHARACTERS_PER_TOKEN))


def _cut_at_stop(text: str, sampling: SamplingParameters) -> str:
    """Cut a text at the first stop sequence that occurs in it."""
    others = sampling.rest.get("stop_sequences", ())
    for stop in (*(sampling.stop or ()), *((others,) if isinstance(others, str) else others)):
        if stop:
            text = text.partition(stop)[0]
    return text


def _find_token_limit(sampling: SamplingParameters) -> int | None:
    """Return the limit on the answer's tokens, under either of the providers' names."""
    limit = sampling.rest.get("max_completion_tokens", sampling.max_tokens)
    return max(1, limit) if isinstance(limit, int) else None


def _make_logprobs(
    text: str, top: int | None, chances: dict[str, float] | None, draws: Draws
) -> tuple[TokenLogprob, ...]:
    """Make the requested log-probabilities: none without ``top``, those of ``chances`` for a choice."""
    if top is None:
        return ()
    if chances is None:
        return draw_token_logprobs(text, top, draws)
    likeliest = sorted(chances, key=lambda token: -chances[token])
    reported = {token: log(max(chances[token], _LEAST_CHANCE)) for token in likeliest}
    return (TokenLogprob(text, reported[text], dict(islice(reported.items(), top))),)


def draw_token_logprobs(text: str, top: int, draws: Draws) -> tuple[TokenLogprob, ...]:
    """Make a log-probability for each token, and for its ``top`` likeliest alternatives. A token has a
    probability of 55 to 99%; each alternative has half of the remainder."""
    reported: list[TokenLogprob] = []
    for start in range(0, len(text), CHARACTERS_PER_TOKEN):
        token = text[start : start + CHARACTERS_PER_TOKEN]
        probability = 0.55 + 0.44 * draws.uniform(f"token {start}")
        likeliest = {token: log(probability)}
        left = 1 - probability
        for other in _OTHER_TOKENS:
            if other != token:
                left /= 2
                likeliest[other] = log(left)
        reported.append(TokenLogprob(token, likeliest[token], dict(islice(likeliest.items(), top))))
    return tuple(reported)
