"""`interface: command`: a program answers, whatever it does; and nothing of it is left."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import textwrap
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from coeval.core.errors import ModelError, RequestTimeout, ServerFault, Unreadable, UsageError
from coeval.core.model import Model, ModelSpec
from coeval.core.records import Message, Request
from coeval.models.keys import Keys
from coeval.models.open import Models
from coeval.models.transport import call

pytestmark = pytest.mark.process

KEYS = Keys.load(None, env={}, cwd=Path("/nonexistent"), home=Path("/nonexistent"))
ASKED = Request((Message("system", "Be kind."), Message("user", "Hello?")), seed=7)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call, "BACKOFF_S", (0.001,) * len(call.BACKOFF_S))


@asynccontextmanager
async def opened(code: str, *, keeps: bool = False, **fields: Any) -> AsyncIterator[Model]:
    """A program of Python's."""
    options = {"argv": [sys.executable, "-S", "-c", textwrap.dedent(code)], **fields.pop("options", {})}
    if keeps:
        options["protocol"] = "jsonl"
    spec = ModelSpec(name="m", interface="command", model="m", options=options, **fields)
    async with Models([spec], KEYS) as models:
        yield models["m"]


async def said(code: str, **fields: Any) -> str:
    async with opened(code, **fields) as model:
        return (await model.complete(ASKED)).text


async def failed(code: str, **fields: Any) -> ModelError:
    with pytest.raises(ModelError) as error:
        await said(code, **fields)
    return error.value


def alive(pid: int) -> bool:
    with suppress(OSError):
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state not in "ZX"
    return False


async def gone(pid: int) -> bool:
    for _ in range(500):
        if not alive(pid):
            return True
        await asyncio.sleep(0.01)
    return False


def is_written(path: Path) -> bool:
    return path.exists() and path.read_text().endswith(".")


async def written(path: Path) -> None:
    """Wait until a program has written a file whole; a moment, or a minute on a busy machine."""
    for _ in range(3_000):
        if is_written(path):
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"{path.name} was not written")


LOOP = """
import sys, json
for line in sys.stdin:
    asked = json.loads(line)
    print(json.dumps({"id": asked["id"], **{reply}}), flush=True)
"""


async def test_a_prompt_goes_in_and_an_answer_comes_out() -> None:
    assert await said("import sys; print(sys.stdin.read().upper())") == "BE KIND.\n\nHELLO?\n"[:-1]
    assert await said("print('did not read')") == "did not read"
    assert await said("pass") == "", "an empty answer is an answer"


async def test_a_program_that_is_kept_answers_line_by_line() -> None:
    reply = '{"text": asked["prompt"] + str(asked["seed"]) + asked["system"], "cost_usd": 0.5}'
    async with opened(LOOP.replace("{reply}", reply), keeps=True) as model:
        completions = await asyncio.gather(*(model.complete(ASKED) for _ in range(20)))
    assert {(each.text, each.usage.cost_usd) for each in completions} == {("Hello?7Be kind.", 0.5)}
    pids = LOOP.replace("{reply}", "{'text': str(__import__('os').getpid())}")
    async with opened(pids, keeps=True) as model:
        answers = [(await model.complete(ASKED)).text for _ in range(5)]
    assert len({*answers}) == 1
    assert await gone(int(answers[0]))
    async with opened(pids, keeps=True, max_concurrency=3) as model:
        found = await asyncio.gather(*(model.complete(ASKED) for _ in range(30)))
    assert 1 <= len({each.text for each in found}) <= 3


@pytest.mark.parametrize(
    ("code", "kind", "wrong"),
    [
        ("import sys; sys.exit('out of luck')", ServerFault, "ended with exit code 1: out of luck"),
        ("import os; os.kill(os.getpid(), 9)", ServerFault, "ended with exit code -9"),
        ("import sys; sys.stdout.buffer.write(b'\\xff\\xfe')", Unreadable, "wrote what is not text"),
        ("import time; time.sleep(60)", RequestTimeout, "returned no answer in 0.5 s"),
        (
            "import os, sys; sys.stdin.read(); os.close(1); import time; time.sleep(60)",
            RequestTimeout,
            "0.5 s",
        ),
    ],
)
async def test_programs_that_fail(code: str, kind: type[ModelError], wrong: str) -> None:
    error = await failed(code, timeout_s=0.5 if kind is RequestTimeout else 60.0)
    assert type(error) is kind
    assert wrong in str(error)


