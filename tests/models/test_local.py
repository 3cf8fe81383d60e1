"""Local models: in this process, and behind a server of OpenAI's shape that is not ours."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import math
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from fakes.tiny_model import tiny_model

from coeval.core.errors import BadRequest, ModelStopped, ServerFault, UsageError
from coeval.core.model import ModelSpec
from coeval.core.records import Completion, Message, Request, SamplingParameters
from coeval.models.keys import Keys
from coeval.models.local import local_model as local
from coeval.models.local.local_model import LocalModel
from coeval.models.local.local_transformers import Drawing, Rows, TransformersEngine
from coeval.models.metering.meter import Ledger
from coeval.models.open import Models

pytestmark = [pytest.mark.system, pytest.mark.filterwarnings("default")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("tiny"))


def spec(folder: Path, **fields: Any) -> ModelSpec:
    fields = {"options": {"device": "cpu"}, **fields}
    return ModelSpec(name="tiny", interface="huggingface", model=f"{folder}", **fields)


@asynccontextmanager
async def opened(folder: Path, **fields: Any) -> AsyncIterator[LocalModel]:
    model = LocalModel(spec(folder, **fields))
    await model.open()
    try:
        yield model
    finally:
        await model.aclose()


def asking(text: str, *, seed: int = 1, top: int | None = None, **sampling: Any) -> Request:
    sampling = {"temperature": 1.0, "max_tokens": 12, **sampling}
    return Request(
        (Message("user", text),), sampling=SamplingParameters.of(sampling), seed=seed, top_logprobs=top
    )


class Bare:
    """The model as transformers loads it, to compare with."""

    def __init__(self, folder: Path) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self.model: Any = AutoModelForCausalLM.from_pretrained(folder)
        self.tokenizer: Any = AutoTokenizer.from_pretrained(folder)

    def prompt(self, text: str) -> Any:
        turns = [{"role": "user", "content": text}]
        return self.tokenizer.apply_chat_template(
            turns, add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt"
        )

    def greedy(self, text: str, tokens: int) -> str:
        prompt = self.prompt(text)
        made = self.model.generate(**prompt, max_new_tokens=tokens, do_sample=False, pad_token_id=1)
        fresh = made[0][prompt["input_ids"].shape[1] :]
        return str(self.tokenizer.decode(fresh, skip_special_tokens=True))


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows each batch had."""
    sizes: list[int] = []
    generated = TransformersEngine._generate

    def counted(self: TransformersEngine, prompts: Any) -> list[Completion]:
        sizes.append(len(prompts))
        return generated(self, prompts)

    monkeypatch.setattr(TransformersEngine, "_generate", counted)
    return sizes


async def test_requests_that_wait_are_answered_together(folder: Path, batches: list[int]) -> None:
    requests = [asking("Hello " * (number % 4), seed=number) for number in range(40)]
    async with opened(folder) as model:
        together = await asyncio.gather(*map(model.complete, requests))
        assert sum(batches) == 40
        assert len(batches) <= 3
        alone = [await model.complete(request) for request in requests[:6]]
    assert [one.text for one in alone] == [one.text for one in together[:6]], "neighbours change nothing"
    assert len({one.text for one in together}) > 35, "seeds do"
    assert {one.usage.input_tokens for one in together} == {18, 24, 30, 36}


async def test_a_batch_is_as_large_as_the_model_may_have_requests(folder: Path, batches: list[int]) -> None:
    async with opened(folder, max_concurrency=8) as model:
        await asyncio.gather(*(model.complete(asking("x", seed=number)) for number in range(20)))
    assert max(batches) == 8


async def test_the_likeliest_tokens_are_those_of_transformers(folder: Path) -> None:
    bare, texts = Bare(folder), ("a", "Hello", "Why so long?")
    every: list[dict[str, Any]] = [{"temperature": 0}, {"top_k": 1}, {"top_p": 1e-6}]
    async with opened(folder) as model:
        for sampling in every:
            requests = [asking(text, **{"max_tokens": 24, **sampling}) for text in texts]
            answers = await asyncio.gather(*map(model.complete, requests))
            assert [one.text for one in answers] == [bare.greedy(text, 24) for text in texts], sampling


