"""Models in this process: vLLM where it is installed, else transformers.

Requests wait in one queue, and what waits is answered together: transformers in batches, vLLM
continuously. One thread does the work, so that the event loop stays free.
"""

from __future__ import annotations

import asyncio
import heapq
import os
import re
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from coeval.core.errors import BadRequest, ModelError, ModelStopped, ServerFault, UsageError
from coeval.core.model import Model, ModelSpec, lowest_answer_limit, mark_if_cut_by_window
from coeval.core.options import DEVICE
from coeval.core.records import Completion, Request, TokenLogprob, Usage
from coeval.core.redaction import Redactor
from coeval.core.shown_url import find_url_secrets
from coeval.models.hosted import cut_completion
from coeval.models.local.function_model import OwnCode
from coeval.models.local.local_transformers import (
    ENGINE_OPTIONS,
    FOUR_BITS,
    Ended,
    Engine,
    LocalRequest,
    Prompt,
    TransformersEngine,
    encode_prompt,
    make_completion,
    read_drawing,
)
from coeval.models.pacing.admission import Admission
from coeval.models.pacing.limits import Limiter
from coeval.models.transport.http import make_draining_error

# --- vLLM in this process
#
# vLLM in this process: its engine takes requests at any time and batches them continuously.

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
        how: dict[str, Any] = {name: value for name, value in spec.options.items() if name in ENGINE_OPTIONS}
        how |= {"quantization": "bitsandbytes"} if spec.options.get(FOUR_BITS) else {}
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
        """Take the jobs in, run one step, and return what has ended."""
        ended: Ended = []
        engine = self._llm.llm_engine
        for local_request in jobs:
            try:
                requested = encode_prompt(self._tokenizer, local_request, self._context)
            except BadRequest as error:
                ended.append((local_request, error))
                continue
            name = f"{next(self._names)}"
            engine.add_request(
                name, {"prompt_token_ids": requested.tokens}, self._make_sampling_parameters(requested)
            )
            self._inside[name] = local_request
        if self._inside:
            for output in engine.step():
                if output.finished:
                    ended.append((self._inside.pop(output.request_id), _make_vllm_completion(output)))
        return ended

    def close(self) -> None:
        self._llm = None

    def _make_sampling_parameters(self, requested: Prompt) -> Any:
        """Set a prompt's parameters over the model makers' defaults, which vLLM reads as well."""
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


def _make_vllm_completion(output: Any) -> Completion:
    answer = output.outputs[0]
    usage = Usage(len(output.prompt_token_ids or ()), len(answer.token_ids))
    cut = answer.finish_reason == "length"
    return make_completion(answer.text, "length" if cut else "stop", usage, _read_vllm_logprobs(answer))


def _read_vllm_logprobs(answer: Any) -> tuple[TokenLogprob, ...]:
    """Read the log-probabilities of an answer; vLLM reports the drawn token beside the likeliest, ranked."""
    reported = []
    for token, choices in zip(answer.token_ids, answer.logprobs or (), strict=False):
        ranked = sorted(choices.values(), key=lambda choice: choice.logprob)
        top = {choice.decoded_token or "": choice.logprob for choice in ranked}
        reported.append(TokenLogprob(choices[token].decoded_token or "", choices[token].logprob, top))
    return tuple(reported)


# --- Models in this process


class InProcess(Model):
    """A model in this process behind its ``limiter`` (None: unlimited) and its budget."""

    def __init__(
        self, model: Model, spec: ModelSpec, admission: Admission, limiter: Limiter | None = None
    ) -> None:
        self.name = model.name
        self.interface = model.interface
        self.answer_limit = model.answer_limit
        self._model = model
        self._spec = spec
        self._admission = admission
        self._own = model if isinstance(model, OwnCode) else None
        self._limiter = limiter
        self._drained = False
        self._most = spec.max_answer_bytes

    async def complete(self, request: Request) -> Completion:
        limiter = self._limiter
        if limiter is None:
            return await self._admit_and_complete_within_limits(request)
        if self._drained and not request.goes_on:
            raise make_draining_error()
        owner = None if request.goes_on else self
        await limiter.acquire(request.priority, refusal=self._admission.refusal, owner=owner)
        try:
            completion = await self._admit_and_complete_within_limits(request)
            limiter.record_answer(request.priority, completion.latency_s, completion.usage.tokens)
            return completion
        finally:
            limiter.release()

    async def is_listed(self) -> bool:
        return await self._model.is_listed()

    async def context_window(self) -> int | None:
        return await self._model.context_window()

    def drain(self) -> None:
        """Refuse requests that wait for a slot with Draining."""
        if self._limiter is not None:
            self._drained = True
            self._limiter.reject_waiting(self, make_draining_error())
        if self._own is not None:
            self._own.drain()

    async def _admit_and_complete_within_limits(self, request: Request) -> Completion:
        if self._own is not None:  # it books each call by itself, when it is made
            return cut_completion(await self._own.complete(request), self._most)
        completion = await self._admission.call_once(request, self._spec, self._model.complete)
        return cut_completion(
            mark_if_cut_by_window(completion, lowest_answer_limit(request.sampling, self._spec)),
            self._most,
        )


