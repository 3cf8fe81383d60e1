"""Text of hosts and files is shown and logged as text: no terminal obeys it, and no line of it is ours."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from cli.invoked import Command
from fakes.openai_chat import Answer, Behaviour, Fault, Raw, fake
from hostile_text import TEXTS, obeyed
from hypothesis import given
from hypothesis import strategies as st
from pipeline.experiments import Lab, model, quiz, task
from rich.table import Table
from rich.text import Text

from coeval.api import arun
from coeval.cli import streams
from coeval.core.plain import escape_line, escape_lines

COMMANDS = (
    ("status",),
    ("results",),
    *(("results", "--by", part) for part in ("factor", "attribute", "judge", "teacher")),
    ("results", "--json"),
    ("results", "--csv"),
    ("show",),
    ("show", "--json"),
    ("show", "--disagreement", "--full"),
    ("repair", "--dry-run", "--stats", "--breakdown", "--examples", "9"),
)
_EVENT = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (DEBUG|INFO|WARNING|ERROR) ")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with labels and with records that failed."""
    lab = Lab(tmp_path_factory.mktemp("lab"), models=[model("ann"), model("ben", failure_rate=0.2)])
    lab.tasks = [task(total=2), quiz(total=2)]
    lab.run()
    return lab.path


def written_over(value: Any, evil: Callable[[], str], key: str = "") -> Any:
    """A record whose every text says something else, as a file from elsewhere may."""
    match value:
        case dict():
            return {name: written_over(part, evil, name) for name, part in value.items()}
        case list():
            return [written_over(part, evil, key) for part in value]
        case str() if key not in ("status", "id", "datapoint_id", "response_id", "task_id"):
            return evil()
        case _:
            return value


def poison(folder: Path, evil: Callable[[], str], *, records: bool) -> None:
    """Put hostile text in place of every text of a run: of its records, or of the files around them."""
    for path in sorted(folder.rglob("*.json*")):
        if (path.parent != folder) is not records:
            continue
        if path.suffix == ".json":
            path.write_text(json.dumps(written_over(json.loads(path.read_text()), evil)))
        else:
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            path.write_text("".join(json.dumps(written_over(line, evil)) + "\n" for line in lines))
    error = {"at": evil(), "phase": evil(), "id": evil(), "model": evil(), "kind": evil(), "message": evil()}
    with (folder / "run_errors.jsonl").open("a") as file:
        file.write(json.dumps(error) + "\n")


@pytest.mark.process
@pytest.mark.parametrize("records", [True, False], ids=["records", "other files"])
def test_no_text_of_a_run_folder_is_obeyed(
    finished: Path, tmp_path: Path, coeval: Command, monkeypatch: pytest.MonkeyPatch, records: bool
) -> None:
    """Each text of the folder is the next of the hostile ones."""
    evils = cycle(TEXTS)
    monkeypatch.delenv("COLUMNS")
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    poison(folder, lambda: f"a{next(evils)}b", records=records)
    for command, *rest in COMMANDS:
        _, out, err = coeval(command, "--run", folder, *rest)
        assert not obeyed(out), (command, rest, obeyed(out)[:3])
        assert not obeyed(err), (command, rest, obeyed(err)[:3])
        assert "internal error" not in err, err
        assert "Traceback" not in err
        assert not [line for line in (out + err).splitlines() if line.startswith("Done: 0 failed")]


HOSTS: dict[str, Callable[[str], Behaviour]] = {
    "error": lambda evil: Fault(400, f"a{evil}b", code=f"c{evil}", param=f"p{evil}", kind=f"k{evil}"),
    "no JSON": lambda evil: Raw(f"a{evil}b".encode("utf-8", "surrogatepass"), status=404),
    "answer": lambda evil: Answer(f"a{evil}b", finish_reason=f"f{evil}"),
    "refusal": lambda evil: Answer(None, message={"refusal": f"a{evil}b"}),
    "reasoning": lambda evil: Answer(f"<think>{evil}</think>a{evil}b", message={"reasoning": f"r{evil}"}),
}