async def test_tokens_are_drawn_as_often_as_they_are_likely(folder: Path) -> None:
    import torch

    bare = Bare(folder)
    chances = bare.model(**bare.prompt("Hello")).logits[0, -1].detach().softmax(-1)
    kept = torch.topk(chances, 3)
    needed = {
        bare.tokenizer.decode([place]): float(share)
        for place, share in zip(kept.indices, kept.values, strict=True)
    }
    whole = sum(needed.values())
    async with opened(folder) as model:
        requests = [asking("Hello", seed=seed, top_k=3, max_tokens=1, top=0) for seed in range(600)]
        answers = await asyncio.gather(*map(model.complete, requests))
    drawn = [answer.logprobs[0].token for answer in answers]
    assert set(drawn) <= needed.keys()
    for token, share in needed.items():
        assert abs(drawn.count(token) / 600 - share / whole) < 0.07


async def test_log_probabilities_are_those_of_the_model(folder: Path) -> None:
    bare = Bare(folder)
    expected = bare.model(**bare.prompt("Hello")).logits[0, -1].detach().log_softmax(-1)
    async with opened(folder) as model:
        reported, plain, bare_reported = await asyncio.gather(
            model.complete(asking("Hello", top=5, temperature=0)),
            model.complete(asking("Hello", temperature=0)),
            model.complete(asking("Hello", top=0, temperature=0)),
        )
    assert plain.logprobs == ()
    assert len(reported.logprobs) == reported.usage.output_tokens
    assert math.isclose(reported.logprobs[0].logprob, float(expected.max()), abs_tol=1e-4)
    assert max(reported.logprobs[0].top.values()) == pytest.approx(reported.logprobs[0].logprob)
    assert [token.top for token in bare_reported.logprobs] == [{}] * len(reported.logprobs)


async def test_an_answer_ends_at_its_limit_at_a_stop_or_by_itself(folder: Path) -> None:
    async with opened(folder) as model:
        tries = [model.complete(asking("Hello", max_tokens=40, seed=seed)) for seed in range(8)]
        seed, whole = next(
            (seed, one)
            for seed, one in enumerate(await asyncio.gather(*tries))
            if one.finish_reason == "length"
        )
        assert (whole.truncated, whole.usage.output_tokens) == (True, 40)
        cut = await model.complete(asking("Hello", max_tokens=5, seed=seed))
        assert (cut.usage.output_tokens, cut.finish_reason) == (5, "length")
        stop = next(letter for letter in whole.text[3:] if letter.isascii() and letter not in whole.text[:3])
        stopped = await model.complete(asking("Hello", max_tokens=40, seed=seed, stop=[stop, "never said"]))
        assert stopped.text == whole.text.partition(stop)[0]
        assert stopped.finish_reason == "stop"
        many = [model.complete(asking("Hi", seed=seed, max_tokens=400)) for seed in range(30)]
        ended = [one for one in await asyncio.gather(*many) if one.finish_reason == "stop"]
    assert ended, "the token that ends an answer is one in 258"
    assert all(one.usage.output_tokens < 400 and not one.truncated for one in ended)


async def test_what_cannot_be_heeded_fails_alone(folder: Path) -> None:
    requests = [asking("x" * 5000), asking("fine"), asking("x", presence_penalty=1), asking("x", top_p=0)]
    async with opened(folder) as model:
        too_long, fine, strange, wrong = await asyncio.gather(
            *map(model.complete, requests), return_exceptions=True
        )
    assert isinstance(fine, Completion)
    assert isinstance(too_long, BadRequest)
    assert "the model takes 4096" in f"{too_long}"
    assert isinstance(strange, BadRequest)
    assert "presence_penalty" in f"{strange}"
    assert isinstance(wrong, BadRequest)
    with pytest.raises(ModelStopped):
        await model.complete(asking("closed by now"))


async def test_more_important_requests_go_first(folder: Path) -> None:
    finished: list[int] = []
    async with opened(folder, max_concurrency=1) as model:

        async def ask(priority: int) -> None:
            await model.complete(
                Request((Message("user", "x"),), sampling=SamplingParameters(max_tokens=1), priority=priority)
            )
            finished.append(priority)

        await asyncio.gather(*map(ask, (0, 1, 2, 0, 2)))
    assert finished == [2, 2, 1, 0, 0]


def test_which_rows_have_ended_is_told_on_the_models_device() -> None:
    """Torch refuses to mix devices; its device without memory stands for a GPU."""
    torch = pytest.importorskip("torch", reason="torch is not installed: pip install '.[local]'")
    from transformers import StoppingCriteriaList

    rows = Rows(torch, None, [Drawing(), Drawing()])
    ended = StoppingCriteriaList([rows.check_finished])
    tokens: Any = torch.zeros((2, 3), dtype=torch.long, device="meta")
    assert ended(tokens, None).device.type == "meta"


