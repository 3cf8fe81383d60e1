"""A finished run, or a benchmark's folder, with one damaged file: it is told, nothing readable is lost, no
figure changes unsaid. Each corruption changes a file in place, by a draw that can be repeated."""

from __future__ import annotations

import asyncio
import json
import random
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pytest
from cli.eval_process import surroundings, write_prompts
from cli.invoked import Command, Ended
from fakes.moments import Ended as Forked
from fakes.moments import Forks, forks
from fakes.openai_chat import Answer, fake
from pipeline.experiments import PHASES, Lab, model, quiz, task

from coeval import open_run
from coeval.core.errors import CoevalError
from coeval.core.records import LEVELS

LONG = 17 << 20
"""Bytes: more than the reader's tables take of one line."""
Corruption: TypeAlias = Callable[[Path, random.Random], None]


def _cut(path: Path, draw: random.Random) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: draw.randrange(len(data))])


def _lose_lines(path: Path, draw: random.Random) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    gone = set(draw.sample(range(len(lines)), (len(lines) + 1) // 2))
    path.write_bytes(b"".join(line for n, line in enumerate(lines) if n not in gone))


def _overwrite(path: Path, draw: random.Random, times: int, alphabet: bytes) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(times):
        data[draw.randrange(len(data))] = draw.choice(alphabet)
    path.write_bytes(data)


def _insert(path: Path, draw: random.Random, what: bytes) -> None:
    data = path.read_bytes()
    place = draw.randrange(len(data))
    path.write_bytes(data[:place] + what + data[place:])


def _double_a_line(path: Path, draw: random.Random) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines, draw.choice(lines)]))


def _shuffle(path: Path, draw: random.Random) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    draw.shuffle(lines)
    path.write_bytes(b"".join(lines))


def _swap_with_neighbour(path: Path, draw: random.Random) -> None:
    """Exchange the contents of two files of a folder: of the same kind, where there are several."""
    siblings = [other for other in sorted(path.parent.iterdir()) if other.is_file() and other != path]
    alike = [other for other in siblings if other.suffixes[-2:] == path.suffixes[-2:]] or siblings
    other = draw.choice(alike)
    mine, theirs = path.read_bytes(), other.read_bytes()
    path.write_bytes(theirs)
    other.write_bytes(mine)


def _rewrite(change: Callable[[bytes], bytes]) -> Corruption:
    def rewrite(path: Path, _: random.Random) -> None:
        path.write_bytes(change(path.read_bytes()))

    return rewrite


CORRUPTIONS: dict[str, Corruption] = {
    "cut off": _cut,
    "lines lost": _lose_lines,
    "random bytes": lambda path, draw: _overwrite(path, draw, 8, bytes(range(256))),
    "other letters": lambda path, draw: _overwrite(path, draw, 3, b"abcxyzABC019 _"),
    "doubled": _rewrite(lambda data: data * 2),
    "a line doubled": _double_a_line,
    "lines swapped": _shuffle,
    "swapped with another file": _swap_with_neighbour,
    "deleted": lambda path, _: path.unlink(),
    "emptied": _rewrite(lambda _: b""),
    "CRLF": _rewrite(lambda data: data.replace(b"\n", b"\r\n")),
    "a byte order mark": _rewrite(lambda data: b"\xef\xbb\xbf" + data),
    "no UTF-8": lambda path, draw: _insert(path, draw, b"\xff\xfe"),
    "a long line": _rewrite(lambda data: b"x" * LONG + b"\n" + data),
}


def readable(folder: Path) -> Counter[bytes]:
    """Every line below ``folder`` that is JSON, wherever it stands."""
    found: Counter[bytes] = Counter()
    for path in folder.rglob("*.jsonl"):
        found += readable_lines(path)
    return found


def readable_lines(path: Path) -> Counter[bytes]:
    """The lines of a file that are JSON."""
    found: Counter[bytes] = Counter()
    for line in path.read_bytes().split(b"\n"):
        text = line.strip().removeprefix(b"\xef\xbb\xbf")
        try:
            json.loads(text.decode())
        except ValueError:
            continue
        found[text] += 1
    return found


# A finished run with one damaged file: it is told, nothing readable is lost, no figure changes unsaid.

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
WITNESSES = [
    (file, [*CORRUPTIONS][(number + step) % len(CORRUPTIONS)])
    for number, file in enumerate(FILES)
    for step in (0, 7)
]
"""Each file with two corruptions, and each corruption with two files at least."""
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
        """The tables of the results (None: nothing), and what is said besides."""
        try:
            found = json.loads(json.dumps(open_run(self.path).results().as_dict()))
        except CoevalError as error:
            return None, str(error)
        return {name: found.pop(name) for name in SHOWN}, json.dumps(found)

    def damage(self, file: str, corruption: str, draw: random.Random) -> set[str]:
        """The names of the files that are not what they were."""
        before = {path: path.read_bytes() for path in self.path.rglob("*") if path.is_file()}
        CORRUPTIONS[corruption](self.path / file, draw)
        return {path.name for path, data in before.items() if not path.exists() or path.read_bytes() != data}


