"""`interface: python`: a function of the user's answers, whatever it does."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from coeval.core.errors import (
    ConnectionFailed,
    Draining,
    ModelError,
    ModelStopped,
    QuotaExhausted,
    RateLimited,
    RequestTimeout,
    ServerFault,
    UsageError,
)
from coeval.core.model import Model, ModelSpec
from coeval.core.records import Message, Request, SamplingParameters, Schema
from coeval.models.keys import Keys
from coeval.models.local.callables import (
    hash_source,
    parse_own_answer,
    register_callable,
    require_callable_file,
)
from coeval.models.metering.account_file import Terms
from coeval.models.metering.meter import Ledger
from coeval.models.open import Models, find_interface_obstacle, raise_unless_askable
from coeval.models.transport import call

KEYS = Keys.load(None, env={}, cwd=Path("/nonexistent"), home=Path("/nonexistent"))
ASKED = Request(
    (Message("system", "Be kind."), Message("user", "Hello?")),
    SamplingParameters(temperature=0.5, max_tokens=9),
    seed=7,
)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries do not wait."""
    monkeypatch.setattr(call, "BACKOFF_S", (0.001,) * len(call.BACKOFF_S))


@asynccontextmanager
async def opened(function: Callable[..., Any] | str, **fields: Any) -> AsyncIterator[Model]:
    place = function if isinstance(function, str) else register_callable(function)
    spec = ModelSpec(name="m", interface="python", model="m", options={"callable": place}, **fields)
    async with Models([spec], KEYS, ledger=fields.pop("ledger", None)) as models:
        yield models["m"]


async def said(function: Callable[..., Any] | str, request: Request = ASKED, **fields: Any) -> str:
    async with opened(function, **fields) as model:
        return (await model.complete(request)).text


async def failed(function: Callable[..., Any], **fields: Any) -> ModelError:
    with pytest.raises(ModelError) as error:
        await said(function, **fields)
    return error.value


async def test_a_function_of_a_prompt_is_told_of_the_system_prompt_too() -> None:
    assert await said(lambda prompt: prompt) == "Be kind.\n\nHello?"
    assert await said(str.upper) == "BE KIND.\n\nHELLO?"


async def test_it_is_given_what_its_signature_takes() -> None:
    def answer(question: str, *, system: str, seed: int, settings: dict[str, Any], extra: int = 3) -> str:
        return f"{question} {system} {seed} {settings} {extra}"

    expected = "Hello? Be kind. 7 {'temperature': 0.5, 'max_tokens': 9} 3"
    assert await said(answer) == expected

    def everything(**given: Any) -> str:
        return " ".join(sorted(given))

    assert await said(everything) == "messages schema seed settings system"

    def by_messages(messages: list[dict[str, str]], schema: Any) -> str:
        return f"{messages[1]['content']} {schema}"

    shaped = Request((Message("user", "a"), Message("user", "b")), schema=Schema("s", {"type": "object"}))
    assert await said(by_messages, shaped) == "b {'type': 'object'}"


async def test_a_coroutine_runs_on_the_loop_and_an_object_may_be_called() -> None:
    async def answer(prompt: str, messages: Any) -> str:
        await asyncio.sleep(0)
        assert threading.current_thread() is threading.main_thread()
        return prompt

    class Bot:
        def __call__(self, prompt: str) -> str:
            return "bot"

    assert await said(answer) == "Hello?"
    assert await said(Bot()) == "bot"


async def test_usage_and_cost_are_what_it_tells() -> None:
    class Reply:
        text = "yes"
        usage: Any = None
        cost_usd = 0.25

    async with opened(lambda _: {"text": "a", "usage": {"input_tokens": 5, "output_tokens": 2}}) as model:
        usage = (await model.complete(ASKED)).usage
        assert (usage.input_tokens, usage.output_tokens, usage.cost_usd) == (5, 2, None)
    async with opened(lambda _: Reply()) as model:
        completion = await model.complete(ASKED)
        assert (completion.text, completion.usage.cost_usd) == ("yes", 0.25)


