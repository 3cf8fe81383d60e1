"""Checks that run code: hostile functions and programs end, are reported, and cost their item alone."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from coeval.core.errors import CheckFailed
from coeval.judging.checks.check_options import read_check
from coeval.judging.checks.check_runner import CheckRunner, find_sandbox_problem
from coeval.judging.checks.rubric_check import CheckedAnswer, CommandCheck, PythonCheck

pytestmark = pytest.mark.process

ANSWER = CheckedAnswer("Who?", "good answer", "a reference", {"colour": "red"})
FINE = CheckedAnswer("Who?", "fine", None, {})
NO_SANDBOX = find_sandbox_problem()

# What a function does with the answer "good answer"; for "fine" it returns 1.0. Each with what is reported.
HOSTILE = {
    "loops": ("while True: pass", "took more than 1 s"),
    "sleeps": ("time.sleep(60)", "took more than 1 s"),
    "forks": ("os.fork(); return True", "may not start or signal processes"),
    "fork_bomb": ("while True: os.fork()", "may not start or signal processes"),
    "starts_a_program": ("subprocess.run(['sleep', '60'])", "may not start or signal processes"),
    "runs_a_shell": ("os.system('true')", "may not start or signal processes"),
    "forks_below_python": ("ctypes.CDLL(None).fork(); time.sleep(60)", "took more than 1 s"),
    "leaves_its_group": (
        "ctypes.CDLL(None).fork() or (os.setsid(), time.sleep(60)); time.sleep(60)",
        "took more than 1 s",
    ),
    "kills_its_parent": ("os.kill(os.getppid(), 9)", "may not start or signal processes"),
    "kills_below_python": ("ctypes.CDLL(None).kill(os.getppid(), 9); time.sleep(60)", "signal 9"),
    "kills_itself": ("ctypes.CDLL(None).kill(os.getpid(), 11); time.sleep(60)", "signal 11"),
    "exits": ("sys.exit(0)", "raised SystemExit"),
    "exits_at_once": ("os._exit(0)", "made its worker exit with code 0"),
    "aborts": ("os.abort()", "signal 6"),
    "raises": ("raise ValueError('no')", "raised ValueError: no"),
    "raises_all": ("raise BaseException('no')", "raised BaseException: no"),
    "raises_without_end": ("raise ValueError('x' * 10**7)", "raised ValueError: xxx"),
    "interrupts": ("raise KeyboardInterrupt", "raised KeyboardInterrupt"),
    "prints_and_raises": ("print('look here'); 1 / 0", "(printed: look here)"),
    "prints_without_end": ("while True: print('x' * 10000)", "File too large"),
    "writes_without_end": (
        "f = open('large', 'wb')\n    while True: f.write(b'x' * 10**6)",
        "File too large",
    ),
    "allocates": ("return len(bytearray(10 << 30)) > 0", "raised MemoryError"),
    "allocates_slowly": ("held = [bytearray(10**7) for _ in range(10**6)]", "raised MemoryError"),
    "recurses": ("def f(): f()\n    f()", "raised RecursionError"),
    "answers_nan": ("return float('nan')", "returned nan"),
    "answers_infinity": ("return float('inf')", "returned inf"),
    "answers_two": ("return 2", "returned 2"),
    "answers_nothing": ("return None", "returned None"),
    "answers_text": ("return '1'", "neither a bool nor a number"),
    "answers_a_mapping": ("return {'grade': 1}", "which has no score"),
    "generates": ("yield 1", "returned <generator"),
    "has_an_evil_result": (
        "class E:\n        def __repr__(self): raise OSError('evil')\n    return E()",
        "raised OSError: evil",
    ),
    "writes_among_replies": (
        "[os.write(fd, b'{}\\n') for fd in range(3, 20) if os.path.exists(f'/proc/self/fd/{fd}')]",
        "",
    ),
    "closes_everything": ("os.closerange(0, 100); return 1", ""),
}

PRELUDE = "import ctypes, os, subprocess, sys, time\n"


def written(folder: Path, name: str, body: str) -> None:
    code = f"def {name}(response):\n    if response == 'fine': return 1.0\n    {body}\n"
    if name == "generates":
        code = f"def {name}(response):\n    return 1.0 if response == 'fine' else (n for n in [1])\n"
    (folder / f"{name}.py").write_text(PRELUDE + code)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest_asyncio.fixture
async def runner() -> AsyncIterator[CheckRunner]:
    runner = CheckRunner()
    yield runner
    await runner.aclose()


def python(function: str, **options: Any) -> PythonCheck:
    check = read_check({"check": "python", "function": function, **options})
    assert isinstance(check, PythonCheck)
    return check


def command(*argv: str, **options: Any) -> CommandCheck:
    check = read_check({"check": "command", "argv": list(argv), **options})
    assert isinstance(check, CommandCheck)
    return check


def running(*, here: Path | None = None, words: bytes = b"check_worker") -> set[str]:
    """The processes whose command line holds these words, in this working directory."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes()
            state = (process / "stat").read_text().rpartition(")")[2].split()[0]
            theirs = (process / "cwd").readlink()
        except OSError:
            continue
        if words in line and state != "Z" and here in (None, theirs):
            found.add(process.name)
    return found


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_function_costs_its_item_alone(folder: Path, runner: CheckRunner, name: str) -> None:
    body, reported = HOSTILE[name]
    written(folder, name, body)
    check = python(f"{name}.py:{name}", timeout_s=1, memory_mb=512)
    with pytest.raises(CheckFailed) as failure:
        await runner.score(check, ANSWER)
    assert reported in str(failure.value)
    assert len(str(failure.value)) <= 600
    assert (await runner.score(check, FINE)).value == 1.0
    await runner.aclose()
    assert running(here=folder) == set()