async def test_a_device_without_enough_memory_takes_fewer_at_once(folder: Path) -> None:
    import torch

    sizes: list[int] = []
    async with opened(folder) as model:
        engine = model._engine
        assert isinstance(engine, TransformersEngine)
        generate = engine._model.generate

        def scarce(**arguments: Any) -> Any:
            sizes.append(arguments["input_ids"].shape[0])
            if sizes[-1] > 4:
                raise torch.OutOfMemoryError("too much")
            return generate(**arguments)

        engine._model.generate = scarce
        answers = await asyncio.gather(*(model.complete(asking("x", seed=seed)) for seed in range(16)))
        assert all(isinstance(answer, Completion) for answer in answers)
        tried = len(sizes)
        await asyncio.gather(*(model.complete(asking("x", seed=seed)) for seed in range(16)))
        assert max(sizes[tried:]) <= 4, "what was too much is not tried again"
        engine._model.generate = lambda **_: (_ for _ in ()).throw(torch.OutOfMemoryError("too much"))
        with pytest.raises(ServerFault, match="does not fit") as caught:
            await model.complete(asking("x"))
    assert not caught.value.retry_advised


async def test_a_step_that_breaks_fails_its_own_requests_only(folder: Path) -> None:
    async with opened(folder) as model:
        engine = model._engine
        assert isinstance(engine, TransformersEngine)
        generate, engine._model.generate = engine._model.generate, lambda **_: 1 / 0
        with pytest.raises(ServerFault, match="ZeroDivisionError"):
            await model.complete(asking("x"))
        engine._model.generate = generate
        assert (await model.complete(asking("x"))).usage.output_tokens == 12


NO_SYSTEM = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no') }}{% endif %}"
    "{{ m.content }}{% endfor %}"
)


@pytest.mark.parametrize(
    ("template", "tokens"), [(None, 13), (NO_SYSTEM, 13), ("{{ raise_exception('no') }}", None)]
)
async def test_prompts_are_written_whatever_the_template(
    tmp_path: Path, template: str | None, tokens: int | None
) -> None:
    tiny_model(tmp_path, chat_template=template)
    request = Request(
        (Message("system", "Be kind"), Message("user", "Tell")), sampling=SamplingParameters(max_tokens=1)
    )
    async with opened(tmp_path) as model:
        if tokens is None:
            with pytest.raises(BadRequest, match="chat template"):
                await model.complete(request)
        else:
            assert (await model.complete(request)).usage.input_tokens == tokens