def names_one(said: str, damaged: set[str]) -> bool:
    """Whether a message names a damaged file, or what of it counts no more: a factor that a rubric lost."""
    rubric = any(".rubric." in name for name in damaged)
    return any(name in said for name in damaged) or (rubric and '"kind": "factor"' in said)


@pytest.mark.system
@pytest.mark.parametrize("file", FILES)
def test_a_damaged_file_is_told_where_it_changes_a_figure(
    finished: Finished, tmp_path: Path, coeval: Command, file: str
) -> None:
    for corruption in CORRUPTIONS:
        run = Damaged(finished, tmp_path / corruption, coeval)
        damaged = run.damage(file, corruption, random.Random(f"{file} {corruption}"))
        figures, said = run.figures()
        assert figures == finished.figures or names_one(said, damaged), (corruption, said)
        shutil.rmtree(run.lab.folder)


@pytest.mark.process
@pytest.mark.parametrize(("file", "corruption"), WITNESSES)
def test_a_damaged_file_is_mended(
    finished: Finished, tmp_path: Path, coeval: Command, file: str, corruption: str
) -> None:
    """Half of the cases go on at once, and half after a repair; both come to the figures of before, or are
    refused with a way out."""
    draw = random.Random(f"{file} {corruption}")
    run = Damaged(finished, tmp_path, coeval)
    damaged = run.damage(file, corruption, draw)
    lines = readable(run.path)

    run.call("status", "--run", run.path)
    reported = names_one(run.figures()[1], damaged)
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
    assert after == finished.figures or reported or names_one(said + ended.out + ended.err, damaged), said


@pytest.mark.process
@pytest.mark.parametrize("file", [name for name in FILES if "phase" in name])
def test_what_was_lost_is_made_again_as_it_was(
    finished: Finished, tmp_path: Path, coeval: Command, file: str
) -> None:
    run = Damaged(finished, tmp_path, coeval)
    (run.path / file).unlink()
    assert run.go_on().code == 0
    assert run.figures()[0] == finished.figures


@pytest.mark.process
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


@pytest.mark.process
def test_a_file_about_the_run_that_is_gone_is_named(
    finished: Finished, tmp_path: Path, coeval: Command
) -> None:
    run = Damaged(finished, tmp_path, coeval)
    (run.path / "config.yaml").rename(run.path / "config.yaml.away")
    assert "config.yaml is not there" in run.figures()[1]
    (run.path / "config.yaml.away").rename(run.path / "config.yaml")
    (run.path / "meta.json").unlink()
    assert "meta.json is not there" in run.figures()[1]


@pytest.mark.process
def test_files_that_lack_records_are_named(finished: Finished, tmp_path: Path, coeval: Command) -> None:
    """In JSON a long list ends in a count; on standard error each file has a line."""
    run = Damaged(finished, tmp_path, coeval)
    (run.path / "phase4_responses/quiz.ann.responses.jsonl").unlink()
    said = run.figures()[1]
    assert "4 answers, 12 judgments; see phase4_responses/quiz.ann.responses.jsonl, " in said
    shutil.rmtree(run.path / "phase5_evaluations")
    shown = run.call("results", "--run", run.path, "--json")
    assert " and 8 more" in shown.out
    assert len(re.findall(r"^ *\d+ +phase[45]\S+\.jsonl$", shown.err, re.MULTILINE)) == 11


@pytest.mark.process
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


@pytest.mark.system
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


# A benchmark's folder with one damaged file: run again, it comes to the same figures or says why not.

OUTPUTS = (
    "responses.jsonl",
    "scores.jsonl",
    "summary.json",
    "eval_results_strict.jsonl",
    "eval_results_loose.jsonl",
)
FEW = ("cut off", "swapped with another file", "deleted", "no UTF-8")
"""Of files that are results, written anew each time."""
PROMPTS = [f"Say {n}." for n in range(6)]


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    around = surroundings(tmp_path_factory.mktemp("surroundings"))
    del around["PYTHONPATH"]  # the forking process needs the tests' own modules too
    with forks(**around) as found:
        yield found


def reply(messages: list[dict[str, Any]]) -> Answer:
    text = str(messages[-1]["content"])
    return Answer("well, yes" if text[-2] in "135" else f"said {text[-2]}")