async def test_a_function_sees_no_credential_that_is_not_named(
    folder: Path, runner: CheckRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (
        "OPENAI_API_KEY",
        "WANDB_API_KEY",
        "MLFLOW_TRACKING_TOKEN",
        "AWS_SESSION_TOKEN",
        "OWN_TOKEN",
    ):
        monkeypatch.setenv(name, "not-to-be-seen")
    monkeypatch.setenv("DB_URL", "mysql://me:not-to-be-seen@db/x")
    monkeypatch.setenv("OWN_SETTING", "seen")
    monkeypatch.setenv("HTTPS_PROXY", "http://me:seen@proxy:8080")
    (folder / "env.py").write_text(
        "import os\ndef names(response):\n"
        "    kept = [name for name, value in os.environ.items() if 'seen' in value]\n"
        "    return {'score': 1.0, 'reason': ' '.join(sorted(kept))}\n"
    )
    seen = await runner.score(python("env.py:names"), ANSWER)
    assert seen.reason == "HTTPS_PROXY OWN_SETTING"
    seen = await runner.score(python("env.py:names", env=["OWN_TOKEN"]), ANSWER)
    assert seen.reason == "HTTPS_PROXY OWN_SETTING OWN_TOKEN"


async def test_arguments_are_copies(folder: Path, runner: CheckRunner) -> None:
    (folder / "g.py").write_text(
        "def change(attributes):\n    n = len(attributes)\n    attributes.clear()\n    return n == 1\n"
    )
    for _ in range(2):
        assert (await runner.score(python("g.py:change"), ANSWER)).value == 1.0
    assert ANSWER.attributes == {"colour": "red"}


async def test_what_a_function_may_take_and_return(folder: Path, runner: CheckRunner) -> None:
    (folder / "helper.py").write_text("HALF = 0.5\n")
    (folder / "g.py").write_text(
        "from helper import HALF\n"
        "def by_name(reference, prompt): return (reference, prompt) == ('a reference', 'Who?')\n"
        "def all_of(**given): return sorted(given) == ['attributes', 'prompt', 'reference', 'response']\n"
        "def with_default(response, strict=True): return strict\n"
        "def half(response): return {'score': HALF, 'reason': 'half of it'}\n"
        "other = lambda response: 0.25\n"
        "def wrong(answer): return 1\n"
    )
    scores = {
        name: await runner.score(python(f"g.py:{name}"), ANSWER)
        for name in ("by_name", "all_of", "with_default", "half", "other")
    }
    assert {name: scored.value for name, scored in scores.items()} == {
        "by_name": 1, "all_of": 1, "with_default": 1, "half": 0.5, "other": 0.25
    }  # fmt: skip
    assert scores["half"].reason == "half of it"
    with pytest.raises(CheckFailed, match="wrong takes 'answer', which is not one of prompt, response"):
        await runner.score(python("g.py:wrong"), ANSWER)


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("import nowhere_to_be_found", "No module named"),
        ("import os; os._exit(7)", "exit with code 7"),
        ("raise SystemExit", "raised SystemExit"),
        ("def other(response): return 1", "defines no function score"),
        ("score = 3", "defines no function score"),
    ],
)
async def test_a_file_that_cannot_be_loaded_is_loaded_once(
    folder: Path, runner: CheckRunner, text: str, reported: str
) -> None:
    (folder / "g.py").write_text(f"open('loaded', 'a').write('x')\n{text}\n")
    check = python("g.py:score")
    for _ in range(3):
        with pytest.raises(CheckFailed, match=reported):
            await runner.score(check, ANSWER)
    assert (folder / "loaded").read_text() == "x"