async def test_weights_in_four_bits_take_less_room_and_answer(tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes", reason="bitsandbytes is not installed: pip install '.[quantized]'")
    from transformers import AutoModelForCausalLM

    folder = tiny_model(tmp_path, hidden_size=128)
    plain = AutoModelForCausalLM.from_pretrained(folder).get_memory_footprint()
    async with opened(folder, options={"device": "cpu", "load_in_4bit": True}) as model:
        assert isinstance(model._engine, TransformersEngine)
        assert model._engine._model.get_memory_footprint() < 0.5 * plain
        said = await model.complete(asking("Hello", seed=1))
    assert said.usage.output_tokens > 1


def test_four_bits_without_their_library_say_what_to_install(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = importlib.util.find_spec
    monkeypatch.setattr(
        "coeval.models.local.local_model.find_spec",
        lambda name: None if name == "bitsandbytes" else there(name),
    )
    with pytest.raises(UsageError, match=r"load_in_4bit needs bitsandbytes.*pip install"):
        LocalModel(spec(folder, options={"device": "cpu", "load_in_4bit": True}))


async def test_models_open_and_free_it(folder: Path, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "usage.json")
    keys = Keys.load(None, env={}, cwd=tmp_path, home=tmp_path)
    async with Models([spec(folder)], keys, ledger=ledger) as models:
        said = await models["tiny"].complete(asking("Hello"))
        assert said.text
    ledger.close()
    booked = json.loads((tmp_path / "usage.json").read_text())["models"]["tiny"]
    assert (booked["requests"], booked["output_tokens"]) == (1, said.usage.output_tokens)
    with pytest.raises(ModelStopped):
        await models["tiny"].complete(asking("Hello"))


async def test_what_is_not_there_is_said_before_anything_is_asked(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match=r"device must be auto, cpu, cuda or cuda:N; it is 'tpu'"):
        LocalModel(spec(folder, options={"device": "tpu"}))
    import torch

    if not torch.cuda.is_available():
        for options in ({}, {"device": "auto"}):
            with pytest.raises(UsageError, match=r"there is no CUDA GPU.*device: cpu runs it on the CPU"):
                LocalModel(spec(folder, options=options))
    with pytest.raises(UsageError, match=r"cuda:99 is missing"):
        LocalModel(spec(folder, options={"device": "cuda:99"}))
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UsageError, match="could not be loaded with transformers on cpu"):
        async with Models([spec(tmp_path)], Keys.load(None, env={}, cwd=tmp_path, home=tmp_path)):
            pass
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    absent = spec(Path("owner/no-such-model"))
    with pytest.raises(UsageError, match=r"searched on the hub as no folder here has that name"):
        async with Models([absent], Keys.load(None, env={}, cwd=tmp_path, home=tmp_path)):
            pass
    monkeypatch.setattr(local, "find_spec", lambda _: None)
    with pytest.raises(UsageError, match=r"pip install '.\[huggingface\]'"):
        LocalModel(spec(folder))


@pytest.mark.parametrize(("device", "four_bits"), [("cuda:0", False), ("cuda", False), ("cpu", True)])
def test_accelerate_is_asked_for_by_name(
    folder: Path, monkeypatch: pytest.MonkeyPatch, device: str, four_bits: bool
) -> None:
    """The processor alone needs none."""
    lacking = {"accelerate", "vllm"}
    monkeypatch.setattr(local, "find_spec", lambda name: None if name in lacking else object())
    monkeypatch.setattr(local, "choose_device", lambda needed, _: needed)
    with pytest.raises(
        UsageError, match=r"needs accelerate .* which is not installed: pip install accelerate"
    ):
        local.find_runtime(spec(folder, options={"device": device, "load_in_4bit": four_bits}))
    assert local.find_runtime(spec(folder, options={"device": "cpu"})).library == "transformers"


async def test_a_short_context_cuts_answers_by_the_window(folder: Path, tmp_path: Path) -> None:
    made = spec(folder, options={"device": "cpu", "max_model_len": 48, "dtype": "bfloat16"})
    async with Models([made], Keys.load(None, env={}, cwd=tmp_path, home=tmp_path)) as models:
        cut = await models[made.name].complete(asking("Hi", seed=1, max_tokens=400))
    assert (cut.truncated, cut.finish_reason) == (True, "window")


class FakeEngine:
    """Shaped as vLLM 0.11's LLMEngine is; each step ends the requests that came before the last two."""

    def __init__(self) -> None:
        self.model_config = SimpleNamespace(max_model_len=64)
        self.requested: dict[str, Any] = {}
        self.started: list[dict[str, Any]] = []

    def add_request(self, request_id: str, prompt: dict[str, Any], params: Any) -> None:
        self.requested[request_id] = (prompt["prompt_token_ids"], params)

    def step(self) -> list[Any]:
        ended = list(self.requested)[:-2] or list(self.requested)
        return [self._output(name, *self.requested.pop(name)) for name in ended]

    def _output(self, name: str, ids: list[int], params: Any) -> Any:
        choices = {
            7: SimpleNamespace(logprob=-0.5, decoded_token="M"),
            8: SimpleNamespace(logprob=-1.5, decoded_token="m"),
        }
        answer = SimpleNamespace(
            text=f"<think>so</think>{params.seed}",
            token_ids=[7],
            finish_reason="length" if params.max_tokens < 20 else "stop",
            logprobs=None if params.logprobs is None else [choices],
        )
        return SimpleNamespace(request_id=name, finished=True, prompt_token_ids=ids, outputs=[answer])


@pytest.fixture
def fake_vllm(folder: Path, monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    from transformers import AutoTokenizer

    engine = FakeEngine()
    made = SimpleNamespace(
        llm_engine=engine,
        get_tokenizer=lambda: AutoTokenizer.from_pretrained(folder),
        get_default_sampling_params=lambda: SimpleNamespace(temperature=0.6, top_p=1.0, top_k=0, seed=None),
    )
    module = ModuleType("vllm")
    module.__spec__ = ModuleSpec("vllm", None)

    def load(**how: Any) -> SimpleNamespace:
        engine.started.append(how)
        return made

    module.LLM = load  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm", module)
    monkeypatch.setattr(local, "choose_device", lambda *_: "cuda")
    return engine


async def test_vllm_takes_its_own_options(folder: Path, fake_vllm: FakeEngine) -> None:
    how = {"max_model_len": 512, "dtype": "float16", "gpu_memory_utilization": 0.5}
    async with opened(folder, options={"device": "cuda", **how}):
        pass
    assert fake_vllm.started == [{"model": str(folder), **how}]


async def test_vllm_is_taken_where_it_is_installed(folder: Path, fake_vllm: FakeEngine) -> None:
    async with opened(folder, options={}) as model:
        answers = await asyncio.gather(
            *(model.complete(asking("Hi", seed=seed, max_tokens=30, top=2)) for seed in range(9)),
            model.complete(asking("Hi", seed=9)),
            model.complete(asking("x" * 80)),
            return_exceptions=True,
        )
    *whole, cut, too_long = answers
    for seed, answer in enumerate(whole):
        assert isinstance(answer, Completion)
        assert (answer.text, answer.reasoning, answer.finish_reason) == (f"{seed}", "so", "stop")
        assert answer.logprobs[0].token == "M"
        assert answer.logprobs[0].top == {"M": -0.5, "m": -1.5}
        assert answer.usage.input_tokens == 20
    assert isinstance(cut, Completion)
    assert (cut.finish_reason, cut.truncated, cut.logprobs) == ("length", True, ())
    assert isinstance(too_long, BadRequest)
    assert fake_vllm.requested == {}


PATIENCE_S = 180


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """``(base URL, the model's folder)``; the server is ended with all that it started."""
    pytest.importorskip("uvicorn", reason="uvicorn is not installed: pip install '.[local]'")
    folder = tiny_model(tmp_path_factory.mktemp("served"))
    command = Path(sys.executable).with_name("transformers")
    if not command.is_file():
        pytest.skip("there is no command `transformers`: pip install '.[local]'")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = folder / "serve.log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            [command, "serve", folder, "--host", "127.0.0.1", "--port", f"{port}", "--device", "cpu"],
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "HF_HUB_OFFLINE": "1"},
            start_new_session=True,
        )
    try:
        wait_for(f"http://127.0.0.1:{port}/health", server, log)
        yield f"http://127.0.0.1:{port}/v1", folder
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait(20)