Library: TypeAlias = Literal["vllm", "transformers"]

INSTALL = (
    "pip install '.[huggingface]' in CoEval's folder (transformers), or pip install vllm (faster on a GPU; "
    "see its guide for the build that fits your CUDA)"
)
# How long a first request waits for others to be answered with it.
GATHER_S = 0.005
# One of these makes a folder a model: as transformers, Mistral and PEFT save them.
_CONFIGURATIONS = ("config.json", "params.json", "adapter_config.json")


class LocalModel(Model):
    """A model by its name on the hub or its folder; ``spec.options`` says by ``device`` where it runs, and by
    ``load_in_4bit`` whether in 4 bits. ``auto`` takes the GPU, which must be there: a run on the processor
    may take days, and is begun only where it is asked for. `open` loads the weights, `aclose` frees them."""

    def __init__(self, spec: ModelSpec) -> None:
        """Find the runtime; raises as `find_runtime`."""
        self.name = spec.name
        self.interface = spec.interface
        self._runtime = find_runtime(spec)
        self._spec = msgspec.structs.replace(spec, model=self._runtime.weights)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"local {spec.name}")
        self._engine: Engine | None = None
        self._waiting: list[tuple[int, int, LocalRequest]] = []
        self._order = count()
        self._arrived = asyncio.Event()
        self._working: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Load the weights; the first time they are downloaded. Raises UsageError where they cannot be."""
        loop = asyncio.get_running_loop()
        self._engine = await loop.run_in_executor(self._thread, load_engine, self._spec, self._runtime)
        self._working = loop.create_task(self._run_engine(self._engine))

    async def complete(self, request: Request) -> Completion:
        """Answer, together with the other requests that wait; those of a larger priority first."""
        if self._working is None or self._working.done():
            raise ModelStopped(f"local model {self.name} is not loaded (any more)")
        local_request = LocalRequest(
            request, read_drawing(request), asyncio.get_running_loop().create_future()
        )
        heapq.heappush(self._waiting, (-request.priority, next(self._order), local_request))
        self._arrived.set()
        return await local_request.answer

    async def aclose(self) -> None:
        """Free the model once the running step has ended."""
        if self._working is not None:
            self._working.cancel()
            await asyncio.wait({self._working})
        for _, _, local_request in self._waiting:
            local_request.answer.cancel()
        self._waiting.clear()
        if self._engine is not None:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._engine.close)
            self._engine = None
        self._thread.shutdown(wait=False)

    async def _run_engine(self, engine: Engine) -> None:
        """Hand waiting requests to the engine, and its answers to their futures, while the model is open."""
        loop = asyncio.get_running_loop()
        inside: set[LocalRequest] = set()
        while True:
            if not engine.busy and not self._waiting:
                self._arrived.clear()
                await self._arrived.wait()
                await asyncio.sleep(GATHER_S)
            jobs = self._pop_waiting(engine.room)
            inside.update(jobs)
            step = asyncio.ensure_future(loop.run_in_executor(self._thread, engine.step, jobs))
            # Shielded by `wait`: a step cannot be broken off, so closing lets it end.
            await asyncio.wait({step})
            if error := step.exception():
                failure = f"local model {self.name}: {type(error).__name__}: {error}"
                ended: Ended = [(job, ServerFault(failure, retry_advised=False)) for job in inside]
            else:
                ended = step.result()
            for local_request, outcome in ended:
                inside.discard(local_request)
                _set_outcome(local_request, outcome)

    def _pop_waiting(self, room: int) -> list[LocalRequest]:
        jobs: list[LocalRequest] = []
        now = time.monotonic()
        while self._waiting and len(jobs) < room:
            local_request = heapq.heappop(self._waiting)[2]
            if not local_request.answer.done():
                local_request.began = now
                jobs.append(local_request)
        return jobs


def _set_outcome(local_request: LocalRequest, outcome: Completion | ModelError) -> None:
    if local_request.answer.done():
        return
    if isinstance(outcome, ModelError):
        local_request.answer.set_exception(outcome)
    else:
        latency_s = time.monotonic() - local_request.began
        local_request.answer.set_result(msgspec.structs.replace(outcome, latency_s=latency_s))


class Runtime(NamedTuple):
    """What runs a local model: ``weights`` is its folder, or its name on the hub."""

    weights: str
    library: Library
    device: str


def find_runtime(spec: ModelSpec) -> Runtime:
    """Choose the library and device for a model, without loading weights. Raises UsageError: its folder holds
    no model, a library is not installed, or the device is not there."""
    weights = resolve_folder_or_hub_name(spec)
    library = find_installed_library(spec.name)
    if spec.options.get(FOUR_BITS) and find_spec("bitsandbytes") is None:
        raise UsageError(
            f"local model {spec.name}: {FOUR_BITS} needs bitsandbytes, which is not installed: "
            "pip install '.[quantized]' in CoEval's folder, or pip install bitsandbytes"
        )
    device = choose_device(spec.options.get("device", "auto"), spec.name)
    # vLLM's usual build has no kernels for the processor.
    library = "transformers" if device == "cpu" else library
    placed = device != "cpu" or spec.options.get(FOUR_BITS)
    if library == "transformers" and placed and find_spec("accelerate") is None:
        raise UsageError(
            f"local model {spec.name}: transformers needs accelerate to load it on {device}, which is not "
            "installed: pip install accelerate"
        )
    return Runtime(weights, library, device)


def resolve_folder_or_hub_name(spec: ModelSpec) -> str:
    """Return the weights' folder, or a name on the hub; raises UsageError if it is neither."""
    path = Path(spec.model).expanduser()
    if path.is_dir() and not any((path / name).is_file() for name in _CONFIGURATIONS):
        raise UsageError(
            f"local model {spec.name}: the folder {spec.model} holds no config.json, so no model; "
            "name the folder that the weights were saved in"
        )
    if _is_path(spec.model) and not path.exists():
        raise UsageError(
            f"local model {spec.name}: there is no folder {spec.model} (looked for at {path.absolute()}); "
            "correct the path, or name a model of the hub as owner/name"
        )
    return str(path) if path.exists() else spec.model