def test_problems_are_read_off_the_source_without_running_it(folder: Path) -> None:
    (folder / "g.py").write_text(
        "open('ran', 'w')\ndef f(response): ...\nasync def g(response): ...\nh = f\n"
    )
    assert python("g.py:f").find_problem_in_source() is None
    assert python("g.py:h").find_problem_in_source() is None
    assert "is async" in str(python("g.py:g").find_problem_in_source())
    assert "defines no nothing" in str(python("g.py:nothing").find_problem_in_source())
    assert "cannot read" in str(python("none.py:f").find_problem_in_source())
    (folder / "bad.py").write_text("def f(:")
    assert "is not valid Python" in str(python("bad.py:f").find_problem_in_source())
    assert not (folder / "ran").exists()


def test_a_hash_follows_the_source(folder: Path) -> None:
    (folder / "g.py").write_text("def f(response): return 1")
    before = python("g.py:f").definition_hash(), command("sh", "g.py").definition_hash()
    assert python("g.py:f").definition_hash() == before[0]
    (folder / "g.py").write_text("def f(response): return 0")
    assert python("g.py:f").definition_hash() != before[0]
    assert command("sh", "g.py").definition_hash() != before[1]


async def test_interrupting_a_run_ends_its_workers(folder: Path, runner: CheckRunner) -> None:
    written(folder, "loops", HOSTILE["loops"][0])
    task = asyncio.create_task(runner.score(python("loops.py:loops", timeout_s=60), ANSWER))
    await asyncio.sleep(1)
    assert running(here=folder)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not running(here=folder)


_STARTER = """
import asyncio
from coeval.judging.checks.check_options import read_check
from coeval.judging.checks.check_runner import CheckRunner
from coeval.judging.checks.rubric_check import CheckedAnswer
check = read_check({"check": "python", "function": "loops.py:loops", "timeout_s": 60.0})
asyncio.run(CheckRunner().score(check, CheckedAnswer("", "endless")))
"""


async def test_workers_end_with_whoever_started_them_however_that_ends(folder: Path) -> None:
    written(folder, "loops", HOSTILE["loops"][0])
    starter = await asyncio.create_subprocess_exec(sys.executable, "-c", _STARTER)
    assert await came_true(lambda: bool(running(here=folder)))
    starter.kill()
    await starter.wait()
    assert await came_true(lambda: not running(here=folder))


async def came_true(condition: Callable[[], bool]) -> bool:
    """Whether it does within ten seconds."""
    for _ in range(200):
        if condition():
            return True
        await asyncio.sleep(0.05)
    return False


async def test_expressions_and_schemas_are_compared_in_workers(runner: CheckRunner) -> None:
    pytest.importorskip("math_verify")
    same = read_check({"check": "numeric", "math": True, "value": r"\frac{1}{2}"})
    assert (await runner.score(same, CheckedAnswer("", "so it is $0.5$"))).value == 1.0
    assert (await runner.score(same, CheckedAnswer("", "so it is $0.6$"))).value == 0.0
    runs_away = read_check({"check": "json_schema", "schema": {"pattern": "(a|a)*$"}})
    with pytest.raises(CheckFailed, match="took more than 5 s"):
        await runner.score(runs_away, CheckedAnswer("", '"' + "a" * 60 + 'b"'))
    endless = read_check({"check": "json_schema", "schema": {"$ref": "#"}})
    with pytest.raises(CheckFailed, match="RecursionError"):
        await runner.score(endless, CheckedAnswer("", "{}"))


# --- Programs


needs_sandbox = pytest.mark.skipif(NO_SANDBOX is not None, reason=f"no sandbox: {NO_SANDBOX}")


@needs_sandbox
@pytest.mark.parametrize(
    ("script", "value"),
    [
        ("true", 1.0),
        ("echo '3 tests failed'; false", 0.0),
        ("echo 0.25", 0.25),
        ("echo compiled; echo true", 1.0),
        ("""echo '{"score": 0.5, "reason": "half"}'""", 0.5),
        ("grep -q 'good answer'", 1.0),
        ('test -z "$COEVAL_SECRET"', 1.0),
        ("test $(ls /tmp | wc -l) -le 1 && echo x > /tmp/mine && test -s /tmp/mine", 1.0),
        ("touch here", 0.0),
        ("test $(ls -d /proc/[0-9]* | wc -l) -lt 10", 1.0),
    ],
)
async def test_programs_score(
    folder: Path, runner: CheckRunner, monkeypatch: pytest.MonkeyPatch, script: str, value: float
) -> None:
    monkeypatch.setenv("COEVAL_SECRET", "x")
    scored = await runner.score(command("sh", "-c", script), ANSWER)
    assert scored.value == value
    assert not (folder / "here").exists()


