"""A finished run with one damaged file: it is told, nothing readable is lost, no figure changes unsaid."""

from __future__ import annotations

import json
import random
import re
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from cli.invoked import Command, Ended
from corruptions import CORRUPTIONS, readable
from pipeline.experiments import PHASES, Lab, model, quiz, task

from coeval.core.records import LEVELS

FILES = (
    "config.yaml",
    "meta.json",
    "recipes.json",
    "usage.json",
    "run_errors.jsonl",
    "phase1_attributes/proposals.jsonl",
    "phase1_attributes/story_target_attrs.json",
    "phase2_rubric/proposals.jsonl",
    "phase2_rubric/story.rubric.json",
    "phase3_datapoints/story.tea.datapoints.jsonl",
    "phase3_datapoints/quiz.tom.datapoints.jsonl",
    "phase4_responses/story.ann.responses.jsonl",
    "phase4_responses/quiz.ben.responses.jsonl",
    "phase5_evaluations/story.tea.jim.evaluations.jsonl",
    "phase5_evaluations/quiz.tom.joe.evaluations.jsonl",
    "phase5_evaluations/quiz.tea.exact_match.evaluations.jsonl",
)
"""One of each kind that a run keeps; with the corruptions, 224 cases."""

HUGE = 200 << 20
SHOWN = ("students", "labels", "simulated")


def a_lab(folder: Path) -> Lab:
    """2 tasks × 2 teachers × 2 items × 2 students × 2 judges: one is the teachers' own, one has a label."""
    cast = (("tea", "teacher"), ("tom", "teacher"), ("ann", "student"), ("ben", "student"))
    models = [model(*names) for names in (*cast, ("jim", "judge"), ("joe", "judge"))]
    proposed = task(total=2, target_attributes="auto", rubric="auto")
    labelled = quiz(total=2, rubric={"colour": "The right one.", "tone": "It is kind."})
    return Lab(folder, models, [proposed, labelled])


class Finished(NamedTuple):
    folder: Path
    figures: dict[str, Any]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    lab = a_lab(tmp_path_factory.mktemp("finished"))
    run = lab.run()
    assert run.exit_code == 0
    error = {"at": "2026-01-01T00:00:00Z", "phase": "evaluation", "id": "", "model": "jim", "kind": "server"}
    (lab.path / "run_errors.jsonl").write_text(json.dumps(error | {"message": "no"}) + "\n")
    figures = json.loads(json.dumps(run.results().as_dict()))
    return Finished(lab.folder, {name: figures[name] for name in SHOWN})


class Damaged:
    """A copy of the finished run, and the commands that are tried on it."""

    def __init__(self, finished: Finished, folder: Path, coeval: Command) -> None:
        shutil.copytree(finished.folder, folder, dirs_exist_ok=True)
        self.lab = a_lab(folder)
        self.path = self.lab.path
        self._coeval = coeval

    def call(self, *words: object, codes: tuple[int, ...] = (0, 1)) -> Ended:
        ended = self._coeval(*words)
        assert ended.code in codes, ended
        assert "Traceback" not in ended.err, ended.err
        assert "internal error" not in ended.err, ended.err
        return ended

    def go_on(self) -> Ended:
        return self.call("run", "--config", self.lab.file, "--continue", codes=(0, 1, 3))

    def figures(self) -> tuple[Any, str]:
        """What `coeval results` shows in its tables (None: nothing), and what it says besides."""
        ended = self.call("results", "--run", self.path, "--json")
        if ended.code:
            return None, ended.err
        found = json.loads(ended.out)
        return {name: found.pop(name) for name in SHOWN}, json.dumps(found) + ended.err

    def damage(self, file: str, corruption: str, draw: random.Random) -> set[str]:
        """The names of the files that are not what they were."""
        before = {path: path.read_bytes() for path in self.path.rglob("*") if path.is_file()}
        CORRUPTIONS[corruption](self.path / file, draw)
        return {path.name for path, data in before.items() if not path.exists() or path.read_bytes() != data}


def names_one(said: str, damaged: set[str]) -> bool:
    """Whether a message names a damaged file, or what of it counts no more: a factor that a rubric lost."""
    rubric = any(".rubric." in name for name in damaged)
    return any(name in said for name in damaged) or (rubric and '"kind": "factor"' in said)


@pytest.mark.slow
@pytest.mark.parametrize("corruption", CORRUPTIONS)
@pytest.mark.parametrize("file", FILES)
def test_a_damaged_file_is_told_and_mended(
    finished: Finished, tmp_path: Path, coeval: Command, file: str, corruption: str
) -> None:
    """Half of the cases go on at once, and half after a repair; both come to the figures of before, or are
    refused with a way out."""
    draw = random.Random(f"{file} {corruption}")
    run = Damaged(finished, tmp_path, coeval)
    damaged = run.damage(file, corruption, draw)
    lines = readable(run.path)

    run.call("status", "--run", run.path)
    figures, said = run.figures()
    told = names_one(said, damaged)
    assert told or figures == finished.figures, said
    if draw.random() < 0.5:
        run.call("repair", "--run", run.path)
    else:
        run.call("repair", "--run", run.path, "--dry-run", "--examples", "1", "--stats", "--breakdown")
    ended = run.go_on()
    assert not lines - readable(run.path), "a line that can be read is nowhere any more"
    if ended.code == 1:
        assert "--redo-changed" in ended.err or names_one(ended.err, damaged), ended.err
        return
    after, said = run.figures()
    assert after == finished.figures or told or names_one(said + ended.out + ended.err, damaged), said


