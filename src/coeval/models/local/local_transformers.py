"""transformers: batches of requests, each row drawn by its own settings and its own seed.

``generate`` runs the model; which token follows is decided here, row by row (`Rows`), because its
own settings hold for a whole batch. A row's draws depend on its seed alone, not on its neighbours.
"""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple, Protocol, TypeAlias

import msgspec

from coeval.core.errors import BadRequest, Misshapen, ModelError, ServerFault
from coeval.core.foreign import convert
from coeval.core.model import ModelSpec
from coeval.core.records import TYPED_PARAMETERS, Completion, Message, Request, TokenLogprob, Usage
from coeval.models.dialects.dialect import split_off_reasoning

# --- A request to a local model on its way: how its answer is drawn, its tokens, what is made of the answer

FOUR_BITS = "load_in_4bit"
"""The option that keeps a model's weights in 4 bits."""
ENGINE_OPTIONS = ("max_model_len", "dtype", "gpu_memory_utilization")
"""Parameters of a local model that vLLM takes by these names; transformers takes the first two."""

# The limit of an answer where the request sets none.
USUAL_TOKENS = 2048


class Drawing(msgspec.Struct, frozen=True, kw_only=True):
    """How the tokens of one answer are drawn. None: as the model's own defaults say. ``temperature`` 0 takes
    the likeliest token; ``top`` is how many alternatives are told of each."""

    temperature: Annotated[float, msgspec.Meta(ge=0)] | None = None
    top_p: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    top_k: int | None = None
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    top: int | None = None


class LocalRequest:
    """One request on its way; equal to nothing but itself."""

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
        """Return how many more jobs it takes at once."""
        ...

    @property
    def busy(self) -> bool:
        """Return whether jobs that it took have not ended."""
        ...

    def step(self, jobs: Sequence[LocalRequest]) -> Ended:
        """Take these jobs in and work on; return all that ended, earlier ones included."""
        ...

    def close(self) -> None: ...


_KNOWN = {*TYPED_PARAMETERS, "max_completion_tokens", "max_new_tokens"}


def read_drawing(request: Request) -> Drawing:
    """Read how to draw an answer from a request; raises BadRequest for unknown parameters."""
    needed = request.sampling.to_dict()
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
        raise BadRequest(f"a local model cannot apply its sampling parameters: {error}") from error


def make_completion(
    text: str, finish: Literal["stop", "length"], usage: Usage, logprobs: tuple[TokenLogprob, ...] = ()
) -> Completion:
    """Make a completion as dialects do: reasoning split off, cut answers marked."""
    whole = Completion(text, usage, finish, logprobs=logprobs, truncated=finish == "length")
    return split_off_reasoning(whole)


class Prompt(NamedTuple):
    """A local_request's tokens, and how many its answer may have."""

    local_request: LocalRequest
    tokens: list[int]
    limit: int


def encode_prompt(tokenizer: Any, local_request: LocalRequest, context: int | None) -> Prompt:
    """Encode a request as tokens; raises BadRequest if it cannot be written, or fills the context."""
    tokens = _encode_messages(tokenizer, local_request.request.messages)
    limit = local_request.drawing.max_tokens or USUAL_TOKENS
    if context is None:
        return Prompt(local_request, tokens, limit)
    if len(tokens) >= context:
        raise BadRequest(
            f"the prompt has {len(tokens)} tokens, and the model takes {context} with its answer"
        )
    return Prompt(local_request, tokens, min(limit, context - len(tokens)))


