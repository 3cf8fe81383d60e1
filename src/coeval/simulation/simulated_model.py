"""`SimulatedModel`: one coroutine that plays every role."""

from __future__ import annotations

import asyncio
from itertools import islice
from math import log

from coeval.core.errors import BadRequest, ServerFault
from coeval.core.model import Model, ModelSpec
from coeval.core.records import Completion, Request, SamplingParameters, TokenLogprob, Usage
from coeval.simulation.ask import OfferedChoice, SimulatedAsk
from coeval.simulation.draws import Draws
from coeval.simulation.parts import player
from coeval.simulation.spoiled import spoil, written
from coeval.simulation.traits import traits_of

CHARACTERS_PER_TOKEN = 4
CONTEXT_TOKENS = 500_000
"""Longer prompts are refused, as hosts refuse them: what is read for marks and demands takes time."""
_LEAST_CHANCE = 1e-300
_OTHER_TOKENS = (
    "The", "It", "A", "In", "This", "So", "We", "1", "2", "\n", " a", " of", " to", " is", " in", " and",
    " the", ",", ".", ":",
)  # fmt: skip


class SimulatedModel(Model):
    """Answers from its traits (`Traits`), at some 40 µs of CPU a call.

    The text depends on the model id (``spec.model``, which is what a server is sent too), the
    messages, ``request.seed``, the schema (none with ``structured_output: false``) and the traits:
    not on sampling parameters, except that ``max_tokens`` cuts it and ``stop`` ends it, and not on
    the state of the process. A token is four characters.
    """

    interface = "simulated"

    def __init__(self, spec: ModelSpec) -> None:
        """Raises UsageError for options that no simulated model has."""
        self.name = spec.name
        self.model = spec.model
        self._takes_schemas = spec.structured_output
        self.traits = traits_of(spec)

    async def complete(self, request: Request) -> Completion:
        """Answer, in the time that the traits give it.

        Raises
        ------
        ServerFault
            the share ``failure_rate`` of requests.
        BadRequest
            the prompt is longer than the context, or the schema asks for what a simulated model cannot write.
        """
        if self.traits.latency_s:
            await asyncio.sleep(self.traits.latency_s)
        completion = self.answer(request)
        pace = self.traits.tokens_per_s
        if pace:
            await asyncio.sleep(completion.usage.output_tokens / pace)
        return completion

    def answer(self, request: Request) -> Completion:
        """What `complete` answers, at once."""
        taken = token_count(sum(len(m.content) for m in request.messages))
        if taken > CONTEXT_TOKENS:
            raise BadRequest(
                f"the context of a simulated model is {CONTEXT_TOKENS:,} tokens; the messages take {taken:,}",
                status=400,
            )
        draws = Draws(self.model, request)
        if draws.uniform("failure") < self.traits.failure_rate:
            raise ServerFault("simulated failure", status=500)
        text = next((m.content for m in reversed(request.messages) if m.role == "user"), "")
        schema = request.schema if self._takes_schemas else None
        ask = SimulatedAsk(self.model, self.traits, text, schema, draws, request.labels)
        reply = player(ask)(ask)
        spoiled = draws.uniform("malformed") < self.traits.malformed_rate
        whole = _stopped(spoil(reply, draws) if spoiled else written(reply), request.sampling)
        limit = _limit(request.sampling)
        kept = whole if limit is None else whole[: limit * CHARACTERS_PER_TOKEN]
        cut = len(kept) < len(whole)
        chances = reply.chances if isinstance(reply, OfferedChoice) and not spoiled else None
        usage = Usage(taken, token_count(len(kept)))
        pace = self.traits.tokens_per_s
        return Completion(
            text=kept,
            usage=usage,
            finish_reason="length" if cut else "stop",
            latency_s=self.traits.latency_s + (usage.output_tokens / pace if pace else 0.0),
            logprobs=_told(kept, request.top_logprobs, chances, draws),
            truncated=cut,
        )


def token_count(characters: int) -> int:
    """Tokens of a text of so many characters, at least one."""
    return max(1, -(-characters // CHARACTERS_PER_TOKEN))


def _stopped(text: str, sampling: SamplingParameters) -> str:
    """The text up to the first stop sequence that occurs in it."""
    others = sampling.rest.get("stop_sequences", ())
    for stop in (*(sampling.stop or ()), *((others,) if isinstance(others, str) else others)):
        if stop:
            text = text.partition(stop)[0]
    return text


def _limit(sampling: SamplingParameters) -> int | None:
    """The answer's limit in tokens, under either of the names that providers use."""
    limit = sampling.rest.get("max_completion_tokens", sampling.max_tokens)
    return max(1, limit) if isinstance(limit, int) else None


def _told(
    text: str, top: int | None, chances: dict[str, float] | None, draws: Draws
) -> tuple[TokenLogprob, ...]:
    """The log-probabilities asked for: none without ``top``, those of a choice where it is one."""
    if top is None:
        return ()
    if chances is None:
        return token_logprobs(text, top, draws)
    likeliest = sorted(chances, key=lambda token: -chances[token])
    told = {token: log(max(chances[token], _LEAST_CHANCE)) for token in likeliest}
    return (TokenLogprob(text, told[text], dict(islice(told.items(), top))),)


def token_logprobs(text: str, top: int, draws: Draws) -> tuple[TokenLogprob, ...]:
    """A log-probability for each token, and for the ``top`` likeliest in its place.

    The token itself has between 55 % and 99 %; each alternative has half of what is left.
    """
    told: list[TokenLogprob] = []
    for start in range(0, len(text), CHARACTERS_PER_TOKEN):
        token = text[start : start + CHARACTERS_PER_TOKEN]
        probability = 0.55 + 0.44 * draws.uniform(f"token {start}")
        likeliest = {token: log(probability)}
        left = 1 - probability
        for other in _OTHER_TOKENS:
            if other != token:
                left /= 2
                likeliest[other] = log(left)
        told.append(TokenLogprob(token, likeliest[token], dict(islice(likeliest.items(), top))))
    return tuple(told)
