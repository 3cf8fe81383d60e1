"""What the README shows works as printed, and the generated pages are current."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import typer
from cli.terminal import on_terminal

from coeval.cli.eval_framework.command import make_app as eval_framework
from coeval.cli.main import build_app
from coeval.reports.result_tables import Results
from coeval.sweeps.server_process import find_free_port

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PYTHON = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")


def blocks(language: str, page: str = README) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def command_lines() -> list[list[str]]:
    lines = "".join(blocks("bash")).splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the examples, ``first.yaml`` and 1,000 reviews of the README, to work in."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    [first] = blocks("yaml")
    (tmp_path / "first.yaml").write_text(first, encoding="utf-8")
    values = ("good", "bad", "neither")
    rows = "".join(f'"Review {n}, with a comma",{values[n % 3]}\n' for n in range(1_000))
    (tmp_path / "reviews.csv").write_text(f"text,label\n{rows}", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def coeval(*arguments: str, **environment: str) -> str:
    ended = subprocess.run(
        [sys.executable, "-m", "coeval", *arguments],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.mark.process
@pytest.mark.usefixtures("workplace")
def test_the_python_of_the_readme_runs(capsys: pytest.CaptureFixture[str]) -> None:
    [code] = blocks("python")
    exec(compile(code, "README.md", "exec"), {})  # noqa: S102  that it runs is what is promised
    shown = capsys.readouterr().out
    assert "exit code 0" in shown
    assert re.search(r"^sim-large: 0\.\d\d \[0\.\d\d, [01]\.\d\d\], n=72$", shown, re.MULTILINE)


@pytest.mark.process
@pytest.mark.usefixtures("workplace")
def test_the_python_of_the_readme_runs_on_the_items_of_ones_own(capsys: pytest.CaptureFixture[str]) -> None:
    [code] = blocks("python")
    [taking] = [words for words in command_lines() if words[:2] == ["coeval", "ingest"]]
    coeval(*taking[1:])
    own = code.replace("examples/quickstart.yaml", taking[taking.index("--new") + 1])
    assert own != code
    exec(compile(own, "README.md", "exec"), {})  # noqa: S102  as above
    shown = capsys.readouterr().out
    assert len(re.findall(r"^sim-\w+: \d+ of 1000 right in reviews, label$", shown, re.MULTILINE)) == 2, shown


@pytest.mark.system
@pytest.mark.usefixtures("workplace")
def test_the_page_on_python_runs_from_top_to_bottom(capsys: pytest.CaptureFixture[str]) -> None:
    code = "\n".join(blocks("python", PYTHON)).replace("8100", str(find_free_port("127.0.0.1")))
    exec(compile(code, "python.md", "exec"), {})  # noqa: S102  as above
    shown = capsys.readouterr().out
    assert re.findall(r"^print\(run\)  # (.*)$", code, re.MULTILINE) == shown.splitlines()[:1]
    assert re.search(r"^config  models\[0\]\.roles\[0\]  V-05  ", shown, re.MULTILINE)
    assert all(f"sim-{size}" in shown for size in ("large", "medium", "small"))
    assert re.search(r"^sim-large leads( by these judges)? overall: \d", shown, re.MULTILINE)
    assert re.search(r"^coeval-quickstart \S+ \d\S* \(\d.*\) \d+$", shown, re.MULTILINE), shown
    assert re.findall(r"^(\d+) coeval-quickstart \S+ \d\S* \(\d.*\) 1$", shown, re.MULTILINE) == ["10", "20"]


def test_the_page_on_python_names_every_field_of_the_results() -> None:
    unnamed = {name for name in get_type_hints(Results) if f"`{name}`" not in PYTHON}
    assert unnamed == set()


@pytest.mark.process
def test_the_table_of_the_readme_is_what_the_demo_prints(workplace: Path) -> None:
    demo = [sys.executable, "-m", "coeval", "run", "--config", "examples/quickstart.yaml"]
    shown = [line for line in on_terminal(demo, 80, cwd=workplace).screen if line]
    [block] = [block for block in blocks("text") if "Label accuracy" in block]
    printed = [line for line in block.splitlines() if line]
    assert printed == shown[-len(printed) :]


@pytest.mark.process
@pytest.mark.usefixtures("workplace")
def test_the_first_experiment_makes_as_many_calls_as_it_says() -> None:
    [promised] = re.findall(r"counts (\d+) calls", README)
    assert f"{promised} calls, excluding probes" in coeval("run", "--config", "first.yaml", "--dry-run")


def written_by_commands() -> set[str]:
    return {words[words.index("--new") + 1] for words in command_lines() if "--new" in words}


@pytest.mark.process
@pytest.mark.usefixtures("workplace")
def test_a_thousand_reviews_become_a_table_in_three_commands() -> None:
    [start] = [at for at, words in enumerate(command_lines()) if words[:2] == ["coeval", "ingest"]]
    taken, scored, shown = (coeval(*words[1:]) for words in command_lines()[start : start + 3])
    assert "1 prompt: Review 0, with a comma" in taken
    assert "1,000 items of 1,000 rows" in taken
    rows = re.findall(r"^reviews +label +sim-\w+ +\d\d\.\d \[.*\] +\d+ of 1,000$", scored, re.MULTILINE)
    assert len(rows) == 2, scored
    assert "simulated models: these numbers describe no real model" in scored
    assert shown.count("exact_match: label: expected") >= 3


@pytest.mark.usefixtures("workplace")
@pytest.mark.parametrize(
    "words", [words for words in command_lines() if words[0] == "coeval"], ids=lambda words: " ".join(words)
)
def test_a_command_of_the_readme_is_understood(words: list[str]) -> None:
    group: Any = typer.main.get_command(build_app())
    _, name, *arguments = words
    command = group.commands[name]
    context = command.make_context(name, arguments, parent=group.make_context("coeval", [name]))
    config = context.params.get("config")
    assert config is None or config.is_file() or str(config) in written_by_commands()


@pytest.mark.parametrize(
    "words",
    [words for words in command_lines() if words[0] == "eval-framework"],
    ids=lambda words: " ".join(words[:5]),
)
def test_an_evaluation_of_the_readme_is_understood(words: list[str]) -> None:
    command: Any = typer.main.get_command(eval_framework())
    assert command.make_context(words[0], words[1:]).params["tasks"]


def test_the_targets_of_the_readme_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = {words[1] for words in command_lines() if words[0] == "make"}
    named |= set(re.findall(r"`make ([a-z-]+)`", README))
    assert {"demo", "test"} <= named
    assert named <= set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))


def test_the_links_of_the_pages_lead_somewhere() -> None:
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_generated_pages_are_current() -> None:
    main = runpy.run_path(str(ROOT / "tools" / "docs" / "write_reference.py"))["main"]
    assert main(["--check"]) == 0


@pytest.mark.process
def test_a_stale_page_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = tmp_path / "tools" / "docs" / "write_reference.py"
    copy.parent.mkdir(parents=True)
    (tmp_path / "docs").mkdir()
    copy.write_bytes((ROOT / "tools" / "docs" / "write_reference.py").read_bytes())
    main = runpy.run_path(str(copy))["main"]
    assert main([]) == 0
    assert main(["--check"]) == 0
    (tmp_path / "docs" / "cli.md").write_text("old")
    assert main(["--check"]) == 1
    assert "cli.md" in capsys.readouterr().err