def _encode_messages(tokenizer: Any, messages: Sequence[Message]) -> list[int]:
    """Encode messages with the tokenizer's chat template; without one, as texts with blank lines between.
    Some templates know no system message; it then goes before the first message."""
    if not tokenizer.chat_template:
        return list(tokenizer("\n\n".join(message.content for message in messages))["input_ids"])
    from jinja2 import TemplateError

    turns = [{"role": message.role, "content": message.content} for message in messages]
    try:
        try:
            return _apply_chat_template(tokenizer, turns)
        except TemplateError:
            if len(turns) < 2 or turns[0]["role"] != "system":
                raise
        first = {**turns[1], "content": f"{turns[0]['content']}\n\n{turns[1]['content']}"}
        return _apply_chat_template(tokenizer, [first, *turns[2:]])
    except TemplateError as error:
        raise BadRequest(f"the model's chat template refuses the messages: {error}") from error


def _apply_chat_template(tokenizer: Any, turns: list[dict[str, str]]) -> list[int]:
    encoding = tokenizer.apply_chat_template(
        turns, add_generation_prompt=True, tokenize=True, return_dict=True
    )
    return list(encoding["input_ids"])


# Halved when memory runs out; with more, short answers wait for the longest of their rows.
MOST_ROWS = 64
# Tokens; a stop sequence is looked for at an answer's end only, as it grows.
_STOP_WINDOW = 64


class TransformersEngine:
    """A causal language model of transformers, in the precision of its weights or in 4 bits. After running
    out of memory it takes half as many rows at once."""

    def __init__(self, spec: ModelSpec, device: str) -> None:
        """Load tokenizer and weights, and read the model's defaults, context and end tokens."""
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self._torch = torch
        self._token = spec.access_key
        tokenizer: Any = AutoTokenizer.from_pretrained(spec.model, token=self._token)
        model: Any = AutoModelForCausalLM.from_pretrained(
            spec.model,
            dtype=spec.options.get("dtype", "auto"),
            token=self._token,
            quantization_config=_make_quantization(torch) if spec.options.get(FOUR_BITS) else None,
            device_map=_choose_device_map(torch, device, four_bits=bool(spec.options.get(FOUR_BITS))),
        )
        self._model = model
        self._model.eval()
        self._tokenizer = tokenizer
        self._rows = min(MOST_ROWS, spec.max_concurrency or MOST_ROWS)
        self._defaults = _read_default_drawing(self._model.generation_config)
        text = self._model.config.get_text_config()
        limits = (getattr(text, "max_position_embeddings", None), spec.options.get("max_model_len"))
        self._context: int | None = min((limit for limit in limits if limit), default=None)
        ends = self._model.generation_config.eos_token_id
        ends = tokenizer.eos_token_id if ends is None else ends
        self._ends = frozenset(ends if isinstance(ends, list) else [ends]) - {None}

    @property
    def room(self) -> int:
        return self._rows

    @property
    def busy(self) -> bool:
        return False

    def step(self, jobs: Sequence[LocalRequest]) -> Ended:
        ended: Ended = []
        prompts: list[Prompt] = []
        for local_request in jobs:
            try:
                prompts.append(encode_prompt(self._tokenizer, local_request, self._context))
            except BadRequest as error:
                ended.append((local_request, error))
        return ended + self._answer_prompts(prompts)

    def close(self) -> None:
        self._model = None
        gc.collect()
        if self._torch.cuda.is_available():
            self._torch.cuda.empty_cache()

    def _answer_prompts(self, prompts: list[Prompt]) -> Ended:
        """Answer prompts in one batch; after running out of memory, in two halves."""
        if not prompts:
            return []
        try:
            completions = self._generate(prompts)
        except self._torch.OutOfMemoryError as error:
            if len(prompts) == 1:
                problem = f"one request alone does not fit into the device's memory: {error}"
                return [(prompts[0].local_request, ServerFault(problem, retry_advised=False))]
            completions = None
        if completions is None:
            # Outside the handler: the error's frames hold the tensors that have to go.
            self._torch.cuda.empty_cache()
            half = len(prompts) // 2
            self._rows = max(1, min(self._rows, half))
            return self._answer_prompts(prompts[:half]) + self._answer_prompts(prompts[half:])
        return [(requested.local_request, done) for requested, done in zip(prompts, completions, strict=True)]

    def _generate(self, prompts: list[Prompt]) -> list[Completion]:
        """Generate the answers of a batch, each row drawn by its own settings."""
        from transformers import LogitsProcessorList, StoppingCriteriaList

        torch = self._torch
        rows = Rows(
            torch,
            self._tokenizer,
            [_fill_defaults(requested.local_request.drawing, self._defaults) for requested in prompts],
        )
        rows.limits = [requested.limit for requested in prompts]
        rows.ends = self._ends
        longest = max(len(requested.tokens) for requested in prompts)
        # Prompts stand at the right, so that every answer begins at the same place.
        pad = next(iter(self._ends), 0)
        tokens = [[pad] * (longest - len(requested.tokens)) + requested.tokens for requested in prompts]
        mask = [
            [0] * (longest - len(requested.tokens)) + [1] * len(requested.tokens) for requested in prompts
        ]
        with torch.inference_mode():
            self._model.generate(
                input_ids=torch.tensor(tokens, device=self._model.device),
                attention_mask=torch.tensor(mask, device=self._model.device),
                generation_config=_make_greedy_config(self._model.generation_config, max(rows.limits), pad),
                logits_processor=LogitsProcessorList([rows.draw]),
                stopping_criteria=StoppingCriteriaList([rows.check_finished]),
            )
        return [
            _make_row_completion(self._tokenizer, rows, row, len(ids))
            for row, (_, ids, _) in enumerate(prompts)
        ]


