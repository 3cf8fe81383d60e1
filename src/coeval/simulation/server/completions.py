"""POST /v1/completions, the older interface, used by tools that score texts by likelihood."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Annotated, Any
from uuid import uuid4

import msgspec

from coeval.core.foreign import decoder
from coeval.core.records import Completion, Message, Request, SamplingParameters, TokenLogprob
from coeval.simulation.prose import Draws
from coeval.simulation.server.chat import Count, Stops, usage_body
from coeval.simulation.server.events import Refusal, Timed, tokens
from coeval.simulation.simulated_model import CHARACTERS_PER_TOKEN, token_logprobs

# OpenAI's default of max_tokens.
DEFAULT_LIMIT = 16
# A bound on what one request makes the server write; clients batch some dozens of prompts.
MOST_ANSWERS = 2048


class CompletionsBody(msgspec.Struct):
    """Request body; other fields are ignored."""

    model: str
    prompt: str | list[str | int | list[int]] = ""
    max_tokens: Annotated[int, msgspec.Meta(ge=0)] | None = None
    n: Count | None = None
    stop: Stops | None = None
    seed: int | None = None
    echo: bool | None = None
    logprobs: Annotated[int, msgspec.Meta(ge=0, le=20)] | None = None
    stream: bool | None = None

    def requests(self) -> list[Request]:
        """Make a Request per prompt.

        Raises Refusal: prompts are token ids.
        """
        prompts = [self.prompt] if isinstance(self.prompt, str) else self.prompt
        limit = DEFAULT_LIMIT if self.max_tokens is None else self.max_tokens
        sampling = SamplingParameters.of({"max_tokens": limit, "stop": self.stop})
        if len(prompts) * (self.n or 1) > MOST_ANSWERS:
            raise Refusal(f"prompt and n ask for more than {MOST_ANSWERS:,} answers at once", param="prompt")
        made = []
        for prompt in prompts:
            if not isinstance(prompt, str):
                raise Refusal(
                    "prompt must be text: simulated models have no tokenizer, and cannot read token ids",
                    param="prompt",
                )
            made.append(
                Request((Message("user", prompt),), sampling, seed=self.seed, top_logprobs=self.logprobs)
            )
        if not made:
            raise Refusal("prompt holds no text", param="prompt")
        return made


read_completions = decoder(CompletionsBody)


def completions_body(
    body: CompletionsBody, requests: list[Request], answers: list[Completion]
) -> dict[str, Any]:
    """Make the whole answer, ``object: text_completion``; choices are grouped by prompt."""
    choices = [_choice(body, index, *pair) for index, pair in enumerate(zip(requests, answers, strict=True))]
    usage = usage_body(answers)
    usage["prompt_tokens"] = sum(answer.usage.input_tokens for answer in answers[:: body.n or 1])
    usage["total_tokens"] = usage["prompt_tokens"] + usage["completion_tokens"]
    return {**_head(body.model), "choices": choices, "usage": usage}


def completions_events(
    body: CompletionsBody, requests: list[Request], answers: list[Completion]
) -> Iterator[Timed]:
    head = _head(body.model)
    for index, pair in enumerate(zip(requests, answers, strict=True)):
        whole = _choice(body, index, *pair)
        for piece in tokens(whole["text"]):
            choice = {"text": piece, "index": index, "logprobs": None, "finish_reason": None}
            yield Timed({**head, "choices": [choice]}, characters=len(piece))
        yield Timed({**head, "choices": [{**whole, "text": ""}]})


def _choice(body: CompletionsBody, index: int, request: Request, answer: Completion) -> dict[str, Any]:
    text, reported, finish = answer.text, answer.logprobs, answer.finish_reason
    if body.max_tokens == 0:  # only the prompt is wanted: its likelihood
        text, reported, finish = "", (), "length"
    if body.echo:
        prompt = request.messages[0].content
        if body.logprobs is not None:
            reported = (*token_logprobs(prompt, body.logprobs, Draws(body.model, request)), *reported)
        text = prompt + text
    logprobs = _logprobs(reported, echoed=bool(body.echo)) if body.logprobs is not None else None
    return {"text": text, "index": index, "logprobs": logprobs, "finish_reason": finish}


def _logprobs(reported: tuple[TokenLogprob, ...], *, echoed: bool) -> dict[str, Any]:
    """Token by token; the first token of an echoed prompt follows nothing and has none."""
    logprobs: list[float | None] = [token.logprob for token in reported]
    tops: list[dict[str, float] | None] = [token.top for token in reported]
    if echoed and reported:
        logprobs[0] = tops[0] = None
    return {
        "tokens": [token.token for token in reported],
        "token_logprobs": logprobs,
        "top_logprobs": tops,
        "text_offset": [i * CHARACTERS_PER_TOKEN for i in range(len(reported))],
    }


def _head(model: str) -> dict[str, Any]:
    return {
        "id": f"cmpl-{uuid4().hex}",
        "object": "text_completion",
        "created": int(time.time()),
        "model": model,
    }
