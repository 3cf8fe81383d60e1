"""CoEval from Python: run, watch, read, stop, go on."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pipeline.experiments import PHASES, Lab, model, quiz, task

import coeval
from coeval.api import open_run
from coeval.core.errors import UsageError
from coeval.core.records import Datapoint, Evaluation, Response
from coeval.engine.progress import Board


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    models = [model("tea", "teacher"), model("ann", "student", "judge", skill=0.9), model("ben", "student")]
    return Lab(tmp_path, models, [task(total=6), quiz(total=4)])


def test_run_returns_the_run_and_its_summary(lab: Lab) -> None:
    run = coeval.run(lab.file)
    assert run.path == lab.path
    assert run.exit_code == 0
    assert run.summary is not None
    assert [run.summary.phases[phase].made for phase in PHASES] == [10, 20, 20]


def test_a_loaded_configuration_runs_as_its_file_does(lab: Lab) -> None:
    config = coeval.load_config(lab.file)
    assert coeval.run(config).exit_code == 0
    assert lab.counts() == (10, 20, 20)


async def test_run_works_where_a_loop_is_running_already(lab: Lab) -> None:
    """As in a notebook: the caller's loop waits meanwhile."""
    assert coeval.run(lab.file).exit_code == 0
    assert lab.counts() == (10, 20, 20)


def test_records_are_typed_and_the_last_of_an_id(lab: Lab) -> None:
    run = coeval.run(lab.file)
    lab.tasks[0]["rubric"]["ending"] = "It ends well."
    coeval.run(lab.file, continue_run=True)
    again = open_run(lab.path)
    assert (again.summary, again.exit_code) == (None, 0)
    for phase, kind, count in zip(PHASES, (Datapoint, Response, Evaluation), (10, 20, 20), strict=True):
        records = list(again.records(phase))
        assert len(records) == count
        assert all(isinstance(record, kind) for record in records)
    scored = [r.scores for r in run.records("evaluation") if isinstance(r, Evaluation) and r.scores]
    assert all(set(scores) == {"ending", "plot", "style"} for scores in scored)


def test_phases_1_and_2_keep_no_records(lab: Lab) -> None:
    run = coeval.run(lab.file)
    with pytest.raises(UsageError, match="attribute_mapping keeps no records; ask for one of data_gener"):
        run.records("attribute_mapping")


def test_results_rank_students_by_their_skill(lab: Lab) -> None:
    overall = [score for score in coeval.run(lab.file).results().students if score.task is None]
    assert [score.student for score in overall] == ["ann", "ben"]
    assert all(score.n == 6 and score.mean is not None for score in overall)


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a run folder"):
        open_run(tmp_path)


def test_a_run_is_continued_or_overwritten(lab: Lab) -> None:
    with pytest.raises(UsageError, match="continue_run=True and overwrite=True exclude each other"):
        coeval.run(lab.file, continue_run=True, overwrite=True)
    assert not lab.path.exists()


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({}, ("continue_run=True", "another id", "overwrite=True")),
        ({"continue_run": True, "only_models": ["bert"]}, ("only_models names 'bert'",)),
        (
            {"overwrite": True, "only_models": ["ben"]},
            ("overwrite=True with only_models ben", "continue_run=True"),
        ),
        ({"continue_run": True}, ('changed="redo"', 'changed="keep"')),
        ({"continue_run": True, "keys": "gone.yaml"}, ("the key file that keys names",)),
    ],
    ids=["occupied", "unknown model", "nothing to do", "changed", "key file"],
)
def test_a_refusal_names_the_words_of_python(lab: Lab, how: dict[str, Any], words: tuple[str, ...]) -> None:
    lab.run()
    lab.tasks[0]["rubric"]["plot"] = "Another criterion."
    with pytest.raises(UsageError) as refusal:
        lab.run(**how)
    assert all(word in str(refusal.value) for word in words), refusal.value
    assert "--" not in str(refusal.value)


class Witness:
    """A watcher that remembers."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.board: Board | None = None

    def note(self, message: str) -> None:
        assert self.board is None, "notes come before the phases"
        self.notes.append(message)

    def warn(self, message: str) -> None:
        raise AssertionError(message)

    def begin(self, board: Board) -> None:
        self.board = board


def test_a_watcher_is_told_and_sees_the_board_fill(lab: Lab) -> None:
    witness = Witness()
    coeval.run(lab.file, watcher=witness)
    assert witness.notes == ["probing 3 models"]
    assert witness.board is not None
    phases = [witness.board.phases[phase] for phase in PHASES]
    assert [(p.recorded, p.owed, p.done, p.ended) for p in phases] == [
        (0, 10, 10, 10),
        (0, 20, 20, 20),
        (0, 20, 20, 20),
    ]
    assert all(p.input_tokens > 0 and p.output_tokens > 0 for p in phases)
    lab.tasks[0]["sampling"]["total"] = 7
    second = Witness()
    coeval.run(lab.file, watcher=second, continue_run=True)
    assert second.board is not None
    assert [(second.board.phases[p].recorded, second.board.phases[p].owed) for p in PHASES] == [
        (10, 1),
        (20, 2),
        (20, 2),
    ]


def test_what_is_overwritten_is_told(lab: Lab) -> None:
    coeval.run(lab.file)
    witness = Witness()
    coeval.run(lab.file, watcher=witness, overwrite=True)
    [told] = [note for note in witness.notes if "is now in" in note]
    assert str(lab.path / "replaced") in told


async def test_an_interrupt_that_came_first_runs_nothing(lab: Lab) -> None:
    lab.settings["probe_mode"] = "disable"
    interrupt = asyncio.Event()
    interrupt.set()
    run = await coeval.arun(lab.file, interrupt=interrupt)
    assert run.exit_code == 130
    done = await coeval.arun(lab.file, continue_run=True)
    assert done.exit_code == 0
    assert lab.counts() == (10, 20, 20)


async def test_two_runs_at_once_do_not_mix(tmp_path: Path) -> None:
    labs = [Lab(tmp_path, [model("ann")], [task(total=5)], id=name) for name in ("one", "two")]
    runs = await asyncio.gather(*(lab.arun() for lab in labs))
    assert [run.exit_code for run in runs] == [0, 0]
    assert [lab.counts() for lab in labs] == [(5, 5, 5)] * 2


async def test_one_folder_has_one_writer(lab: Lab) -> None:
    async def second() -> None:
        with pytest.raises(UsageError, match="is in use by process"):
            await lab.arun(continue_run=True)

    class Intruder(Witness):
        def begin(self, board: Board) -> None:
            self.task = asyncio.ensure_future(second())

    intruder = Intruder()
    assert (await lab.arun(watcher=intruder)).exit_code == 0
    await intruder.task