class Rows:
    """The answers of a batch as they grow, one row each."""

    def __init__(self, torch: Any, tokenizer: Any, drawings: list[Drawing]) -> None:
        self._torch = torch
        self._tokenizer = tokenizer
        self.drawings = drawings
        self.limits: list[int] = []
        self.ends: frozenset[int] = frozenset()
        self.tokens: list[list[int]] = [[] for _ in drawings]
        self.reported: list[list[TokenLogprob]] = [[] for _ in drawings]
        self.finish: list[Literal["stop", "length"] | None] = [None] * len(drawings)
        self._chances = [random.Random(drawing.seed) for drawing in drawings]

    def draw(self, _: Any, scores: Any) -> Any:
        """Leave in each row only the drawn token; a logits processor of ``generate``."""
        torch = self._torch
        logits = scores.float()
        chosen = self._draw_tokens(logits)
        rows = chosen.tolist()
        if any(drawing.top is not None for drawing in self.drawings):
            self._record_logprobs(logits.log_softmax(-1), rows)
        for row, token in enumerate(rows):
            if self.finish[row] is None:
                self._append_token_or_finish(row, token)
        return torch.full_like(scores, float("-inf")).scatter_(1, chosen[:, None], 0.0)

    def check_finished(self, tokens: Any, _: Any, **__: Any) -> Any:
        """Return which rows have ended; a stopping criterion of ``generate``."""
        return self._torch.tensor([finish is not None for finish in self.finish], device=tokens.device)

    def _draw_tokens(self, logits: Any) -> Any:
        """Draw one token per row: top k, then top p of the remainder, as vLLM and transformers do."""
        torch = self._torch

        def column(values: list[float]) -> Any:
            return torch.tensor(values, device=logits.device)[:, None]

        heat = [drawing.temperature or 0.0 for drawing in self.drawings]
        if not any(heat):
            return logits.argmax(-1)
        size = logits.shape[-1]
        kept = [drawing.top_k if drawing.top_k and drawing.top_k > 0 else size for drawing in self.drawings]
        share = [1.0 if drawing.top_p is None else drawing.top_p for drawing in self.drawings]
        ordered, places = (logits / column([value or 1.0 for value in heat])).sort(-1, descending=True)
        ordered = ordered.masked_fill(
            torch.arange(size, device=logits.device)[None] >= column(kept), -torch.inf
        )
        chances = ordered.softmax(-1)
        before = chances.cumsum(-1) - chances
        # The likeliest stays, whatever the share is.
        before[:, 0] = -1.0
        summed = chances.masked_fill(before >= column(share), 0.0).cumsum(-1)
        drawn = column([chance.random() for chance in self._chances]) * summed[:, -1:]
        # Rounding may put a draw at the very end: the last token kept is meant, not one that is cut.
        last = (summed < summed[:, -1:]).sum(-1, keepdim=True)
        at = torch.minimum(torch.searchsorted(summed, drawn, right=True), last)
        warm = places.gather(1, at)[:, 0]
        return torch.where(column(heat)[:, 0] > 0, warm, logits.argmax(-1))

    def _append_token_or_finish(self, row: int, token: int) -> None:
        if token in self.ends:
            self.finish[row] = "stop"
            return
        tokens, stops = self.tokens[row], self.drawings[row].stop
        tokens.append(token)
        if stops:
            latest = self._tokenizer.decode(tokens[-_STOP_WINDOW:])
            if any(stop in latest for stop in stops):
                self.finish[row] = "stop"
                return
        if len(tokens) >= self.limits[row]:
            self.finish[row] = "length"

    def _record_logprobs(self, logprobs: Any, chosen: list[int]) -> None:
        for row, (drawing, token) in enumerate(zip(self.drawings, chosen, strict=True)):
            if drawing.top is None or self.finish[row] is not None or token in self.ends:
                continue
            top: dict[str, float] = {}
            if drawing.top:
                values, places = logprobs[row].topk(min(drawing.top, logprobs.shape[-1]))
                for value, token_id in zip(values.tolist(), places.tolist(), strict=True):
                    # Two tokens can read the same: the likelier is kept.
                    top.setdefault(self._tokenizer.decode([token_id]), value)
            text = self._tokenizer.decode([token])
            self.reported[row].append(TokenLogprob(text, float(logprobs[row, token]), top))


