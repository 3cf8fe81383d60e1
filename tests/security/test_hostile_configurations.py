"""Experiment files as nobody should write them: each works, or ends with findings."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeAlias

import pytest

from coeval.cli.main import main

MODEL = "{name: m, interface: simulated, roles: [teacher, student, judge]}"
TASK = "{name: t, description: d, target_attributes: {a: [x, y]}, sampling: {total: 2}, rubric: {q: w}}"
RUN = "{id: e, storage_folder: runs}"


def file(models: str = f"[{MODEL}]", tasks: str = f"[{TASK}]", experiment: str = RUN, rest: str = "") -> str:
    return f"{rest}models: {models}\ntasks: {tasks}\nexperiment: {experiment}\n"


def named(name: str) -> str:
    return file(models=f"[{MODEL.replace('name: m', f'name: {name}')}]")


def parameter(text: str) -> str:
    return file(models=f"[{MODEL[:-1]}, parameters: {{{text}}}}}]")


def sampled(text: str) -> str:
    return file(tasks=f"[{TASK.replace('total: 2', text)}]")


def attributes(text: str) -> str:
    return file(tasks=f"[{TASK.replace('{a: [x, y]}', text)}]")


def run_with(text: str) -> str:
    return file(experiment=f"{RUN[:-1]}, {text}}}")


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)
MAPPING_BOMB = "a: &a {k0: v, k1: v, k2: v}\n" + "".join(
    f"{new}: &{new} {{{', '.join(f'k{i}: *{old}' for i in range(9))}}}\n"
    for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)
MERGE_BOMB = "a: &a {k: v}\n" + "".join(
    f"{new}: &{new} {{<<: [{', '.join([f'*{old}'] * 9)}]}}\n"
    for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)

WORKS: dict[str, str | bytes] = {
    "as it should be": file(),
    "a byte order mark": "\ufeff" + file(),
    "ends of lines of Windows": file().replace("\n", "\r\n").encode(),
    "ends of lines of old Macs": file().replace("\n", "\r").encode(),
    "a directive": "%YAML 1.2\n---\n" + file(),
    "a document end": file() + "...\n",
    "JSON": '{"models": [{"name": "m", "interface": "simulated", "roles": ["teacher", "student", "judge"]}],'
    '"tasks": [{"name": "t", "description": "\\ud83d\\ude00", "target_attributes": {"a": ["x"]},'
    '"sampling": {"total": 1}, "rubric": {"q": "w"}}], "experiment": {"id": "e", "storage_folder": "runs"}}',
    "an alias": file(tasks=f"[{TASK.replace('description: d', 'description: &d word')[:-1]}, "
                     "output_description: *d}]"),
    "a merge": file(rest="", models=f"[&m {MODEL}, {{<<: *m, name: n}}]"),
    "names that Windows keeps for itself": named("con"),
    "a name of dots and more": named("..."),
    "words of YAML 1.1": attributes("{a: [yes, no, on, off, y, 2024-01-01, 1_000, 0o7, .5]}"),
    "numbers as values": attributes("{a: [1, 2.50, true, 0x1F, -0]}"),
    "a very long description": file().replace("description: d", "description: " + "word " * 20_000),
    "a very long comment": "# " + "x" * 500_000 + "\n" + file(),
    "ten thousand blank lines": "\n" * 10_000 + file(),
    "text of every script": file().replace("description: d", "description: Ελληνικά 中文 العربية 👩‍👩‍👧 ﷽"),
}  # fmt: skip

REFUSED: dict[str, str | bytes] = {
    "empty": "",
    "blanks": " \n\n ",
    "a comment alone": "# nothing\n",
    "null": "null\n",
    "a list": "- models\n- tasks\n",
    "a word": "models\n",
    "a number": "3\n",
    "two documents": file() + "---\n" + file(),
    "binary": bytes(range(256)),
    "an image": b"\x89PNG\r\n\x1a\n" + bytes(100),
    "zeros": bytes(1_000),
    "UTF-16": file().encode("utf-16"),
    "UTF-32": file().encode("utf-32"),
    "Latin-1": file().replace("description: d", "description: é").encode("latin-1"),
    "half of a UTF-8 character": file().encode() + b"x: \xe2\x82",
    "an overlong character": file().encode() + b"x: \xc0\x80\n",
    "NUL in a folder's name": file(experiment=RUN.replace("runs", '"a\\0b"')),
    "NUL in the file": file() + "x: \0\n",
    "escapes of terminals in the file": file() + "x: \x1b[2J\n",
    "half of a character": file() + '"\\ud800": 1\n',
    "half of a character in a name": named('"\\udfff"'),
    "a tab": "models:\n\t- name: m\n",
    "an indent too few": "models:\n  - name: m\n interface: x\n",
    "a bracket too few": "models: [[[\n",
    "a quote too few": 'models: "m\n',
    "brackets without end": "models: " + "[" * 50_000,
    "braces without end": "models: " + "{a: " * 50_000,
    "indents without end": "".join(" " * i + "a:\n" for i in range(300)),
    "aliases that multiply": BOMB + file(),
    "mappings that multiply": MAPPING_BOMB + file(),
    "merges that multiply": MERGE_BOMB + file(),
    "a list in itself": "a: &a [*a]\n" + file(),
    "a mapping in itself": "a: &a {b: *a}\n" + file(),
    "a merge with itself": "a: &a {<<: *a}\n" + file(),
    "a merge with a word": "a: {<<: word}\n" + file(),
    "an alias of nothing": "a: *nothing\n" + file(),
    "an anchor twice": "a: &a 1\nb: &a 2\n" + file(),
    "a key twice": file() + "models: []\n",
    "a key twice, deep inside": run_with("id: f"),
    "a list as a key": "? [a, b]\n: c\n" + file(),
    "an object of Python": "a: !!python/object/apply:os.system ['touch owned']\n" + file(),
    "a tag of one's own": file(models="!models [x]"),
    "binary by its tag": "a: !!binary aGVsbG8=\n" + file(),
    "a number of 5,000 digits": sampled("total: " + "9" * 5_000),
    "a number of 40 digits": sampled("total: " + "9" * 40),
    "a number beyond the most": sampled("total: 10000001"),
    "a negative number": sampled("total: -1"),
    "half an item": sampled("total: 1.5"),
    "not a number": sampled("total: .nan"),
    "an infinite temperature": parameter("temperature: .inf"),
    "a temperature of 1e999": parameter("temperature: 1e999"),
    "a temperature in words": parameter("temperature: hot"),
    "models as a mapping": file(models=MODEL),
    "models as a number": file(models="7"),
    "models as null": file(models="null"),
    "no models": file(models="[]"),
    "a model that is a list": file(models="[[[]]]"),
    "tasks as a word": file(tasks="all"),
    "an experiment as a list": file(experiment="[id, e]"),
    "an unknown key of odd signs": file() + '"a: b\\n[/red]\\u202e": 1\n',
    "a name of dots": named(".."),
    "a name that begins with a slash": named("/b"),
    "a name with an empty part": named("a//b"),
    "a name with dots between slashes": named("a/../b"),
    "a name that climbs": file(experiment=RUN.replace("id: e", "id: ../../e")),
    "a name of another alphabet": named("mоdel"),
    "a name of wide letters": named("ｍ"),
    "an empty name": named("''"),
    "a name of 5,000 letters": named("x" * 5_000),
    "a name with a NUL": named('"a\\0b"'),
    "a name that is a number": named("7"),
    "a reserved name": named("exact_match"),
    "a folder with a NUL": run_with("resume_from: \"a\\0b\""),
    "a folder of no letters": file(experiment=RUN.replace("runs", "''")),
    "roles by the thousand": file(models=f"[{MODEL.replace('[teacher,', '[' + 'teachr, ' * 5_000)}]"),
    "attributes without values": attributes("{a: []}"),
    "values twice": attributes("{a: [x, x]}"),
    "values that are lists": attributes("{a: [[x], {y: z}]}"),
    "an address that is none": parameter("base_url: 'http://[::1'"),
    "an address of a port that is none": parameter("base_url: 'http://h:99999/v1'"),
    "a quota below nothing": run_with("quota: {m: {max_calls: -1}}"),
    "a batch of nobody": run_with("batch: {simulated: {evaluation: true}}"),
}  # fmt: skip


class Ended(NamedTuple):
    code: object
    out: str
    err: str


Check: TypeAlias = Callable[[str | bytes], Ended]


@pytest.fixture
def checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Check:
    """What comes of checking a file with this content: exit code, results, messages."""

    def check(content: str | bytes) -> Ended:
        monkeypatch.chdir(tmp_path)
        data = content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass")
        (tmp_path / "e.yaml").write_bytes(data)
        monkeypatch.setattr(sys, "argv", ["coeval", "run", "--config", "e.yaml", "--dry-run"])
        with pytest.raises(SystemExit) as end:
            main()
        assert sorted(path.name for path in tmp_path.iterdir()) == ["e.yaml"], "nothing is made by a check"
        return Ended(end.value.code, *capfd.readouterr())

    return check


@pytest.mark.process
@pytest.mark.parametrize("what", WORKS)
def test_odd_files_that_say_what_is_meant_work(checked: Check, what: str) -> None:
    code, out, err = checked(WORKS[what])
    assert (code, err) == (0, "")
    assert "No model was called and nothing was written." in out


@pytest.mark.process
@pytest.mark.parametrize("what", REFUSED)
def test_hostile_files_end_with_findings(checked: Check, what: str) -> None:
    code, out, err = checked(REFUSED[what])
    assert code == 1, err
    assert not out
    findings = err.splitlines()
    assert 1 <= len(findings) <= 101
    assert all(line.startswith(("e.yaml:", "… and ")) and len(line) < 3_000 for line in findings), err
    assert not any(mark in err for mark in ("Traceback", "internal error", "\x1b", "\u202e", "\0"))
