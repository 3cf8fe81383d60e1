"""A request to a local model on its way: how its answer is drawn, its tokens, what is made of the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple, Protocol, TypeAlias

import msgspec

from coeval.core.errors import BadRequest, Misshapen, ModelError
from coeval.core.foreign import convert
from coeval.core.records import TYPED_PARAMETERS, Completion, Message, Request, TokenLogprob, Usage
from coeval.models.dialects.dialect import reasoning_apart

FOUR_BITS = "load_in_4bit"
"""The option that keeps a model's weights in 4 bits."""
ENGINE_OPTIONS = ("max_model_len", "dtype", "gpu_memory_utilization")
"""Parameters of a local model that vLLM takes by these names; transformers takes the first two."""

# The limit of an answer where the request sets none.
USUAL_TOKENS = 2048


class Drawing(msgspec.Struct, frozen=True, kw_only=True):
    """How the tokens of one answer are drawn. None: as the model's own defaults say.

    ``temperature`` 0 takes the likeliest token; ``top`` is how many alternatives are told of each.
    """

    temperature: Annotated[float, msgspec.Meta(ge=0)] | None = None
    top_p: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    top_k: int | None = None
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    top: int | None = None


class LocalRequest:
    """One request on its way; equal to nothing but itself."""

    __slots__ = ("answer", "began", "drawing", "request")

    def __init__(self, request: Request, drawing: Drawing, answer: asyncio.Future[Completion]) -> None:
        self.request = request
        self.drawing = drawing
        self.answer = answer
        self.began = 0.0


Ended: TypeAlias = list[tuple[LocalRequest, Completion | ModelError]]


class Engine(Protocol):
    """A library with a model loaded. Only ever called from one thread."""

    @property
    def room(self) -> int:
        """How many more jobs it takes at once."""
        ...

    @property
    def busy(self) -> bool:
        """Whether jobs that it took are not ended yet."""
        ...

    def step(self, jobs: Sequence[LocalRequest]) -> Ended:
        """Take these jobs in and work on; returns those that have ended, of these and of earlier ones."""
        ...

    def close(self) -> None: ...


_KNOWN = {*TYPED_PARAMETERS, "max_completion_tokens", "max_new_tokens"}


def drawing(request: Request) -> Drawing:
    """How an answer to the request is drawn. Raises BadRequest for parameters that it cannot heed."""
    needed = request.sampling.named()
    strange = sorted(needed.keys() - _KNOWN)
    if strange:
        raise BadRequest(
            f"a local model does not know {', '.join(strange)}; known: {', '.join(sorted(_KNOWN))}"
        )
    needed["max_tokens"] = needed.pop("max_completion_tokens", request.sampling.max_tokens)
    needed["top"] = request.top_logprobs
    if request.seed is not None:
        needed["seed"] = request.seed
    try:
        return convert(needed, Drawing)
    except Misshapen as error:
        raise BadRequest(f"a local model cannot heed its sampling parameters: {error}") from error


def completion(
    text: str, finish: Literal["stop", "length"], usage: Usage, logprobs: tuple[TokenLogprob, ...] = ()
) -> Completion:
    """An answer as every dialect gives it: reasoning apart, cut ones marked."""
    whole = Completion(text, usage, finish, logprobs=logprobs, truncated=finish == "length")
    return reasoning_apart(whole)


class Prompt(NamedTuple):
    """A local_request's tokens, and how many its answer may have."""

    local_request: LocalRequest
    tokens: list[int]
    limit: int


def prompt(tokenizer: Any, local_request: LocalRequest, context: int | None) -> Prompt:
    """Raises BadRequest where the prompt cannot be written, or fills the model's context."""
    tokens = _encoded(tokenizer, local_request.request.messages)
    limit = local_request.drawing.max_tokens or USUAL_TOKENS
    if context is None:
        return Prompt(local_request, tokens, limit)
    if len(tokens) >= context:
        raise BadRequest(
            f"the prompt has {len(tokens)} tokens, and the model takes {context} with its answer"
        )
    return Prompt(local_request, tokens, min(limit, context - len(tokens)))


def _encoded(tokenizer: Any, messages: Sequence[Message]) -> list[int]:
    """By the tokenizer's chat template; where it has none, the texts, a blank line apart.

    Some templates know no system message; it then goes before the first message.
    """
    if not tokenizer.chat_template:
        return list(tokenizer("\n\n".join(message.content for message in messages))["input_ids"])
    from jinja2 import TemplateError

    turns = [{"role": message.role, "content": message.content} for message in messages]
    try:
        try:
            return _templated(tokenizer, turns)
        except TemplateError:
            if len(turns) < 2 or turns[0]["role"] != "system":
                raise
        first = {**turns[1], "content": f"{turns[0]['content']}\n\n{turns[1]['content']}"}
        return _templated(tokenizer, [first, *turns[2:]])
    except TemplateError as error:
        raise BadRequest(f"the model's chat template refuses the messages: {error}") from error


def _templated(tokenizer: Any, turns: list[dict[str, str]]) -> list[int]:
    encoding = tokenizer.apply_chat_template(
        turns, add_generation_prompt=True, tokenize=True, return_dict=True
    )
    return list(encoding["input_ids"])