def _choose_device_map(torch: Any, device: str, *, four_bits: bool) -> str | None:
    """Return the device map for the weights; None for the processor, which does not need accelerate."""
    if device == "cpu" and not four_bits:
        return None
    return "auto" if device == "cuda" and torch.cuda.device_count() > 1 else device


def _make_quantization(torch: Any) -> Any:
    """Configure 4-bit normal floats, computed with in 16 bits (Dettmers et al. 2023, QLoRA)."""
    from transformers import BitsAndBytesConfig

    return BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16
    )


def _read_default_drawing(config: Any) -> Drawing:
    """Return what the model's makers recommend if they sample; else temperature 1 without cuts."""
    if not config.do_sample:
        return Drawing(temperature=1.0)
    temperature = 1.0 if config.temperature is None else config.temperature
    return Drawing(temperature=temperature, top_p=config.top_p, top_k=config.top_k)


def _fill_defaults(needed: Drawing, defaults: Drawing) -> Drawing:
    settings = {name: value for name, value in msgspec.structs.asdict(needed).items() if value is not None}
    return msgspec.structs.replace(defaults, **settings)


def _make_greedy_config(config: Any, most_tokens: int, pad: int) -> Any:
    """Copy the model's configuration without what draws, cuts or changes scores: `Rows` does that."""
    from transformers import GenerationConfig

    return GenerationConfig(
        do_sample=False,
        max_new_tokens=most_tokens,
        pad_token_id=pad,
        bos_token_id=config.bos_token_id,
        eos_token_id=None,
    )


def _make_row_completion(tokenizer: Any, rows: Rows, row: int, prompt_tokens: int) -> Completion:
    tokens = rows.tokens[row]
    text = tokenizer.decode(tokens, skip_special_tokens=True)
    cuts = [text.find(stop) for stop in rows.drawings[row].stop]
    text = text[: min((cut for cut in cuts if cut >= 0), default=len(text))]
    usage = Usage(prompt_tokens, len(tokens))
    return make_completion(text, rows.finish[row] or "length", usage, tuple(rows.reported[row]))