@pytest.mark.parametrize(
    ("code", "kind", "wrong"),
    [
        ("import sys; sys.stdin.readline(); sys.exit('crashed')", ServerFault, "exit code 1 in the middle"),
        ("input(); print('{\"text\": \"hal', end='', flush=True)", ServerFault, "in the middle of a request"),
        ("input(); print('no json', flush=True)", Unreadable, "wrote a line that is not JSON"),
        ("input(); print('\"hi\"', flush=True)", Unreadable, "wrote a line without the `id` of its request"),
        (LOOP.replace("{reply}", "{'text': None}"), Unreadable, "returned dict without a text"),
        (LOOP.replace("{reply}", "{'error': 'quota'}"), ServerFault, "answered with an error: quota"),
        (LOOP.replace("{reply}", "{'text': 'x' * 1_000_000}"), Unreadable, "a line that is too long"),
        ("import time; time.sleep(60)", RequestTimeout, "returned no answer in 0.5 s"),
    ],
)
async def test_kept_programs_that_fail(code: str, kind: type[ModelError], wrong: str) -> None:
    late = kind is RequestTimeout
    error = await failed(code, keeps=True, timeout_s=0.5 if late else 60.0, max_answer_bytes=10_000)
    assert type(error) is kind
    assert wrong in str(error)


NUMBERED = """
import sys, json, time
for line in sys.stdin:
    asked = json.loads(line)
    number = int(asked["prompt"])
    EXTRA
    print(json.dumps({"id": asked["id"], "text": str(number)}), flush=True)
"""


async def test_a_line_too_many_shifts_no_answer() -> None:
    extra = "if number == 3: print(json.dumps({'event': 'cache miss', 'text': 'note'}), flush=True)"
    requests = [Request((Message("user", str(number)),)) for number in range(8)]
    async with opened(NUMBERED.replace("EXTRA", extra), keeps=True) as model:
        ended = await asyncio.gather(*map(model.complete, requests), return_exceptions=True)
    answers = [each if isinstance(each, BaseException) else each.text for each in ended]
    assert type(answers.pop(3)) is Unreadable
    assert answers == ["0", "1", "2", "4", "5", "6", "7"]


async def test_a_line_between_two_requests_is_no_answer() -> None:
    again = "print(json.dumps({'id': asked['id'], 'text': 'a'}), flush=True)"
    async with opened(NUMBERED.replace("EXTRA", again), keeps=True) as model:
        one = await model.complete(Request((Message("user", "1"),)))
        with pytest.raises(Unreadable, match="wrote a line for request 1, not 2"):
            await model.complete(Request((Message("user", "2"),)))
        two = await model.complete(Request((Message("user", "2"),)))
    assert (one.text, two.text) == ("a", "a")


async def test_an_echoed_id_of_another_request_is_an_error(tmp_path: Path) -> None:
    same = '{"id": asked["id"], "text": str(asked["id"])}'
    async with opened(LOOP.replace("{reply}", same), keeps=True) as model:
        assert [(await model.complete(ASKED)).text for _ in range(3)] == ["1", "2", "3"]
    starts = tmp_path / "starts"
    other = LOOP.replace("{reply}", '{"id": asked["id"] - 1, "text": "a"}')
    error = await failed(f"open({str(starts)!r}, 'a').write('x')\n{other}", keeps=True)
    assert type(error) is Unreadable
    assert "wrote a line for request 0, not 1" in str(error)
    assert starts.read_text() == "x", "phases ask anew"


async def test_a_kept_program_that_crashed_is_started_again() -> None:
    code = """
    import sys, json, os
    asked = json.loads(sys.stdin.readline())
    print(json.dumps({"id": asked["id"], "text": str(os.getpid())}), flush=True)
    """
    async with opened(code, keeps=True) as model:
        one, two = [(await model.complete(ASKED)).text for _ in range(2)]
    assert one != two


async def test_output_without_end_is_cut_and_ended() -> None:
    began = time.perf_counter()
    async with opened("while True: print('x' * 1000)", max_answer_bytes=50_000) as model:
        completion = await model.complete(ASKED)
    assert len(completion.text) == 50_000
    assert completion.truncated
    assert time.perf_counter() - began < 30