@pytest.mark.slow
@pytest.mark.parametrize("file", [name for name in FILES if "phase" in name])
def test_what_was_lost_is_made_again_as_it_was(
    finished: Finished, tmp_path: Path, coeval: Command, file: str
) -> None:
    run = Damaged(finished, tmp_path, coeval)
    (run.path / file).unlink()
    assert run.go_on().code == 0
    assert run.figures()[0] == finished.figures


@pytest.mark.parametrize("phase", PHASES)
def test_a_record_under_anothers_name_is_no_record(
    finished: Finished, tmp_path: Path, coeval: Command, phase: str
) -> None:
    """Its id says what it is about; where a name in it says otherwise, neither can be believed."""
    run = Damaged(finished, tmp_path, coeval)
    name, one, other = {
        "data_generation": ("teacher_model_id", "tea", "tom"),
        "response_collection": ("student_model_id", "ann", "ben"),
        "evaluation": ("judge_model_id", "jim", "joe"),
    }[phase]
    folder = {"data_generation": "phase3", "response_collection": "phase4", "evaluation": "phase5"}[phase]
    path = min(run.path.glob(f"{folder}*/story*.{one}.*"))
    path.write_text(path.read_text().replace(f'"{name}":"{one}"', f'"{name}":"{other}"', 1))
    figures, said = run.figures()
    assert path.name in said
    assert figures != finished.figures
    assert "invalid record" in run.call("status", "--run", run.path).out
    assert run.go_on().code == 0
    assert run.figures()[0] == finished.figures


def test_a_file_about_the_run_that_is_gone_is_named(
    finished: Finished, tmp_path: Path, coeval: Command
) -> None:
    run = Damaged(finished, tmp_path, coeval)
    (run.path / "config.yaml").rename(run.path / "config.yaml.away")
    assert "config.yaml is not there" in run.figures()[1]
    (run.path / "config.yaml.away").rename(run.path / "config.yaml")
    (run.path / "meta.json").unlink()
    assert "meta.json is not there" in run.figures()[1]


def test_files_that_lack_records_are_named(finished: Finished, tmp_path: Path, coeval: Command) -> None:
    """In JSON a long list ends in a count; on standard error each file has a line."""
    run = Damaged(finished, tmp_path, coeval)
    (run.path / "phase4_responses/quiz.ann.responses.jsonl").unlink()
    said = run.figures()[1]
    assert "4 answers, 12 judgments; see phase4_responses/quiz.ann.responses.jsonl, " in said
    shutil.rmtree(run.path / "phase5_evaluations")
    shown = run.figures()[1]
    assert " and 8 more" in shown
    assert len(re.findall(r"^\d+ +phase[45]\S+\.jsonl$", shown, re.MULTILINE)) == 11


@pytest.mark.parametrize("level", ["", *map(str.upper, LEVELS[:1])])
def test_a_level_that_is_none_is_told(
    finished: Finished, tmp_path: Path, coeval: Command, level: str
) -> None:
    run = Damaged(finished, tmp_path, coeval)
    path = run.path / "phase5_evaluations/story.tea.jim.evaluations.jsonl"
    record = json.loads(path.read_text().splitlines()[0])
    changed = {**record, "scores": {**record["scores"], next(iter(record["scores"])): level}}
    path.write_text("\n".join([json.dumps(changed), *path.read_text().splitlines()[1:]]) + "\n")
    assert f"1 judgment; see phase5_evaluations/{path.name}" in run.figures()[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("meta.json", ("status",)),
        ("run_errors.jsonl", ("status",)),
        ("phase4_responses/story.ann.responses.jsonl", ("results",)),
        ("phase5_evaluations/quiz.tom.joe.evaluations.jsonl", ("repair",)),
    ],
)
def test_a_line_of_200_megabytes(
    finished: Finished, tmp_path: Path, coeval: Command, file: str, words: tuple[str, ...]
) -> None:
    run = Damaged(finished, tmp_path, coeval)
    lines = readable(run.path)
    path = run.path / file
    path.write_bytes(path.read_bytes() + b"\n" + b"x" * HUGE + b"\n")
    ended = run.call(*words, "--run", run.path)
    assert ended.code == (1 if file == "meta.json" else 0)
    assert "no whole record" in ended.out or words != ("results",)
    if words == ("repair",):
        assert path.stat().st_size < HUGE
        shutil.rmtree(run.path / "repaired")
    else:
        path.write_bytes(path.read_bytes()[: -HUGE - 2])
    assert not lines - readable(run.path)