@pytest.mark.system
async def test_a_damaged_file_costs_no_answer_and_no_figure(tmp_path: Path, warm: Forks) -> None:
    prompts = write_prompts(tmp_path / "prompts.jsonl", "punctuation:no_comma", PROMPTS)
    async with fake(reply=reply, extra_fields={"top_k"}) as server:

        async def evaluate(output: Path) -> Forked:
            given = ["--tasks", "ifeval", "--ifeval-input", prompts, "--output-dir", output]
            requested = ["--model", "m", "--base-url", server.url]
            return await asyncio.to_thread(warm.run, "eval-framework", *given, *requested, below=tmp_path)

        whole = tmp_path / "whole"
        first = await evaluate(whole)
        assert first.code == 0, first
        figures = json.loads((whole / "ifeval" / "summary.json").read_text())["metrics"]
        for file in OUTPUTS:
            for name in CORRUPTIONS if file == "responses.jsonl" else FEW:
                corrupt = CORRUPTIONS[name]
                folder = tmp_path / "damaged"
                shutil.copytree(whole, folder)
                corrupt(folder / "ifeval" / file, random.Random(f"{file} {name}"))
                # All other files are results, written anew each time: answers put there go with them.
                kept_in = folder / "ifeval" / "responses.jsonl"
                stays = file == "responses.jsonl" and "swapped with" not in name and kept_in.exists()
                answers = readable_lines(kept_in) if stays else {}
                before = len(server.requested)
                again = await evaluate(folder)
                assert again.code in (0, 1, 3), (file, name, again)
                assert "Traceback" not in again.said, again.said
                assert "internal error" not in again.said, again.said
                if again.code == 0:
                    found = json.loads((folder / "ifeval" / "summary.json").read_text())
                    assert found["metrics"] == figures, (file, name)
                    assert found["complete"]
                else:
                    assert file in again.said, (file, name, again)
                kept = readable(folder)
                assert not [line for line in answers if line not in kept], (file, name)
                if file != "responses.jsonl" and "swapped with" not in name:
                    assert len(server.requested) == before, (file, name)
                shutil.rmtree(folder)


CRITERION = "The number is said at all."
MADE = """\
models: [{name: t, interface: simulated, roles: [teacher, student, judge]}]
tasks:
  - {name: count, description: Say a number., output_description: A number.,
     target_attributes: {size: [small, big]}, sampling: {target: [1, 1], total: 4}, rubric: {said: CRITERION}}
experiment: {id: made, storage_folder: FOLDER}
"""


def judge(messages: list[dict[str, Any]]) -> Answer:
    text = str(messages[-1]["content"])
    if CRITERION not in text:
        return Answer(f"It is {len(text) % 7}.")
    return Answer(json.dumps({"said": ("High", "Medium", "Low")[sum(map(ord, text)) % 3]}))


@pytest.mark.process
@pytest.mark.parametrize("mode", [[], ["--judge-only"]], ids=["all", "judge only"])
async def test_damaged_judgments_are_judged_anew(tmp_path: Path, warm: Forks, mode: list[str]) -> None:
    text = MADE.replace("CRITERION", CRITERION).replace("FOLDER", str(tmp_path / "runs"))
    (tmp_path / "made.yaml").write_text(text)
    config = ["--config", tmp_path / "made.yaml"]
    made = await asyncio.to_thread(warm.run, "coeval", "run", *config, below=tmp_path)
    assert made.code == 0, made
    async with fake(reply=judge, extra_fields={"top_k"}) as server:

        async def evaluate(output: Path, *how: str) -> Forked:
            given = ["--tasks", f"coeval:{tmp_path / 'runs' / 'made'}", "--output-dir", output]
            requested = ["--model", "m", "--base-url", server.url, *how]
            return await asyncio.to_thread(warm.run, "eval-framework", *given, *requested, below=tmp_path)

        whole = tmp_path / "whole"
        first = await evaluate(whole)
        assert first.code == 0, first
        (file,) = [path.relative_to(whole) for path in whole.rglob("judgments*.jsonl")]
        figures = json.loads((whole / file.parent / "summary.json").read_text())["metrics"]
        for name in FEW if mode else CORRUPTIONS:
            folder = tmp_path / "damaged"
            shutil.copytree(whole, folder)
            CORRUPTIONS[name](folder / file, random.Random(f"{file} {name}"))
            judgments = readable(folder)
            again = await evaluate(folder, *mode)
            assert again.code in (0, 1, 3), (name, again)
            assert "Traceback" not in again.said, again.said
            assert "internal error" not in again.said, again.said
            if again.code == 0:
                found = json.loads((folder / file.parent / "summary.json").read_text())
                assert (found["metrics"], found["complete"]) == (figures, True), name
            else:
                assert file.name in again.said, (name, again)
            if "swapped with" not in name:
                kept = readable(folder)
                lost = [line for line in judgments if b'"recipe"' in line and line not in kept]
                assert not lost, name
            shutil.rmtree(folder)