def _is_path(model: str) -> bool:
    """Check whether a text cannot be a name on the hub: ``name`` or ``owner/name``."""
    return model.startswith((".", "~", "/")) or model.count("/") > 1 or "\\" in model


def find_installed_library(model: str) -> Library:
    """Return the installed library that runs a local model; raises UsageError with what to install."""
    if find_spec("vllm") is not None:
        return "vllm"
    if find_spec("transformers") is not None and find_spec("torch") is not None:
        return "transformers"
    raise UsageError(
        f"local model {model}: neither vllm nor transformers with torch is installed. Install one:\n"
        f"  {INSTALL}\nor serve the model elsewhere and give its address (base_url; --base-url)."
    )


def choose_device(device_name: Any, model: str) -> str:
    """Return ``cpu``, ``cuda`` or ``cuda:N``; raises UsageError for a device that is not there."""
    from torch import cuda

    gpus = cuda.device_count() if cuda.is_available() else 0
    if device_name == "cpu":
        return "cpu"
    if device_name == "auto":
        if not gpus:
            raise UsageError(
                f"local model {model}: there is no CUDA GPU, and a local model needs one. {DEVICE} runs it "
                "on the CPU, slowly; or serve it elsewhere and give its address (base_url; --base-url)."
                " If there is a GPU, check that python -c 'import torch; print(torch.cuda.is_available())' "
                "prints True."
            )
        return "cuda"
    pinned = re.fullmatch(r"cuda(?::(\d{1,3}))?", device_name) if isinstance(device_name, str) else None
    if pinned is None:
        raise UsageError(
            f"local model {model}: device must be auto, cpu, cuda or cuda:N; it is {device_name!r}"
        )
    if int(pinned[1] or 0) >= gpus:
        raise UsageError(
            f"local model {model}: device {device_name} is missing ({gpus} CUDA GPUs are visible). Choose "
            "another, or check that python -c 'import torch; print(torch.cuda.is_available())' prints True."
        )
    return pinned[0]


def load_engine(spec: ModelSpec, runtime: Runtime) -> Engine:
    """Load the model's weights into an engine; raises UsageError if they cannot be loaded."""
    library, device = runtime.library, runtime.device
    try:
        return VllmEngine(spec, device) if library == "vllm" else TransformersEngine(spec, device)
    except (OSError, ValueError, ImportError, RuntimeError) as error:
        secrets = (spec.access_key or "", *find_url_secrets(os.environ.get("HF_ENDPOINT", "")))
        redactor = Redactor(secrets, names=spec.open_names)
        sought = "" if Path(spec.model).exists() else ", searched on the hub as no folder here has that name,"
        raise UsageError(
            f"local model {spec.name}: {spec.model}{sought} could not be loaded with {library} on {device}: "
            f"{redactor.redact_message(str(error))}\nCheck its name on the hub or its folder, that the "
            "weights are downloaded or the hub can be reached, and that the memory is large enough."
        ) from error