def wait_for(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        assert server.poll() is None, log.read_text(errors="replace")[-2000:]
        try:
            with urllib.request.urlopen(url, timeout=5):  # noqa: S310
                return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.5)
    pytest.fail(f"no answer from {url} in {PATIENCE_S} s:\n{log.read_text(errors='replace')[-2000:]}")


async def test_it_is_asked_like_vllm(served: tuple[str, Path], tmp_path: Path) -> None:
    """With eval-framework's default sampling, whose top_k this server does not know."""
    url, folder = served
    spec = ModelSpec(name="tiny", interface="vllm", model=f"{folder}", base_url=url)
    sampling = {"temperature": 0.7, "top_p": 0.8, "top_k": 20, "max_tokens": 6}
    requests = [
        Request(
            (Message("system", "Be kind"), Message("user", f"Hello {number}")),
            sampling=SamplingParameters.of(sampling),
            seed=number,
            droppable=("top_k",),
        )
        for number in range(4)
    ]
    async with Models([spec], Keys.load(None, env={}, cwd=tmp_path, home=tmp_path)) as models:
        answers = await asyncio.gather(*map(models["tiny"].complete, requests))
    assert {answer.dropped for answer in answers} == {("top_k",)}
    assert all(0 < answer.usage.output_tokens <= 6 for answer in answers)
    assert all(answer.usage.input_tokens > 30 for answer in answers)
    assert {answer.finish_reason for answer in answers} <= {"length", "stop"}
    assert all(answer.truncated == (answer.finish_reason == "length") for answer in answers)


@pytest.mark.system
def test_eval_framework_runs_against_it(served: tuple[str, Path], tmp_path: Path) -> None:
    url, folder = served
    cache = Path(os.environ.get("COEVAL_CACHE", Path.home() / ".cache" / "coeval"))
    if not (cache / "files" / "ifeval").is_dir():
        pytest.skip("IFEval's prompts are not in the cache; `coeval datasets fetch ifeval` puts them there")
    for source in (["--base-url", url], ["--local", "--device", "cpu"]):
        folder_of = tmp_path / source[0].strip("-")
        requested = ["--tasks", "ifeval", "--model", f"{folder}", *source, "--output-dir", f"{folder_of}"]
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "coeval.cli.eval_framework",
                *requested,
                "--max-examples=4",
                "--max-tokens=24",
            ],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        answers = (folder_of / "ifeval" / "responses.jsonl").read_text(encoding="utf-8").splitlines()
        assert len(answers) == 4
        assert all('"response":' in answer for answer in answers)
