"""CoEval from Python: run, watch, read, stop, go on."""

from __future__ import annotations

import asyncio
import importlib
from copy import deepcopy
from inspect import getdoc, signature
from pathlib import Path
from typing import Any, assert_type

import msgspec
import numpy
import pandas as pd
import pytest
from made_rows import label_row, student_row
from pipeline.experiments import PHASES, Lab, model, quiz, task

import coeval
from coeval.api import open_run
from coeval.api.stoppable import forward_and_draw_progress
from coeval.core.errors import ConfigError, UsageError
from coeval.core.html_table import MeasureRow
from coeval.core.records import Datapoint, Evaluation, Response
from coeval.engine.progress import Board
from coeval.pipeline.run_session import RunSummary
from coeval.reports.result_tables import Results


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


def sections(lab: Lab) -> dict[str, Any]:
    """What stands in the lab's file."""
    return {
        "models": deepcopy(lab.models),
        "tasks": deepcopy(lab.tasks),
        "experiment": {"id": lab.id, "storage_folder": lab.folder / "runs"},
    }


def test_a_mapping_runs_as_a_file_with_the_same_sections_does(lab: Lab) -> None:
    given = sections(lab)
    given["tasks"][0]["target_attributes"] = {"year": (1999, 2024), "long": [True, False], "rate": [0.5, 1]}
    given["tasks"][0]["sampling"]["total"] = numpy.int64(6)
    before = deepcopy(given)
    assert coeval.run(given).exit_code == 0
    assert given == before
    assert lab.counts() == (10, 20, 20)
    values = {
        (name, value)
        for record in lab.records("data_generation").values()
        if record["task_id"] == "story"
        for name, value in record["sampled_target_attributes"].items()
    }
    assert values <= {
        *(("year", year) for year in ("1999", "2024")),
        *(("long", word) for word in ("true", "false")),
        *(("rate", rate) for rate in ("0.5", "1")),
    }
    again = coeval.run(lab.path / "config.yaml", continue_run=True)
    assert again.summary is not None
    assert again.summary.phases["data_generation"].recorded == 10, "the snapshot is the same experiment"


def test_the_mistakes_of_a_mapping_are_told_as_those_of_a_file(lab: Lab) -> None:
    given = sections(lab)
    given["models"][0]["roles"] = ["teachr"]
    given["models"][1]["parameters"]["stop"] = {"a", "b"}
    given["tasks"][0]["sampling"][None] = 3
    del given["experiment"]["id"]
    with pytest.raises(ConfigError) as refusal:
        coeval.load_config(given)
    assert "is of type set; use text, numbers" in str(refusal.value)
    reported = [problem.split("  ")[:3] for problem in refusal.value.problems]
    assert sorted(reported) == [
        ["config", "experiment.id", "V-20"],
        ["config", "models[0].roles[0]", "V-05"],
        ["config", "models[1].parameters.stop", "V-20"],
        ["config", "tasks[0].sampling", "V-20"],
    ]
    given["tasks"][0]["rubric"] = given
    with pytest.raises(
        ConfigError, match=r"^config  tasks  V-27  is nested deeper than 40 levels; flatten it$"
    ):
        coeval.load_config(given)


@pytest.mark.parametrize(
    ("wrong", "reported"),
    [
        ({"only_models": "ann"}, r'only_models is a list of names; write only_models=\["ann"\]'),
        ({"changed": "maybe"}, 'changed="maybe" is unknown; use refuse, redo, keep'),
    ],
)
def test_wrong_keywords_are_told(lab: Lab, wrong: dict[str, Any], reported: str) -> None:
    with pytest.raises(UsageError, match=reported):
        lab.run(**wrong)


def test_run_and_arun_take_the_same_typed_keywords() -> None:
    def parameters(function: Any) -> list[tuple[str, Any, Any, Any]]:
        return [(p.name, p.kind, p.default, p.annotation) for p in signature(function).parameters.values()]

    assert parameters(coeval.run) == parameters(coeval.arun)
    assert not any(p.kind is p.VAR_KEYWORD for p in signature(coeval.run).parameters.values())
    explained = [line.partition(": ")[0] for line in (getdoc(coeval.run) or "").splitlines()]
    assert all(f"- ``{name}``" in explained for name in signature(coeval.run).parameters)


