"""vLLM in this process: its engine takes requests at any time and batches them continuously."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

from coeval.core.errors import BadRequest
from coeval.core.model import ModelSpec
from coeval.core.records import Completion, TokenLogprob, Usage
from coeval.models.local.local_request import FOUR_BITS, Ended, LocalRequest, Prompt, completion, prompt

# Handed over and not ended. vLLM keeps its own queue; more would only wait there, out of order.
MOST_REQUESTS = 4096


class VllmEngine:
    """`vllm.LLM` on one GPU, driven step by step, so that a request joins those under way."""

    def __init__(self, spec: ModelSpec, device: str) -> None:
        from vllm import LLM

        if device not in ("cuda", "cuda:0"):
            raise ValueError(
                f"vLLM takes the first GPU it sees; set CUDA_VISIBLE_DEVICES instead of {device}"
            )
        how = {"quantization": "bitsandbytes"} if spec.options.get(FOUR_BITS) else {}
        self._llm: Any = LLM(model=spec.model, **how)
        self._tokenizer: Any = self._llm.get_tokenizer()
        self._context: int = self._llm.llm_engine.model_config.max_model_len
        self._names = count()
        self._inside: dict[str, LocalRequest] = {}

    @property
    def room(self) -> int:
        return MOST_REQUESTS - len(self._inside)

    @property
    def busy(self) -> bool:
        return bool(self._inside)

    def step(self, jobs: Sequence[LocalRequest]) -> Ended:
        ended: Ended = []
        engine = self._llm.llm_engine
        for local_request in jobs:
            try:
                requested = prompt(self._tokenizer, local_request, self._context)
            except BadRequest as error:
                ended.append((local_request, error))
                continue
            name = f"{next(self._names)}"
            engine.add_request(name, {"prompt_token_ids": requested.tokens}, self._parameters(requested))
            self._inside[name] = local_request
        if self._inside:
            for output in engine.step():
                if output.finished:
                    ended.append((self._inside.pop(output.request_id), _read(output)))
        return ended

    def close(self) -> None:
        self._llm = None

    def _parameters(self, requested: Prompt) -> Any:
        """Over the defaults of the model's makers, which vLLM reads as well."""
        drawing = requested.local_request.drawing
        parameters = self._llm.get_default_sampling_params()
        parameters.max_tokens = requested.limit
        for name in ("temperature", "top_p", "top_k", "seed"):
            value = getattr(drawing, name)
            if value is not None:
                setattr(parameters, name, value)
        parameters.stop = list(drawing.stop)
        parameters.logprobs = drawing.top
        return parameters


def _read(output: Any) -> Completion:
    answer = output.outputs[0]
    usage = Usage(len(output.prompt_token_ids or ()), len(answer.token_ids))
    cut = answer.finish_reason == "length"
    return completion(answer.text, "length" if cut else "stop", usage, _logprobs(answer))


def _logprobs(answer: Any) -> tuple[TokenLogprob, ...]:
    """vLLM tells the token drawn beside the likeliest, and ranks them."""
    reported = []
    for token, choices in zip(answer.token_ids, answer.logprobs or (), strict=False):
        ranked = sorted(choices.values(), key=lambda choice: choice.logprob)
        top = {choice.decoded_token or "": choice.logprob for choice in ranked}
        reported.append(TokenLogprob(choices[token].decoded_token or "", choices[token].logprob, top))
    return tuple(reported)