@needs_sandbox
@pytest.mark.parametrize(
    ("script", "reported"),
    [
        ("sleep 6071", "took more than 1 s"),
        ("sleep 6072 & sleep 6073", "took more than 1 s"),
        ("exit 3", "ended with 3"),
        ("kill -9 $$", "ended with"),
        ("yes", "ended with"),
        ("echo nan", "printed 'nan'"),
        ("echo '{oops'", "printed '{oops'"),
        ("nowhere-to-be-found", "ended with 127"),
    ],
)
async def test_programs_that_end_badly_give_no_score(
    folder: Path, runner: CheckRunner, script: str, reported: str
) -> None:
    with pytest.raises(CheckFailed) as failure:
        await runner.score(command("sh", "-c", script, timeout_s=1), ANSWER)
    assert reported in str(failure.value)
    await asyncio.sleep(0.2)
    assert running(words=b"sleep\x00607") == set()


@needs_sandbox
async def test_a_program_in_a_sandbox_reaches_no_network(folder: Path, runner: CheckRunner) -> None:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    script = f"import socket; socket.create_connection(('127.0.0.1', {port}), 2)"
    scored = await runner.score(command("python3", "-c", script), ANSWER)
    server.close()
    assert scored.value == 0.0


@needs_sandbox
@pytest.mark.parametrize("kind", ["socket", "pipe"])
async def test_what_services_keep_for_an_account_is_out_of_reach(
    folder: Path, runner: CheckRunner, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    runtime = folder / "runtime"
    runtime.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    monkeypatch.chdir(runtime)  # the path of a socket is short
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        listening.listen()
        os.mkfifo("pipe")
        reader = os.open("pipe", os.O_RDONLY | os.O_NONBLOCK)
        touches = {
            "socket": "import socket as s, os; os.chdir('runtime'); s.socket(s.AF_UNIX).connect('socket')",
            "pipe": "import os; os.open('runtime/pipe', os.O_WRONLY | os.O_NONBLOCK)",
        }[kind]
        monkeypatch.chdir(folder)
        assert (await runner.score(command("python3", "-c", touches), ANSWER)).value == 0.0
        monkeypatch.delenv("XDG_RUNTIME_DIR")
        assert (await runner.score(command("python3", "-c", touches), ANSWER)).value == 1.0, (
            "the test can fail"
        )
        os.close(reader)


@needs_sandbox
@pytest.mark.parametrize("where", ["dev/shm", "run", "tmp"])
async def test_a_sandbox_holds_no_more_than_its_size(folder: Path, runner: CheckRunner, where: str) -> None:
    script = f"touch /dev/more && exit 3; df -k --output=size /{where} | tail -1 | xargs test 262144 -ge"
    empty = " ".join(place for place in ("/run", "/dev/shm") if not folder.is_relative_to(place))  # noqa: S108
    script += f' && test -z "$(ls {empty} | grep -v : | grep .)"'
    assert (await runner.score(command("sh", "-c", script), ANSWER)).value == 1.0


@needs_sandbox
async def test_a_program_sees_the_variables_that_it_is_passed(
    folder: Path, runner: CheckRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUDGE_TOKEN", "x")
    monkeypatch.setenv("OTHER_TOKEN", "x")
    sees = command("sh", "-c", 'test "$JUDGE_TOKEN$OTHER_TOKEN" = x', env=["JUDGE_TOKEN"])
    assert (await runner.score(sees, ANSWER)).value == 1.0


async def test_programs_run_without_a_sandbox_where_that_is_allowed(folder: Path) -> None:
    runner = CheckRunner(sandboxed=False)
    assert (await runner.score(command("sh", "-c", "touch here"), ANSWER)).value == 1.0
    assert (folder / "here").exists()
    with pytest.raises(CheckFailed, match="ended with 127"):
        await runner.score(command("nowhere-to-be-found"), ANSWER)


def test_without_bubblewrap_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "apt-get install bubblewrap" in str(find_sandbox_problem())
    (tmp_path / "bwrap").write_text("#!/bin/sh\necho 'no permissions' >&2; exit 1\n")
    (tmp_path / "bwrap").chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert "does not work here: no permissions" in str(find_sandbox_problem())