@pytest.mark.process
def test_types_are_known_to_type_checkers(lab: Lab) -> None:
    """`make check` reads this as a user's type checker would; where a line were right, it would say so."""
    run = coeval.run(lab.file, only_models=["tea", "ann", "ben"], changed="refuse")
    assert_type(run, coeval.Run)
    for evaluation in run.records("evaluation"):
        assert_type(evaluation, Evaluation)
    assert_type([record.prompt for record in run.records("data_generation")], list[str | None])
    assert isinstance(run.results().students[0].score, float)
    with pytest.raises(TypeError):
        coeval.run(lab.file, overwrit=True)  # type: ignore[call-arg]
    with pytest.raises(UsageError):
        coeval.run(lab.file, changed="maybe")  # type: ignore[arg-type]
    with pytest.raises(UsageError):
        run.records("evaluations")  # type: ignore[call-overload]


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
    scored = [r.scores for r in run.records("evaluation") if r.scores]
    assert all(set(scores) == {"ending", "plot", "style"} for scores in scored)


def test_phases_1_and_2_keep_no_records(lab: Lab) -> None:
    run = coeval.run(lab.file)
    with pytest.raises(UsageError, match="attribute_mapping keeps no records; ask for one of data_gener"):
        run.records("attribute_mapping")


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
    [reported] = [note for note in witness.notes if "are now in" in note]
    assert str(lab.path / "replaced") in reported


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


@pytest.mark.process
async def test_what_a_run_lacks_is_told_with_its_results(lab: Lab) -> None:
    await lab.arun()
    event = asyncio.Event()
    event.set()
    stopped = await coeval.arun(lab.file, overwrite=True, interrupt=event)
    assert stopped.exit_code == 130
    assert "stopped before it began; what is here was here before" in stopped.results().missing[0]
    assert open_run(lab.path).results().missing == ()
    lab.lose("response_collection", "story__tea__00002__ben")
    [said] = open_run(lab.path).results().missing
    assert said.startswith("missing from the plan: 1 answer, 1 judgment; see phase4_responses/")
    assert said in open_run(lab.path).results()._repr_html_()
    again = await lab.arun(continue_run=True)
    assert again.results().missing == ()


# What a notebook and a data frame make of a run: short words, escaped tables, plain columns.


@pytest.fixture(scope="module")
def judged_lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """A run of 120 stories and 4 questions: no column can be told by its first hundred values."""
    models = [model("tea", "teacher"), model("ann", "student", "judge", skill=0.9), model("ben", "student")]
    judged_lab = Lab(tmp_path_factory.mktemp("shown"), models, [task(total=120), quiz(total=4)])
    judged_lab.run()
    return judged_lab


@pytest.fixture
def run(judged_lab: Lab) -> coeval.Run:
    return coeval.open_run(judged_lab.path)


def frame(library: str, table: dict[str, Any]) -> Any:
    return pytest.importorskip(library, reason=f"{library} is not installed").DataFrame(table)


@pytest.mark.process
@pytest.mark.parametrize("library", ["pandas", "polars"])  # polars takes 180 MB, and so is not locked
def test_tables_are_data_frames(run: coeval.Run, library: str) -> None:
    scores = frame(library, run.results().table())
    assert list(scores["student"]) == ["ann", "ben"] * 3
    assert list(scores["task"])[2:] == ["quiz", "quiz", "story", "story"]
    assert list(scores["n"]) == [120, 120, 0, 0, 120, 120]
    assert list(frame(library, run.results().table("labels"))["attribute"]) == ["colour", "colour"]
    for phase, count in zip(PHASES, (124, 248, 248), strict=True):
        assert len(frame(library, run.records(phase).table())) == count


@pytest.mark.process
@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_records_of_results_are_frames(run: coeval.Run, library: str) -> None:
    results = run.results()
    for name in ("students", "labels", "costs"):
        made = frame(library, getattr(results, name))
        assert list(made.columns) == list(results.table(name))
        assert len(made) == len(getattr(results, name))


@pytest.mark.process
def test_results_and_runs_name_their_tables_alike(run: coeval.Run) -> None:
    results = run.results()
    assert results.frame().equals(results.frame("students"))
    assert list(results.frame("labels").correct) == list(results.table("labels")["correct"])
    assert list(results.table("metrics")) != []
    assert not any(results.table("pairs").values())
    assert len(run.frame("answers")) == len(run.table("answers").df()) == 248
    with pytest.raises(coeval.UsageError, match="no table scores; there are students, labels"):
        results.table("scores")


@pytest.mark.process
def test_a_run_is_drawn(run: coeval.Run) -> None:
    """In a notebook an object with an SVG shows it."""
    drawn = run.plot()
    assert drawn._repr_svg_().startswith("<svg")
    assert "ann" in drawn.svg
    assert drawn.png.startswith(b"\x89PNG")
    assert len(repr(drawn)) < 60
    with pytest.raises(coeval.UsageError, match="no picture curve; there are "):
        run.plot("curve")