@pytest.mark.parametrize("kind", HOSTS)
async def test_no_text_of_a_host_is_obeyed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    evils = cycle(TEXTS)
    async with fake(reply=lambda _: HOSTS[kind](next(evils))) as server:
        hostile = model("m", temperature=0) | {
            "interface": "vllm",
            "parameters": {"base_url": server.url, "max_concurrency": 4, "requests_per_minute": 10_000},
        }
        settings = {"probe_mode": "disable", "log_level": "DEBUG", "generation_retries": 0}
        lab = Lab(tmp_path, models=[hostile], tasks=[task(total=len(TEXTS))], settings=settings)
        await arun(lab.file, progress=True)
    log = (lab.path / "run.log").read_text()
    assert all(_EVENT.match(line) for line in log.split("\n")[:-1]), log
    for shown in (log, capsys.readouterr().err):
        assert not obeyed(shown), obeyed(shown)[:3]


async def test_a_warning_about_silent_models_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with fake(reply=lambda _: Fault(401, "no\nentry")) as server:
        silent = {"interface": "vllm", "parameters": {"base_url": server.url}}
        lab = Lab(tmp_path, models=[model("ann") | silent, model("ben") | silent], tasks=[task(total=1)])
        lab.settings = {"probe_on_fail": "warn"}
        await arun(lab.file, progress=True)
    (warned,) = [line for line in capsys.readouterr().err.splitlines() if "models do not answer" in line]
    assert warned.startswith("warning: 2 of 2 models do not answer: ann: ")
    assert "; ben: " in warned
    assert "\\n" not in warned


HEAD = "models: [{name: m, interface: simulated, roles: [teacher, student, judge]}]\n"
PLACES: dict[str, Callable[[str], str]] = {
    "key": lambda evil: f"{json.dumps(evil)}: 1\n",
    "name": lambda evil: f"models: [{{name: {json.dumps(evil)}, interface: x, roles: [y]}}]\n",
    "value": lambda evil: f"{HEAD}experiment: {{id: {json.dumps(evil)}, storage_folder: runs}}\n",
    "word": lambda evil: f"{HEAD}experiment: {{probe_mode: {json.dumps(evil)}}}\n",
    "source": lambda evil: (
        f"{HEAD}experiment: {{id: e, storage_folder: r, resume_from: {json.dumps(evil)}}}\n"
    ),
    "no YAML": lambda evil: f"{HEAD}'{evil}: [\n",
}
"""Where a configuration's text is quoted in what is said about it."""


@pytest.mark.process
@pytest.mark.parametrize("place", PLACES)
def test_no_text_of_a_configuration_is_obeyed(tmp_path: Path, coeval: Command, place: str) -> None:
    file = tmp_path / "e.yaml"
    for number, evil in enumerate(TEXTS):
        file.write_bytes(PLACES[place](f"a{evil}b").encode("utf-8", "surrogatepass"))
        code, _, err = coeval("run", "--config", file, "--dry-run")
        assert code == 1, (place, number)
        assert not obeyed(err), obeyed(err)[:3]
        assert not [line for line in err.splitlines() if line.startswith("Done")], err
        assert "internal error" not in err, err


@pytest.mark.process
def test_names_of_files_are_not_obeyed(
    finished: Path, tmp_path: Path, coeval: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for evil in TEXTS:
        folder = tmp_path / re.sub("[/\ud800-\udfff]", "", f"a{evil}b")
        shutil.copytree(finished, folder)
        shutil.copy(
            next((folder / "phase4_responses").iterdir()),
            folder / "phase4_responses" / f"{folder.name}.jsonl",
        )
        (folder / "phase4_responses" / f"{folder.name}2.jsonl").write_text("garbage\n")
        for words in (["status"], ["results"], ["repair", "--dry-run", "--examples", "3"]):
            _, out, err = coeval(words[0], "--run", folder.name, *words[1:])
            shown = out + err
            assert not obeyed(shown), obeyed(shown)[:3]
            assert "internal error" not in shown


@given(st.text(st.characters(), max_size=60))
def test_any_text_is_one_line_that_shows_and_says_which_it_was(text: str) -> None:
    assert not obeyed(escape_line(text))
    assert "\n" not in escape_line(text)
    assert escape_line(text) == text or not text.isprintable()
    assert not obeyed(escape_lines(text).replace("\n", " "))


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_no_text_that_a_command_forgot_to_escape_is_obeyed(text: str) -> None:
    for renderable in (text, Text(text), _table(text)):
        console = streams.results()
        with console.capture() as captured:
            console.print(renderable)
        assert not obeyed(captured.get())


def _table(text: str) -> Table:
    table = Table(text, title=text, caption=text)
    table.add_row(text)
    return table