@pytest.mark.parametrize(
    ("value", "wrong"),
    [
        (None, "returned NoneType; an answer is text"),
        (float("nan"), "returned float"),
        (7, "returned int"),
        (b"bytes", "returned bytes"),
        ({}, "returned dict without a text"),
        ({"text": 3}, "returned dict without a text"),
        ({"text": "a", "cost_usd": float("nan")}, "gave cost_usd=nan"),
        ({"text": "a", "cost_usd": -1}, "gave cost_usd=-1"),
        ({"text": "a", "usage": {"input_tokens": 1.5}}, "gave input_tokens=1.5"),
        ({"text": "a", "usage": {"output_tokens": -2}}, "gave output_tokens=-2"),
    ],
)
async def test_what_is_no_answer_fails_its_item(value: Any, wrong: str) -> None:
    calls = []

    def answer(prompt: str) -> Any:
        calls.append(prompt)
        return value

    error = await failed(answer)
    assert error.kind == "unreadable"
    assert not error.retry_advised
    assert wrong in str(error)
    assert len(calls) == 1


class Busy(Exception):
    status_code = 429


class ReadTimeout(Exception):
    """As libraries name theirs, which derive from none of Python's."""


ReadTimeout.__mro__[0].__name__ = "TimeoutException"


@pytest.mark.parametrize(
    ("error", "kind", "calls"),
    [
        (ValueError("no"), ServerFault, 1),
        (SystemExit(3), ServerFault, 1),
        (KeyboardInterrupt(), ServerFault, 1),
        (RecursionError(), ServerFault, 1),
        (MemoryError(), ServerFault, 1),
        (ConnectionResetError("gone"), ConnectionFailed, 8),
        (TimeoutError("late"), RequestTimeout, 2),
        (ReadTimeout("late"), RequestTimeout, 2),
        (Busy("slow down"), RateLimited, 8),
        (RateLimited("ours"), RateLimited, 8),
    ],
)
async def test_what_it_raises_is_its_items_failure_or_is_tried_again(
    error: BaseException, kind: type[ModelError], calls: int
) -> None:
    asked = []

    def answer(prompt: str) -> str:
        asked.append(prompt)
        raise error

    found = await failed(answer)
    assert type(found) is kind
    assert len(asked) == calls
    assert type(error).__name__ in str(found) or isinstance(error, ModelError)


@pytest.mark.parametrize("headers", [{"Retry-After": None, 5: []}, {"retry-after": 0}, ["retry-after"]])
async def test_odd_headers_of_a_refusal_are_no_failure_of_ours(headers: object) -> None:
    error = Busy("slow down")
    error.response = SimpleNamespace(headers=headers)  # type: ignore[attr-defined]

    def answer(_: str) -> str:
        raise error

    assert type(await failed(answer)) is RateLimited


async def test_who_waits_for_a_limit_of_the_code_is_told_that_the_run_ends() -> None:
    error, asked = Busy("slow down"), asyncio.Event()
    error.response = SimpleNamespace(headers={"Retry-After": "300"})  # type: ignore[attr-defined]

    async def answer(_: str) -> str:
        asked.set()
        raise error

    spec = ModelSpec(name="m", interface="python", model="m", options={"callable": register_callable(answer)})
    async with Models([spec], KEYS) as models, asyncio.timeout(30):
        waits = asyncio.create_task(models["m"].complete(ASKED))
        await asked.wait()
        await asyncio.sleep(0.01)
        models.drain()
        with pytest.raises(Draining):
            await waits


async def test_a_passing_trouble_passes() -> None:
    troubles: Iterator[Exception] = iter([ConnectionError("one"), Busy("two")])

    async def answer(prompt: str) -> str:
        if (trouble := next(troubles, None)) is not None:
            raise trouble
        return "at last"

    async with opened(answer) as model:
        completion = await model.complete(ASKED)
    assert (completion.text, completion.attempts) == ("at last", 3)


async def test_keys_are_redacted(monkeypatch: pytest.MonkeyPatch) -> None:
    key = "sk-proj-0123456789abcdefABCDEF0123456789"
    monkeypatch.setenv("OPENAI_API_KEY", key)

    def leak(prompt: str) -> str:
        raise ValueError(f"refused with {key}")

    assert key not in str(await failed(leak))
    assert key not in await said(lambda _: f"my key is {key}")


async def test_huge_text_is_cut_and_half_characters_are_kept_out() -> None:
    async with opened(lambda _: "é" * 3_000_000, max_answer_bytes=1000) as model:
        completion = await model.complete(ASKED)
    assert len(completion.text.encode()) <= 1000
    assert completion.truncated
    assert await said(lambda _: "a\ud800b") == "a?b"
    async with opened(lambda _: "<think>hm</think>yes") as model:
        completion = await model.complete(ASKED)
    assert (completion.text, completion.reasoning) == ("yes", "hm")


