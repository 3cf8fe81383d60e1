"""Lengths, tokens and times that records show: those of a run, and of the one that it resumes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

import msgspec

from coeval.core.errors import Undecodable
from coeval.core.foreign import make_decoder
from coeval.core.records import Usage, model_of
from coeval.engine.model_work import RoleModel
from coeval.pipeline.config.schema import Config, Phase
from coeval.pipeline.plan.preview import Preview
from coeval.pipeline.plan.run_plan import FLOWING
from coeval.pipeline.plan.task_setup import TaskSetup
from coeval.pipeline.run_options import run_folder
from coeval.pipeline.start.inherit import find_source_run
from coeval.pricing.lengths import Cell, Lengths, Source
from coeval.store.jsonl import read_whole_lines
from coeval.store.rundir import RECORD_FILES, phase_of_kind

# Bytes, some 2,000 records, whose mean is known to 1%. Of a longer file every second record is read, or every
# tenth: as many as there are in so many bytes.
_READ_WHOLE = 1 << 21


class LengthFields(msgspec.Struct):
    """The fields read of a line of phases 3–5."""

    task_id: str
    id: str = ""
    datapoint_id: str = ""
    teacher_model_id: str = ""
    student_model_id: str = ""
    judge_model_id: str = ""
    prompt: str | None = None
    reference_response: str | None = None
    response: str | None = None
    scores: dict[str, str] = {}
    values: dict[str, float] | None = None
    winner: str | None = None
    usage: Usage | None = None
    attempts: int = 1
    latency_s: float | None = None
    status: str = "ok"


def read_recorded_lengths(config: Config, preview: Preview) -> Lengths:
    """Read lengths from records, and from table items that the run will copy; damaged lines are skipped."""
    lengths, setups = Lengths(), preview.plan.setups
    source, supplied = find_source_run(config), preview.supply.unwritten_lines
    for phase in FLOWING:
        folders = (run_folder(config), *([source] if source is not None else []))
        kinds = (kind for kind in RECORD_FILES if phase_of_kind(kind) == phase)
        paths = [path for kind in kinds for folder in folders for path in folder.files(kind)]
        if phase == "data_generation":
            paths += [path for path in supplied if path not in paths]
        for path in paths:
            for record in _read_sampled_records(path, supplied.get(path)):
                add_record_lengths(lengths, setups, phase, record, "record")
    return lengths


def _read_sampled_records(path: Path, unwritten_lines: Sequence[bytes] | None) -> Iterator[LengthFields]:
    """Read the records of a file, or those that it is to hold."""
    read = make_decoder(LengthFields)
    size = path.stat().st_size if unwritten_lines is None else sum(map(len, unwritten_lines))
    lines = (line.text for line in read_whole_lines(path)) if unwritten_lines is None else unwritten_lines
    for line in islice(lines, 0, None, max(1, size // _READ_WHOLE)):
        with suppress(Undecodable):
            yield read(line)


def add_record_lengths(
    lengths: Lengths, setups: Sequence[TaskSetup], phase: Phase, record: LengthFields, source: Source
) -> None:
    """Add the texts of a good record, and its usage if a model makes it: supplied items have none."""
    setup = next((setup for setup in setups if setup.task.name == record.task_id), None)
    if setup is None or record.status != "ok":
        return
    author = Cell(record.task_id, record.teacher_model_id)
    match phase:
        case "data_generation":
            maker, texts = author, {"item": record.prompt or "", "reference": record.reference_response or ""}
            lengths.add_item_texts(record.id, {kind: len(text) for kind, text in texts.items()})
        case "response_collection":
            maker, texts = author._replace(model=record.student_model_id), {"answer": record.response or ""}
        case _:
            maker, texts = author._replace(model=record.judge_model_id), dict[str, str]()
    for kind, text in texts.items():
        lengths.add_value(kind, maker, len(text))
    role = next((maker_.role for maker_ in list_makers(setup, phase) if maker_.name == maker.model), None)
    if (setup.pairs is not None) != (record.winner is not None) and role == "judge":
        return  # of another kind than is asked for now
    factors = len(record.scores) + len(record.values or ()) + bool(record.winner) if role == "judge" else 0
    if role is None or record.usage is None or (role == "judge" and not factors):
        return
    alone = role == "judge" and setup.task.evaluation_mode == "per_factor"
    calls = max(1, record.attempts) * (factors if alone else 1)
    lengths.add_call_usage(role, maker, record.usage, record.latency_s, calls, record.datapoint_id)
    lengths.count_call(model_of(maker.model), source)


def list_makers(setup: TaskSetup, phase: Phase) -> tuple[RoleModel, ...]:
    cast: Mapping[Phase, tuple[RoleModel, ...]] = {
        "data_generation": setup.teachers,
        "response_collection": setup.students,
    }
    return cast.get(phase, setup.judges)
