"""What records that are there tell of lengths, tokens and times: those of a run, and of the one it
resumes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from coeval.core.errors import StoreError, Undecodable
from coeval.core.foreign import decoder
from coeval.core.records import Role, Usage
from coeval.engine.model_facts import speed_of
from coeval.engine.model_work import RoleModel
from coeval.pipeline.config.schema import Config, Phase
from coeval.pipeline.plan.estimate.run_shapes import (
    JSON_OF_ITEM,
    KnownPrompt,
    item_prompt,
    judge_prompt,
    student_prompt,
    verdict_characters,
)
from coeval.pipeline.plan.preview import Preview
from coeval.pipeline.plan.run_plan import FLOWING
from coeval.pipeline.plan.task_setup import TaskSetup
from coeval.pipeline.run_options import run_folder
from coeval.pipeline.start.inherit import source_folder
from coeval.pricing.call_shape import Source, ToldCall, add_told
from coeval.pricing.unknowns import TOKENIZER, Cell, Evidence, Quantity
from coeval.store.jsonl import read_json, whole_lines

# --- The tokenizer of a local model, where its folder has one: how many tokens its prompts really take


def local_tokenizer(model: str) -> Callable[[str], int] | None:
    """Counts the tokens of a text as ``tokenizer.json`` in the folder ``model`` has it; None where
    there is none, or the library `tokenizers`, which comes with transformers, is not installed."""
    file = Path(model) / "tokenizer.json"
    try:
        if "model" not in read_json(file, dict[str, Any]):
            return None
        import tokenizers
    except (FileNotFoundError, NotADirectoryError, StoreError, ImportError):
        return None
    tokenizer = tokenizers.Tokenizer.from_file(str(file))
    return lambda text: len(tokenizer.encode(text).ids)


# Bytes. Of a longer file every second record is read, or every tenth: as many as there are in so many bytes.
_READ_WHOLE = 1 << 21


_ROLES: Mapping[Phase, Role] = {
    "data_generation": "teacher",
    "response_collection": "student",
    "evaluation": "judge",
}


class RecordTold(msgspec.Struct):
    """What is read of a line of phases 3–5."""

    task_id: str
    teacher_model_id: str = ""
    student_model_id: str = ""
    judge_model_id: str = ""
    prompt: str | None = None
    reference_response: str | None = None
    input: str | None = None
    response: str | None = None
    raw: str | None = None
    scores: dict[str, str] = {}
    usage: Usage | None = None
    attempts: int = 1
    latency_s: float | None = None
    status: str = "ok"


def evidence_of(config: Config, preview: Preview) -> Evidence:
    """Collect what records tell, those of a table included that the run will put in its folder. It is the
    same whenever the files are the same; lines that are no records tell nothing."""
    setups = preview.plan.setups
    reading = RecordReading(config, setups, Evidence(), "record")
    _add_tokenizers(reading.evidence, config, setups)
    source, supplied = source_folder(config), preview.supply.rewritten
    for phase in FLOWING:  # what judges were shown is known once items and answers are
        found = [
            path
            for folder in (run_folder(config), *([source] if source is not None else []))
            for path in folder.files(phase)
        ]
        if phase == "data_generation":
            found += [path for path in supplied if path not in found]
        for path in found:
            for record in _records(path, supplied.get(path)):
                reading.take(phase, record)
    return reading.evidence


def _add_tokenizers(evidence: Evidence, config: Config, setups: Sequence[TaskSetup]) -> None:
    """What a token is to local models, by the words of their tasks."""
    for model in config.models:
        count = local_tokenizer(model.spec().model)
        if count is None:
            continue
        for setup in setups:
            own = (each for phase in FLOWING for each in cast_of(setup, phase) if each.name == model.name)
            for text in {"\n".join((each.template, *each.fields.values())) for each in own}:
                evidence.add(
                    "tokens per character", Cell(setup.task.name, model.name), count(text) / len(text)
                )
                evidence.count(model.name, TOKENIZER)


def _records(path: Path, supplied: Sequence[bytes] | None) -> Iterator[RecordTold]:
    """Read the records of a file, or those that are to stand in it."""
    read = decoder(RecordTold)
    size = path.stat().st_size if supplied is None else sum(map(len, supplied))
    lines = (line.text for line in whole_lines(path)) if supplied is None else supplied
    for line in islice(lines, 0, None, max(1, size // _READ_WHOLE)):
        with suppress(Undecodable):
            yield read(line)


class _Written(NamedTuple):
    """The texts of a record, and how many characters each of its ``calls`` was asked with and answered."""

    texts: Mapping[Quantity, float]
    prompt: float | None
    reply: float
    calls: int = 1


class RecordReading:
    """Records on their way to being evidence."""

    def __init__(
        self, config: Config, setups: Sequence[TaskSetup], evidence: Evidence, source: Source
    ) -> None:
        self.evidence = evidence
        self._source = source
        self._speeds = {model.name: speed_of(model.spec()) for model in config.models}
        self._setups = {setup.task.name: setup for setup in setups}
        self._prompts: dict[tuple[str, str, str], KnownPrompt | None] = {}

    def take(self, phase: Phase, record: RecordTold) -> None:
        """Items that nobody was asked for tell their length alone; other models' are passed over."""
        if record.status != "ok" or record.task_id not in self._setups:
            return
        match phase:
            case "data_generation":
                self._take_item(record)
            case "response_collection":
                self._take_answer(record)
            case _:
                self._take_verdict(record)

    def _take_item(self, record: RecordTold) -> None:
        item, reference = len(record.prompt or ""), len(record.reference_response or "")
        cell = Cell(record.task_id, record.teacher_model_id)
        texts: dict[Quantity, float] = {"item characters": item, "reference characters": reference}
        known = self._known("data_generation", *cell)
        if record.usage is None or known is None:
            for quantity, characters in texts.items():
                self.evidence.add(quantity, cell, characters)
            return
        reply = item + reference + JSON_OF_ITEM
        self._add("data_generation", cell, record, _Written(texts, known.size.characters, reply))

    def _take_answer(self, record: RecordTold) -> None:
        cell = Cell(record.task_id, record.student_model_id)
        known = self._known("response_collection", *cell)
        if known is not None and record.response is not None:
            prompt = known.size.characters + known.times["input"] * len(record.input or "")
            texts: dict[Quantity, float] = {"answer characters": len(record.response)}
            self._add("response_collection", cell, record, _Written(texts, prompt, len(record.response)))

    def _take_verdict(self, record: RecordTold) -> None:
        cell = Cell(record.task_id, record.judge_model_id)
        known = self._known("evaluation", *cell)
        if known is None or not record.raw or not record.scores:
            return
        alone = self._setups[record.task_id].task.evaluation_mode == "per_factor"
        calls = len(record.scores) if alone else 1
        told = record.raw.replace("\n", "") if alone else record.raw
        named = sum(len(factor) + 2 for factor in record.scores) if alone else 0
        reply = max(1.0, (len(told) - named) / calls)
        ratio = reply / verdict_characters(("score",) if alone else record.scores)
        written = _Written({"verdict ratio": ratio}, self._judged(record, known), reply, calls)
        self._add("evaluation", cell, record, written)

    def _judged(self, record: RecordTold, known: KnownPrompt) -> float | None:
        """How long a judge's prompt was, by the mean lengths of what it is about."""
        author, answerer = (
            Cell(record.task_id, record.teacher_model_id),
            Cell(record.task_id, record.student_model_id),
        )
        of, shown = self.evidence.of, known.size.characters
        parts: tuple[tuple[str, Quantity, Cell], ...] = (
            ("input", "item characters", author),
            ("reference", "reference characters", author),
            ("response", "answer characters", answerer),
        )
        for name, quantity, cell in parts:
            if often := known.times[name]:
                if (seen := of(quantity).get(cell)) is None:
                    return None
                shown += often * seen.mean
        return shown

    def _add(self, phase: Phase, cell: Cell, record: RecordTold, told: _Written) -> None:
        known = self._known(phase, *cell)
        usage = record.usage or Usage()
        asked = max(1, record.attempts) * told.calls
        call = ToldCall(
            role=_ROLES[phase],
            task=cell.task,
            model=cell.model,
            texts=told.texts,
            prompt=told.prompt,
            messages=known.messages if known is not None else 1,
            reply=told.reply,
            input_tokens=usage.input_tokens / asked,
            output_tokens=usage.output_tokens / asked,
            seconds=record.latency_s,
        )
        add_told(self.evidence, call, self._speeds[cell.model], self._source)

    def _known(self, phase: Phase, task: str, model: str) -> KnownPrompt | None:
        """What is known of a model's prompts; None where it does not play this role any more."""
        place = (phase, task, model)
        if place not in self._prompts:
            self._prompts[place] = _prompt(self._setups[task], phase, model)
        return self._prompts[place]


def cast_of(setup: TaskSetup, phase: Phase) -> tuple[RoleModel, ...]:
    """Who makes the records of a phase 3–5."""
    match phase:
        case "data_generation":
            return setup.teachers
        case "response_collection":
            return setup.students
        case _:
            return setup.judges


def _prompt(setup: TaskSetup, phase: Phase, model: str) -> KnownPrompt | None:
    role_model = next((each for each in cast_of(setup, phase) if each.name == model), None)
    if role_model is None:
        return None
    match role_model.role:
        case "teacher":
            return item_prompt(setup, role_model)
        case "student":
            return student_prompt(setup, role_model)
        case "judge":
            return judge_prompt(setup, role_model, tuple(setup.criteria))