async def test_a_call_that_hangs_is_given_up_and_others_go_on() -> None:
    free = threading.Event()

    def answer(prompt: str) -> str:
        if "hang" in prompt:
            free.wait(60)
        return "ok"

    async with opened(answer, timeout_s=0.1, max_concurrency=3) as model:
        hanging = Request((Message("user", "hang"),))
        asked = [model.complete(hanging), *(model.complete(ASKED) for _ in range(50))]
        first, *others = await asyncio.gather(*asked, return_exceptions=True)
        assert isinstance(first, RequestTimeout)
        assert "returned no answer in 0.1 s" in str(first)
        assert {other.text for other in others if not isinstance(other, BaseException)} == {"ok"}
        assert len(others) == 50
        await asyncio.gather(*(model.complete(hanging) for _ in range(2)), return_exceptions=True)
        with pytest.raises(ModelStopped, match=r"3 calls took more than 0\.1 s and still hang"):
            await model.complete(ASKED)
        free.set()
        for _ in range(200):
            await asyncio.sleep(0.01)
            try:
                assert (await model.complete(ASKED)).text == "ok", "they hang no longer"
                break
            except ModelStopped:
                continue
        else:
            raise AssertionError("threads that ended are not used again")


@pytest.mark.parametrize("most", [1, 4])
async def test_calls_that_hang_among_fast_ones_hold_nobody_up(most: int) -> None:
    """The first thread hangs, when all before it was fast; where it is alone, those that wait are refused."""
    free = threading.Event()

    def answer(prompt: str) -> str:
        if prompt.endswith(("13", "33", "53")):
            free.wait(60)
        return "ok"

    async with opened(answer, timeout_s=0.2, max_concurrency=most) as model:
        asked = [Request((Message("user", f"{n}"),)) for n in range(80)]
        async with asyncio.timeout(30):
            ended = await asyncio.gather(*map(model.complete, asked), return_exceptions=True)
        kinds = [type(each).__name__ for each in ended]
        assert kinds.count("RequestTimeout") == (3 if most > 1 else 1)
        assert kinds.count("ModelStopped") == (0 if most > 1 else 66)
        free.set()


async def test_a_coroutine_that_hangs_is_cancelled() -> None:
    async def answer(prompt: str) -> str:
        await asyncio.sleep(60)
        return "never"

    assert isinstance(await failed(answer, timeout_s=0.05), RequestTimeout)


async def test_calls_that_wait_run_at_once_up_to_the_limit() -> None:
    at_once, most, lock = 0, 0, threading.Lock()

    def answer(prompt: str) -> str:
        nonlocal at_once, most
        with lock:
            at_once += 1
            most = max(most, at_once)
        time.sleep(0.05)
        with lock:
            at_once -= 1
        return "ok"

    async with opened(answer, max_concurrency=8) as model:
        began = time.perf_counter()
        await asyncio.gather(*(model.complete(ASKED) for _ in range(80)))
        assert most == 8
        assert time.perf_counter() - began < 3.0, "one by one, they would take 4 s"


@pytest.mark.process
async def test_calls_that_return_at_once_cost_little() -> None:
    """A tenth of what is asked for on a quiet machine, as processor time of this process."""
    async with opened(lambda prompt: prompt) as model:
        began = time.process_time()
        await asyncio.gather(*(model.complete(ASKED) for _ in range(20_000)))
        assert time.process_time() - began < 10.0


async def test_cancelled_calls_are_not_made() -> None:
    made = []

    def answer(prompt: str) -> str:
        made.append(prompt)
        time.sleep(0.02)
        return "ok"

    async with opened(answer, max_concurrency=1) as model:
        tasks = [asyncio.ensure_future(model.complete(ASKED)) for _ in range(100)]
        await asyncio.sleep(0.05)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert (await model.complete(ASKED)).text == "ok"
    assert len(made) < 20


async def test_a_budget_ends_what_says_that_it_costs(tmp_path: Path) -> None:
    place = register_callable(lambda _: {"text": "a", "cost_usd": 0.4})
    spec = ModelSpec(name="m", interface="python", model="m", options={"callable": place})
    free = Terms(price=lambda usage: 0.0, max_cost_usd=1.0)
    ledger = Ledger(tmp_path / "usage.json", {"m": free})
    async with Models([spec], KEYS, ledger=ledger) as models:
        for _ in range(2):
            await models["m"].complete(ASKED)
        with pytest.raises(QuotaExhausted, match=r"max_cost_usd is \$1"):
            await models["m"].complete(ASKED)
    assert ledger.meter("m").spent_usd == pytest.approx(0.8)
    ledger.close()
    ledger = Ledger(tmp_path / "usage.json", {"m": free})
    async with Models([spec], KEYS, ledger=ledger) as models:
        with pytest.raises(QuotaExhausted, match=r"may cost \$0.4"):
            await models["m"].complete(ASKED)
    assert ledger.meter("m").requests == 2
    ledger.close()


