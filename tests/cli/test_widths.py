"""Every view of a run at 60, 80 and 200 columns, and through a pipe: no number, name, path or id is cut."""

from __future__ import annotations

import re
import sys

import pytest
from cli.terminal import on_terminal
from cli.warm_process import WarmProcess
from pipeline.experiments import Lab, model, quiz, task

COEVAL = [sys.executable, "-m", "coeval"]
NAMES = ("a-model-with-quite-a-long-name-1", "another-model-with-a-long-name-2")
TASKS = ("explain_a_concept_in_few_words", "which_team_is_to_be_asked_first")
VIEWS = {
    "status": ("status",),
    "results": ("results",),
    "by judge": ("results", "--by", "judge"),
    "by attribute": ("results", "--by", "attribute"),
    "show": ("show", "--worst", "2"),
    "repair": ("repair", "--stats", "--dry-run", "--breakdown"),
}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """A run with long names, a label task, failures, and a line that is no record."""
    models = [model(NAMES[0]), model(NAMES[1], failure_rate=0.2)]
    made = Lab(tmp_path_factory.mktemp("lab"), models, [task(TASKS[0]), quiz(TASKS[1])])
    made.settings = {"probe_mode": "disable", "generation_retries": 0}
    made.run()
    path = next((made.path / "phase5_evaluations").glob("*.jsonl"))
    path.write_text(path.read_text() + '{"id": "x"}\n')
    return made


def view(name: str) -> list[str]:
    command, *flags = VIEWS[name]
    return [*COEVAL, command, "--run", "runs/exp", *flags]


@pytest.mark.slow
@pytest.mark.parametrize("name", VIEWS)
def test_a_pipe_gets_every_name_whole_whatever_columns_says(lab: Lab, name: str) -> None:
    process = WarmProcess(*view(name)[3:], cwd=lab.folder, env={"COLUMNS": "40"})
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert not re.search(r"[\x1b\r]", out + err)
    assert not re.search(r"[ \t]$", out, re.MULTILINE), "no blanks at the end of a line"
    wide = on_terminal(view(name), 400, cwd=lab.folder, out_piped=True)
    assert out == wide.piped, "what the pipe gets does not depend on the terminal beside it"
    files = {path.name for path in lab.path.glob("phase*/*.jsonl")}
    assert NAMES[1] in out
    assert name != "repair" or files <= set(out.split())


@pytest.mark.parametrize("columns", [60, *(pytest.param(wide, marks=pytest.mark.slow) for wide in (80, 200))])
@pytest.mark.parametrize("name", VIEWS)
def test_a_terminal_cuts_nothing_and_is_not_overrun(lab: Lab, name: str, columns: int) -> None:
    seen = on_terminal(view(name), columns, cwd=lab.folder)
    assert seen.code == 0
    copied = [line for line in seen.screen if re.search(r"coeval |\.jsonl|__0", line)]  # in one piece
    assert max(len(line) for line in seen.screen if line not in copied) <= columns
    piped = WarmProcess(*view(name)[3:], cwd=lab.folder).communicate().out
    figures = re.compile(r"(?<![\w.-])[\d,.]+(?![\w.-])")
    assert "…" not in "\n".join(seen.screen) or "…" in piped
    assert set(figures.findall(piped)) <= set(figures.findall("\n".join(seen.screen)))


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_a_dry_run_fits_and_says_both_records_and_calls(lab: Lab, columns: int) -> None:
    words = [*COEVAL, "run", "--config", "exp.yaml", "--dry-run", "--overwrite"]
    seen = on_terminal(words, columns, cwd=lab.folder)
    assert seen.code == 0
    assert max(map(len, seen.screen)) <= columns
    text = "\n".join(seen.screen)
    assert "…" not in text
    assert all(name in text for name in (*NAMES, *TASKS, "response_collection"))
    assert re.search(r"^phase +mode +records +calls$", text, re.MULTILINE)
    assert re.search(r"^evaluation +New +36 +24$", text, re.MULTILINE), "labels are records and no calls"
