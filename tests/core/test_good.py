"""Whether a record is good: resumption, repair and results hold the same of any lines, benchmarks too."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coeval.analysis.readers.run_reader import RunReader
from coeval.benchmarks.benchmark import Answer, Judgment, why_value_missing
from coeval.core.records import Datapoint, Evaluation, Kept, Response, choose_counted, is_good
from coeval.pipeline.plan.recorded import RecordEntry, RunIndex
from coeval.pipeline.upkeep.repair import Examiner, Flaw
from coeval.store.jsonl import read_whole_lines
from coeval.store.legacy import read_legacy
from coeval.store.rundir import RunDir

Line = dict[str, Any]

STATUS: st.SearchStrategy[Line] = st.sampled_from([{}, {"status": "ok"}, {"status": "failed"}])
LEVELS = st.dictionaries(st.sampled_from("ab"), st.sampled_from(["High", "Low", " LOW", "great"]), max_size=2)
LABELS: st.SearchStrategy[Line] = st.sampled_from([{}, {"label_scores": None}, {"label_scores": {}}])


def about(*names: str) -> Line:
    """What a line says of what it is about."""
    fields = ("task_id", "teacher_model_id", "n", "student_model_id", "judge_model_id")
    given = dict(zip(fields, names, strict=False))
    number = given.pop("n")
    line: Line = {"id": "__".join(names), **given, "recipe": number}
    for field, depth in (("datapoint_id", 3), ("response_id", 4)):
        if len(names) > depth:
            line[field] = "__".join(names[:depth])
    return line


def text(field: str) -> st.SearchStrategy[Line]:
    return st.sampled_from([{}, {field: None}, {field: ""}, {field: "said"}])


@st.composite
def lines(draw: st.DrawFn, names: tuple[str, ...], value: st.SearchStrategy[Line]) -> list[Line]:
    """Up to five lines of one id, the last ones later; each knows its place by its attempts."""
    histories = draw(st.lists(st.tuples(STATUS, value), min_size=1, max_size=5))
    return [
        about(*names) | status | value | {"attempts": place}
        for place, (status, value) in enumerate(histories, 1)
    ]


ITEM = lines(("t", "x", "1"), text("prompt").map(lambda value: value | {"sampled_target_attributes": {}}))
ANSWER = lines(("t", "x", "1", "s"), text("response"))
VERDICT = lines(
    ("t", "x", "1", "s", "j"),
    st.tuples(LEVELS, LABELS).map(lambda value: {"scores": value[0]} | value[1]),
)
WHOLE_ITEM = about("t", "x", "1") | {"prompt": "asked", "sampled_target_attributes": {}}
WHOLE_ANSWER = about("t", "x", "1", "s") | {"response": "said"}


def write(folder: RunDir, items: list[Line], answers: list[Line], verdicts: list[Line]) -> None:
    for path, found in (
        (folder.datapoints("t", "x"), items),
        (folder.responses("t", "s"), answers),
        (folder.evaluations("t", "x", "j"), verdicts),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(line) + "\n" for line in found))


def resumption(folder: RunDir, phase: str) -> list[bool]:
    recorded = RunIndex().read(folder)
    entries: dict[str, Iterable[RecordEntry]] = {
        "data_generation": recorded.items.entries(),
        "response_collection": recorded.responses.entries(),
        "evaluation": recorded.evaluations.entries(),
    }
    return [entry.good for entry in entries[phase]]


def results(folder: RunDir, view: str) -> list[bool]:
    with RunReader(folder.path) as reader:
        return [not failed for (failed,) in reader.rows(f"SELECT failed FROM {view}")]  # noqa: S608


def chosen(folder: RunDir, phase: str, kind: type[Kept]) -> list[bool]:
    """What records themselves say, one of each id; levels that are none cannot be read as a record."""
    [path] = folder.files(phase)
    records = [msgspec.json.decode(line, type=kind) for _, line in read_whole_lines(path)]
    return [is_good(record) for record in choose_counted(records).values()]


@pytest.mark.system
@settings(max_examples=60, deadline=None)
@given(ITEM, ANSWER, VERDICT)
def test_everybody_says_the_same(items: list[Line], answers: list[Line], verdicts: list[Line]) -> None:
    with TemporaryDirectory() as place:
        for held, phase, view, kind in (
            ((items, [], []), "data_generation", "items", Datapoint),
            (([WHOLE_ITEM], answers, []), "response_collection", "answers", Response),
            (([WHOLE_ITEM], [WHOLE_ANSWER], verdicts), "evaluation", "judgments", Evaluation),
        ):
            folder = RunDir(Path(place))
            write(folder, *held)
            good = resumption(folder, phase)
            assert results(folder, view) == good, phase
            converted = [is_good(record) for record in read_legacy(folder.path, phase, [])]
            assert converted == good, phase
            if not {"great", " LOW"} & set(re.findall(r'"([^"]*)"', json.dumps(held))):
                assert chosen(folder, phase, kind) == good, phase


@pytest.mark.process
@given(ANSWER, VERDICT)
def test_what_repair_finds_nothing_wrong_with_is_good_or_failed(
    answers: list[Line], verdicts: list[Line]
) -> None:
    examiner = Examiner({})
    examiner.examine_line("data_generation", json.dumps(WHOLE_ITEM).encode())
    for phase, found in (("response_collection", answers), ("evaluation", verdicts)):
        for line in found:
            record = examiner.examine_line(phase, json.dumps(line).encode())  # type: ignore[arg-type]
            if isinstance(record, Flaw):
                assert record.reason in ("value", "level", "origin")
            else:
                assert is_good(record) is (line.get("status") != "failed")
        examiner.examine_line("response_collection", json.dumps(WHOLE_ANSWER).encode())


@given(STATUS, text("response"), st.sampled_from([{}, {"value": None}, {"value": {}}]))
def test_a_benchmarks_records_are_good_likewise(status: Line, response: Line, value: Line) -> None:
    """An answer of a run and one of a benchmark; what is good is what is not missing."""
    about_run = about("t", "x", "1", "s") | status | response
    answer = msgspec.convert({"id": "1"} | status | response, Answer)
    judgment = msgspec.convert({"id": "1"} | status | value, Judgment)
    assert is_good(answer) is is_good(msgspec.convert(about_run, Response))
    assert (why_value_missing(answer) is None) is is_good(answer)
    assert (why_value_missing(judgment) is None) is is_good(judgment)
    assert is_good(judgment) is (status.get("status") != "failed" and value.get("value") is not None)