@pytest.mark.parametrize("waits", [False, True])
async def test_calls_that_wait_at_once_stay_within_a_budget(tmp_path: Path, waits: bool) -> None:
    inside, most = 0, [0]

    def sync(_: str) -> dict[str, Any]:
        return {"text": "a", "cost_usd": 0.01}

    async def on_the_loop(_: str) -> dict[str, Any]:
        nonlocal inside
        inside += 1
        most.append(inside)
        await asyncio.sleep(0.01)
        inside -= 1
        return {"text": "a", "cost_usd": 0.01}

    place = register_callable(on_the_loop if waits else sync)
    spec = ModelSpec(name="m", interface="python", model="m", options={"callable": place})
    free = Terms(price=lambda usage: 0.0)
    ledger = Ledger(tmp_path / "usage.json", {"m": free}, budget_usd=0.105)
    async with Models([spec], KEYS, ledger=ledger) as models:
        work = (models["m"].complete(ASKED) for _ in range(100))
        ended = await asyncio.gather(*work, return_exceptions=True)
    assert sum(isinstance(each, QuotaExhausted) for each in ended) == 90
    assert ledger.meter("m").requests == 10
    assert ledger.meter("m").spent_usd == pytest.approx(0.1)
    assert not waits or most[2] == 1 < max(most), "one goes ahead, and the others go together"
    ledger.close()


@pytest.mark.parametrize("waits", [False, True])
async def test_after_an_interrupt_no_call_begins_and_none_is_counted(tmp_path: Path, waits: bool) -> None:
    begun, gate = [], threading.Event()

    def sync(prompt: str) -> str:
        begun.append(prompt)
        gate.wait(60)
        return "a"

    async def on_the_loop(prompt: str) -> str:
        begun.append(prompt)
        await asyncio.to_thread(gate.wait, 60)
        return "a"

    place = register_callable(on_the_loop if waits else sync)
    spec = ModelSpec(name="m", interface="python", model="m", options={"callable": place}, max_concurrency=2)
    ledger = Ledger(tmp_path / "usage.json", {"m": Terms(max_calls=50, price=lambda usage: 0.0)})
    async with Models([spec], KEYS, ledger=ledger) as models:
        tasks = [asyncio.ensure_future(models["m"].complete(ASKED)) for _ in range(20)]
        for _ in range(10_000):
            if len(begun) == 2:
                break
            await asyncio.sleep(0.001)
        models.drain()
        gate.set()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert sum(isinstance(each, Draining) for each in ended) == 18
    assert (len(begun), ledger.meter("m").requests) == (2, 2)
    ledger.close()


# --- Where it is, and what it is known by


def written(folder: Path, text: str, name: str = "app.py") -> Path:
    path = folder / name
    path.write_text(text)
    return path


async def test_files_and_modules_of_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    written(tmp_path, "WORD = 'beside'", "own_words_b.py")
    written(tmp_path, "import own_words_b\ndef answer(p): return own_words_b.WORD", "own_app_b.py")
    assert await said("own_app_b.py:answer") == "beside"
    assert await said("own_app_b:answer") == "beside"
    assert hash_source("own_app_b.py:answer") == hash_source("own_app_b:answer")
    before = hash_source("own_app_b.py:answer")
    written(tmp_path, "def answer(p): return 'other'", "own_app_b.py")
    assert hash_source("own_app_b.py:answer") != before


async def test_no_package_is_imported_to_find_a_function_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "own_package_c" / "inner").mkdir(parents=True)
    written(tmp_path, "raise SystemExit('imported')", "own_package_c/__init__.py")
    written(tmp_path, "def answer(p): return 'deep'", "own_package_c/inner/app.py")
    assert len(hash_source("own_package_c.inner.app:answer")) == 12
    require_callable_file("own_package_c.inner.app:answer")
    assert "own_package_c" not in sys.modules
    for place in ("own_package_c.none:answer", "own_package_c.inner.app.more:answer", "..x:answer"):
        assert hash_source(place) == ""
        with pytest.raises(UsageError, match="callable"):
            require_callable_file(place)
    written(tmp_path, "", "own_package_c/__init__.py")
    assert await said("own_package_c.inner.app:answer") == "deep"