def test_a_data_frame_of_judgments_can_be_worked_with(run: coeval.Run) -> None:
    judged = pd.DataFrame(run.records("evaluation").table())
    levels = judged[judged.task_id == "story"].groupby("student_model_id")["scores.plot"].value_counts()
    assert levels["ann"].get("High", 0) > levels["ben"].get("High", 0)
    assert judged["label_scores.colour.match"].notna().sum() == 8


@pytest.mark.process
def test_short_words_for_everything(judged_lab: Lab, run: coeval.Run) -> None:
    assert repr(run) == f"Run({str(judged_lab.path)!r})"
    assert repr(run.records("response_collection")) == "Records(248 × Response)"
    assert repr(run.results()).startswith("Results('ann' 9")
    config = coeval.load_config(judged_lab.file)
    assert repr(config) == str(config) == "Config('exp': 3 models, 2 tasks)"
    again = judged_lab.run(continue_run=True)
    assert repr(again) == f"Run({str(judged_lab.path)!r}, Summary(620 of 620 records there))"


def test_a_credential_is_in_no_words_for_a_configuration(judged_lab: Lab) -> None:
    judged_lab.models[0]["access_key"] = "sk-secret-of-tea"
    try:
        config = coeval.load_config(judged_lab.file)
    finally:
        del judged_lab.models[0]["access_key"]
    assert config.models[0].access_key == "sk-secret-of-tea"
    shown = (repr(config), str(config), repr(config.models), str(config.models[0]))
    assert not any("secret" in text for text in shown)


@pytest.mark.process
def test_results_are_a_table_in_a_notebook(run: coeval.Run) -> None:
    html = run.results()._repr_html_()
    assert (
        "<th>student</th><th>overall</th><th>n</th><th>failed</th><th>story</th><th>quiz (labels)</th>"
        in html
    )
    assert "<th>accuracy</th>" in html
    assert "Label accuracy" in html
    assert "<td>completed</td>" in run._repr_html_()


def test_a_run_whose_records_cannot_be_read_says_so_in_a_notebook(tmp_path: Path) -> None:
    assert "is not a run" in coeval.Run(tmp_path)._repr_html_()


HOSTILE = "<script>alert(1)</script>"


def hostile_results() -> Results:
    score = student_row(
        student=HOSTILE, task=None, score=0.5, low=0.4, high=0.6, n=3, valid_evals=3, failed=0
    )
    label = label_row(
        task=HOSTILE, student=HOSTILE, attribute=HOSTILE, accuracy=1, low=0.5, high=1, n=3, correct=3
    )
    return Results((score, MeasureRow(score, task=HOSTILE)), (label,), simulated=False, notes=(HOSTILE,))


def test_what_models_and_files_say_is_text_in_a_notebook(tmp_path: Path) -> None:
    results = hostile_results()
    summary = RunSummary(notes=[HOSTILE], stopped={"m": HOSTILE})
    shown = coeval.Run(tmp_path / HOSTILE, summary)._repr_html_() + results._repr_html_()
    assert shown.count("&lt;script&gt;alert(1)&lt;/script&gt;") == 10
    assert "<script" not in shown
    assert "\x1b" not in repr(
        msgspec.structs.replace(results, students=(MeasureRow(results.students[0], student="\x1b[2J"),))
    )


@pytest.mark.process
async def test_lines_of_progress_are_plain(judged_lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    await judged_lab.arun(continue_run=True)
    assert capsys.readouterr().err == "", "nobody asked"
    await judged_lab.arun(continue_run=True, progress=True)
    assert "evaluation: 248/248 records" in capsys.readouterr().err
    async with forward_and_draw_progress(True, None, asyncio.Event()) as watching:
        watching.warn(f"the host says \x1b[2J and\n{HOSTILE}")
    assert capsys.readouterr().err == f"warning: the host says \\x1b[2J and\\n{HOSTILE}\n"


@pytest.mark.process
def test_results_as_plain_data(run: coeval.Run) -> None:
    data = run.results().as_dict()
    assert data.keys() == {
        *(
            "students",
            "labels",
            "simulated",
            "notes",
            "left_out",
            "beyond_total",
            "metrics",
            "missing",
            "costs",
            "sampled",
            "pairs",
            "checks_alone",
            "leads",
            "gaps",
            "people",
            "served",
        )
    }
    assert data["students"][0] == run.results().students[0]
    again = msgspec.json.decode(msgspec.json.encode(data))
    assert again == msgspec.json.decode(msgspec.json.encode(run.results()))


def test_the_package_lists_what_it_loads_late() -> None:
    fresh = importlib.import_module("coeval")
    assert set(fresh.__all__) <= set(dir(fresh))
    assert {"run", "arun", "load_config", "open_run", "Run", "Config", "__version__"} <= set(dir(fresh))