async def test_what_it_starts_is_ended_with_it(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    code = f"""
    import subprocess, sys, time
    child = subprocess.Popen(["sleep", "300"])
    open({str(pid)!r}, "w").write(str(child.pid))
    time.sleep(300)
    """
    assert isinstance(await failed(code, timeout_s=1.0), RequestTimeout)
    assert await gone(int(pid.read_text()))


@pytest.mark.parametrize("apart", [False, True])
async def test_what_it_leaves_in_the_background_holds_nothing_up(tmp_path: Path, apart: bool) -> None:
    """A child that keeps both pipes: the answer is there once the program has ended, long before its time."""
    pid = tmp_path / "pid"
    code = f"""
    import subprocess, sys
    child = subprocess.Popen(["sleep", "300"], start_new_session={apart})
    open({str(pid)!r}, "w").write(str(child.pid))
    print("done")
    """
    try:
        assert await said(code, timeout_s=120.0) == "done"
        assert (await failed(code + "    sys.exit('wrong')", timeout_s=120.0)).kind == "server"
        assert apart or await gone(int(pid.read_text()))
    finally:
        with suppress(ProcessLookupError):
            os.kill(int(pid.read_text()), signal.SIGKILL)


async def test_cancelling_ends_it(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    code = f"import os, time; open({str(pid)!r}, 'w').write(f'{{os.getpid()}} .'); time.sleep(300)"
    async with opened(code) as model:
        asked = asyncio.ensure_future(model.complete(ASKED))
        await written(pid)
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        assert await gone(int(pid.read_text().split()[0]))


async def test_keys_are_kept_from_it_unless_it_is_to_see_them(monkeypatch: pytest.MonkeyPatch) -> None:
    key = "sk-proj-0123456789abcdefABCDEF0123456789"
    monkeypatch.setenv("OPENAI_API_KEY", key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", key)
    monkeypatch.setenv("OWN_SETTING", "seen")
    for name in ("WANDB_API_KEY", "MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_PASSWORD", "GH_TOKEN"):
        monkeypatch.setenv(name, "of-a-tracker-4711")
    monkeypatch.setenv("DATABASE_URL", "postgresql://me:of-a-tracker-4711@db/runs")
    code = """
    import os
    seen = [name for name in ("OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "OWN_SETTING") if name in os.environ]
    print(*seen, *(name for name, value in os.environ.items() if "4711" in value))
    """
    assert await said(code) == "OWN_SETTING"
    assert await said(code, options={"env": ["OPENAI_API_KEY", "GH_TOKEN"]}) == (
        "OPENAI_API_KEY OWN_SETTING GH_TOKEN"
    )
    tells = "import os, sys; print(os.environ['OPENAI_API_KEY']); sys.exit(os.environ['OPENAI_API_KEY'])"
    assert key not in str(await failed(tells, options={"env": ["OPENAI_API_KEY"]}))
    assert key not in await said(tells.split("; sys")[0], options={"env": ["OPENAI_API_KEY"]})


async def test_a_program_that_is_not_there() -> None:
    for program in ("no-such-program-b", "./nothing.sh"):
        spec = ModelSpec(name="m", interface="command", model="m", options={"argv": [program]})
        with pytest.raises(UsageError, match=f"its program {program} is no"):
            async with Models([spec], KEYS):
                pass


async def test_no_program_outlives_a_run_that_is_killed(tmp_path: Path) -> None:
    """SIGKILL to us: the guard ends the program, and what it started."""
    pids = tmp_path / "pids"
    program = f"""
import os, subprocess, time
child = subprocess.Popen(["sleep", "300"])
open({str(pids)!r}, "w").write(f"{{os.getpid()}} {{child.pid}} .")
time.sleep(300)
"""
    ours = f"""
import asyncio
from pathlib import Path
from models.test_command_model import ASKED, opened
async def main():
    async with opened({program!r}) as model:
        await model.complete(ASKED)
asyncio.run(main())
"""
    tests = str(Path(__file__).parents[1])
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", ours, env=os.environ | {"PYTHONPATH": tests}
    )
    try:
        await written(pids)
    finally:
        process.send_signal(signal.SIGKILL)
        await process.wait()
    for pid in pids.read_text().split()[:2]:
        assert await gone(int(pid))