@pytest.mark.parametrize(
    ("text", "place", "wrong"),
    [
        ("", "app.py:answer", "has no function of that name"),
        ("answer = 3", "app.py:answer", "has no function of that name"),
        ("def answer(", "app.py:answer", "SyntaxError"),
        ("raise SystemExit(3)", "app.py:answer", "cannot be loaded (SystemExit: 3)"),
        ("def answer(prompt, color): pass", "app.py:answer", "takes color, which no request has"),
        ("", "nothing.py:answer", "there is no file nothing.py"),
        ("", "no_such_module_b:answer", "there is no module no_such_module_b"),
        ("", "app.py", "write FILE.py:FUNCTION or MODULE:FUNCTION"),
    ],
)
async def test_what_cannot_be_loaded_is_told_before_anything_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, place: str, wrong: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    written(tmp_path, text)
    with pytest.raises(UsageError) as error:
        await said(place)
    assert wrong in str(error.value)


def test_what_is_not_there_is_told_without_running_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, "raise RuntimeError('it was run')")
    spec = ModelSpec(name="m", interface="python", model="m", options={"callable": "app.py:answer"})
    raise_unless_askable([spec], KEYS)
    with pytest.raises(UsageError, match=r"there is no file gone\.py"):
        raise_unless_askable(
            [ModelSpec(name="m", interface="python", model="m", options={"callable": "gone.py:f"})], KEYS
        )


def test_functions_given_from_python_are_known_by_their_own_source() -> None:
    def one(prompt: str) -> str:
        return "one"

    place = register_callable(one)
    before = hash_source(place)
    assert before == hash_source(place)
    namespace: dict[str, Any] = {}
    exec("def two(prompt): return 'two'", namespace)  # noqa: S102  as typed at a prompt
    assert len(hash_source(register_callable(namespace["two"]))) == 12


async def test_objects_of_one_class_are_told_apart() -> None:
    class Bot:
        def __init__(self, word: str) -> None:
            self.word = word

        def __call__(self, prompt: str) -> str:
            return self.word

    bots = [Bot("a"), Bot("b")]
    places = [register_callable(bot) for bot in bots]
    assert places[1] == f"{places[0]}#2"
    assert [await said(place) for place in places] == ["a", "b"]
    assert register_callable(bots[0]) == places[0]


@pytest.mark.parametrize("interface", ["python", "command"])
def test_an_interface_without_code_is_an_obstacle_and_no_crash(interface: str) -> None:
    assert f"interface {interface} (model {interface}) needs parameters." in str(
        find_interface_obstacle(interface, KEYS)
    )


def test_what_a_function_brings_with_it_counts() -> None:
    """A closure's values, one lambda of two on a line, and the state of an object; equal ones are equal."""

    def made(word: object) -> Callable[[str], object]:
        return lambda _: word

    class Bot:
        def __init__(self, word: str) -> None:
            self.word = word

        def __call__(self, prompt: str) -> str:
            return self.word

    def known(function: Callable[..., object]) -> str:
        return hash_source(register_callable(function))

    one, other = (lambda _: "bad"), (lambda _: "good")
    assert known(one) != known(other)
    assert known(made("bad")) != known(made("good"))
    assert known(made("bad")) == known(made("bad"))
    assert known(made(object())) == known(made(object())), "no address counts"
    (around := list[object]()).append(around)
    assert known(made(around)) == known(made(around))
    assert known(Bot("bad")) == known(Bot("bad")) != known(Bot("good"))
    assert known(Bot("bad").__call__) == known(Bot("bad").__call__) != known(Bot("good").__call__)
    assert known(partial(one, "a")) != known(partial(one, "b"))


def test_a_mapping_is_the_answer_where_a_schema_was_asked_for() -> None:
    judged = {"clear": {"reason": "Short.", "score": "High"}}
    assert json.loads(parse_own_answer(judged, "f", structured=True).text) == judged
    assert parse_own_answer({"text": "a"}, "f", structured=True).text == "a"
    with pytest.raises(ServerFault, match="dict without a text"):
        parse_own_answer(judged, "f")
    with pytest.raises(ServerFault, match="dict without a text"):
        parse_own_answer({"clear": object()}, "f", structured=True)
