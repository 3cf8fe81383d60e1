"""What is wrong with a file is told in bounded space, and in time that grows with the file and no faster."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from cli.warm_process import WarmProcess

from coeval.core.errors import ConfigError
from coeval.pipeline.config.doubtful_settings import find_doubtful_settings
from coeval.pipeline.config.findings import MOST_SHOWN
from coeval.pipeline.config.load_file import load_config

Write: TypeAlias = Callable[[int], str]
"""The text of a file with so many mistakes."""


MODEL = "models: [{name: m, interface: simulated, roles: [teacher, student, judge]}]\n"
TASK = (
    "tasks: [{name: t, description: d, target_attributes: {a: [b]}, sampling: {total: 1}, rubric: {q: w}}]\n"
)
RUN = "experiment:\n  id: e\n  storage_folder: runs\n"


def models(entry: str) -> Write:
    return lambda n: "models:\n" + "".join(f"- {entry}\n".replace("@", str(i)) for i in range(n)) + TASK + RUN


def parameters(interface: str, line: str) -> Write:
    head = (
        f"models:\n- name: m\n  interface: {interface}\n  roles: [teacher, student, judge]\n  parameters:\n"
    )
    return lambda n: head + "".join(f"    {line}\n".replace("@", str(i)) for i in range(n)) + TASK + RUN


def of_task(lines: Callable[[int], str]) -> Write:
    head = "tasks:\n- name: t\n  description: d\n  sampling: {total: 1}\n  rubric: {q: w}\n"
    return lambda n: MODEL + head + lines(n) + RUN


def under(section: str, line: str) -> Write:
    head = f"{MODEL}{TASK}{RUN}{section}"
    return lambda n: head + "".join(f"{line}\n".replace("@", str(i)) for i in range(n))


def flow(word: str, n: int) -> str:
    return ", ".join(word.replace("@", str(i)) for i in range(n))


def benchmarks(n: int) -> str:
    teachers = "".join(
        f"- {{name: b{i}, interface: benchmark, roles: [teacher], parameters: {{task: tt{i}}}}}\n"
        for i in range(n)
    )
    rest = "description: d, target_attributes: {a: [b]}, sampling: {total: 1}, rubric: {q: w}"
    tasks = "".join(f"- {{name: t{i}, {rest}}}\n" for i in range(n))
    return f"models:\n{teachers}tasks:\n{tasks}{RUN}"


KINDS: dict[str, Write] = {
    "models without anything": models("{}"),
    "models with a name alone": models("{name: m@}"),
    "misspelt keys of models": models("{nam@: m@, interfac: simulated}"),
    "models of one name": models("{name: m, interface: simulated, roles: [student]}"),
    "names that are none": models("{name: 'm @', interface: opnai@, roles: [studnt@]}"),
    "roles that are none": lambda n: f"models: [{{name: m, roles: [{flow('studnt@', n)}]}}]\n",
    "unknown keys of a run": under("", "  keyy@: 1"),
    "one key again and again": under("", "  id: e"),
    "misspelt phases": under("  phases:\n", "    evalution@: Nwe"),
    "batches of nobody": under("  batch:\n", "    opena@: {evalution: true}"),
    "misspelt parameters": parameters("simulated", "skil@: 1"),
    "keys among parameters": parameters("openai", "p@: sk-abcdefghijklmnopqrs@"),
    "labels that are no attributes": of_task(
        lambda n: (
            f"  target_attributes: {{{flow('attribute@: [x]', n)}}}\n"
            f"  label_attributes: [{flow('attribut@e', n)}]\n"
        )
    ),
    "values twice": of_task(lambda n: f"  target_attributes: {{a: [{flow('v@', n)}, {flow('v@', n)}]}}\n"),
    "prompts of models that are not there": of_task(
        lambda n: (
            "  target_attributes: {a: [b]}\n  prompt_library:\n"
            + "".join(f"    sample.mm{i}: '{{aa}} {{bb}}'\n" for i in range(n))
        )
    ),
    "benchmarks of tasks that are not there": benchmarks,
}


def refusal(path: Path) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    return caught.value


@pytest.mark.process
@pytest.mark.parametrize("kind", ["unknown keys of a run", "labels that are no attributes"])
def test_a_megabyte_of_mistakes_ends_with_the_first_hundred_and_a_count(tmp_path: Path, kind: str) -> None:
    write = KINDS[kind]
    one = (len(write(2_000)) - len(write(1_000))) / 1_000
    (tmp_path / "e.yaml").write_text(write(int(900_000 / one)))
    process = WarmProcess("run", "--config", "e.yaml", "--dry-run", cwd=tmp_path)
    out, err = process.communicate()
    assert process.returncode == 1
    assert not out
    lines = err.splitlines()
    assert len(lines) <= MOST_SHOWN + 1
    assert len(err) < 100_000
    assert "Traceback" not in err
    if len(lines) > MOST_SHOWN:
        assert lines[-1].startswith("… and ")
        assert lines[-1].endswith("more; fix these first")


@pytest.mark.process
def test_the_rest_is_counted_and_the_first_lines_are_shown(tmp_path: Path) -> None:
    path = tmp_path / "e.yaml"
    path.write_text(under("", "  keyy@: 1")(1_234))
    error = refusal(path)
    assert [line.split(":")[1].split()[0] for line in error.problems] == [str(n) for n in range(6, 106)]
    assert error.more == 1_134
    assert str(error).splitlines()[-1] == "… and 1,134 more; fix these first"
    path.write_text(under("", "  keyy@: 1")(MOST_SHOWN))
    assert refusal(path).more == 0
    assert len(str(refusal(path)).splitlines()) == MOST_SHOWN


def calls(work: Callable[[], Any]) -> int:
    """How many functions, of Python and of C, are called while something is done."""
    count = 0

    def note(_frame: Any, event: str, _arg: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.system
@pytest.mark.parametrize("kind", KINDS)
def test_four_times_the_mistakes_are_four_times_the_work(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "e.yaml"

    def work(n: int) -> int:
        path.write_text(KINDS[kind](n))
        return calls(lambda: refusal(path))

    work(10)  # imports
    assert work(1_200) < 4.6 * work(300)


@pytest.mark.system
def test_sixty_thousand_models_are_read_in_steps_that_grow_with_their_number() -> None:
    def work(n: int) -> int:
        entries = [{"name": f"m{i}", "interface": "simulated", "roles": ["student"]} for i in range(n)]
        entries.append({"name": "t", "interface": "simulated", "roles": ["teacher", "judge"]})
        task = {
            "name": "t",
            "description": "d",
            "target_attributes": {"a": ["b"]},
            "sampling": {"total": 1},
            "rubric": {"q": "w"},
        }
        data = {"models": entries, "tasks": [task], "experiment": {"id": "e", "storage_folder": "runs"}}
        return calls(lambda: load_config(data))

    work(10)
    assert work(60_000) < 11 * work(6_000)


def test_no_single_word_makes_a_finding_long(tmp_path: Path) -> None:
    path = tmp_path / "e.yaml"
    path.write_text(
        f"? {'k' * 500_000}\n: 1\nmodels: [{{name: {'x' * 500_000}, interface: {'y' * 500_000}}}]\n"
    )
    lines = refusal(path).problems
    assert len(lines) >= 4
    assert max(map(len, lines)) < 3_000
    assert any("too many for a file; use at most" in line for line in lines), "the way out is at the end"


@pytest.mark.process
def test_a_key_is_taken_out_before_a_finding_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "e.yaml"
    secret = "sk-" + "abcdefghij0123456789" * 3
    for padding in range(950, 1_010, 7):
        path.write_text(f"{RUN}  probe_mode: 'x'\n  {'p' * padding}{secret}{'q' * 3_000}: 1\n")
        assert not any(secret[at : at + 12] in "\n".join(refusal(path).problems) for at in range(50))


def test_doubts_are_bounded_too(tmp_path: Path) -> None:
    path = tmp_path / "e.yaml"
    path.write_text(under("  quota:\n", "    q@: {max_calls: 1}")(5_000))
    found = list(islice(find_doubtful_settings(load_config(path)), 1_000))
    assert len(found) == MOST_SHOWN + 1
    assert found[-1] == "there are more warnings for this file; the first 100 are shown"
