"""Reads results of other tools, each file by its kind, and writes them as output folders."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from coeval.core.errors import UsageError
from coeval.core.text import join_names, pluralize
from coeval.exchange.imported import ForeignAnswer, ForeignResult, Imported, ScoreScale, write_output
from coeval.exchange.inspect_log import read_inspect
from coeval.exchange.lm_eval_samples import FILE_NAME, read_lm_eval
from coeval.exchange.promptfoo_results import is_promptfoo, read_promptfoo
from coeval.tables.table import open_table

# --- Tables

TOOL = "table"

USUAL = {
    "item": ("item", "item_id", "id", "key", "question_id", "doc_id"),
    "model": ("model", "student", "system", "model_id"),
    "score": ("score", "value", "grade", "correct", "pass"),
    "task": ("task", "benchmark", "dataset"),
    "metric": ("metric", "factor", "scorer"),
    "sample": ("sample", "epoch", "run"),
    "judge": ("judge", "grader", "annotator"),
    "prompt": ("prompt", "question", "input"),
    "answer": ("answer", "response", "output", "completion"),
}
"""What each column is usually called, the first of them that is there."""

_MISSING = ("", "na", "n/a", "nan", "null", "none", "-", "–")
_WORDS = {"true": 1.0, "false": 0.0, "yes": 1.0, "no": 0.0, "pass": 1.0, "fail": 0.0}

# Digits: Python reads no more than 4,300, and nobody takes a billion samples.
_LONGEST_SAMPLE = 9

_Scores: TypeAlias = defaultdict[tuple[str, str, str, int, str], dict[str, float | None]]
"""By task, model, item, sample and metric: each judge's score."""
_Panel: TypeAlias = defaultdict[tuple[str, str], set[str]]
"""By task and metric: all who judge it, of whichever model."""


def read_table(
    path: Path, model: str | None = None, columns: Mapping[str, str] | None = None
) -> list[ForeignResult]:
    """Read a table; ``columns`` maps what is meant (a key of `USUAL`) to a column of another name.

    An empty score is one that is missing, as is NaN. An answer's score is the mean of its judges', and
    missing where one of them gave none: means over different judges cannot be compared.

    Raises UsageError: a column is missing, a score is no number, or an answer has two scores.
    """
    table = open_table(path)
    try:
        at = _columns(path, table.columns, columns or {}, model)
        found: defaultdict[tuple[str, str], dict[tuple[str, int], ForeignAnswer]] = defaultdict(dict)
        scores: _Scores = defaultdict(dict)
        for row in table.rows:
            where = f"{path}:{row.line}"
            if not isinstance(row.fields, dict):
                raise UsageError(f"{where}: {row.fields}")
            cell = {meant: row.fields.get(column) for meant, column in at.items()}
            item = _text(cell["item"])
            if not item:
                raise UsageError(f"{where}: no item is named")
            task = _text(cell.get("task")) or path.stem
            whose = model or _text(cell.get("model"))
            if not whose:
                raise UsageError(f"{where}: no model is named")
            sample = _sample(cell.get("sample"), where)
            answer = _text(cell["answer"]) if cell.get("answer") is not None else None
            found[task, whose][item, sample] = ForeignAnswer(
                item, sample, {}, _text(cell.get("prompt")), answer
            )
            metric = _text(cell.get("metric")) or "score"
            judge = _text(cell.get("judge"))
            of_judge = scores[task, whose, item, sample, metric]
            if judge in of_judge:
                raise UsageError(
                    f"{where}: {item} of {whose} has a second {metric}; say which sample it is in a column "
                    "`sample`, or whose in a column `judge`"
                )
            of_judge[judge] = _score(cell["score"], where, decimal_comma=table.delimiter not in ("", ","))
    finally:
        table.close()
    panel: _Panel = defaultdict(set)
    for (task, _, _, _, metric), by_judge in scores.items():
        panel[task, metric] |= by_judge.keys()
    return [_result(task, whose, answers, scores, panel) for (task, whose), answers in found.items()]


def _result(
    task: str, model: str, answers: Mapping[tuple[str, int], ForeignAnswer], scores: _Scores, panel: _Panel
) -> ForeignResult:
    of_answer: defaultdict[tuple[str, int], dict[str, float | None]] = defaultdict(dict)
    short: Counter[str] = Counter()
    judges: dict[str, str] = {}
    for (of_task, whose, item, sample, metric), by_judge in scores.items():
        if (of_task, whose) == (task, model):
            whole = panel[task, metric]
            known = [value for judge in whole if (value := by_judge.get(judge)) is not None]
            # Each addend divided, nine scores of 1 come to more than 1; an infinite mean is counted later.
            whole_mean = sum(sorted(known)) / len(whole)
            of_answer[item, sample][metric] = whole_mean if len(known) == len(whole) else None
            short[metric] += 0 < len(known) < len(whole)
            if named := sorted(filter(None, whole)):
                judges[metric] = ", ".join(named)
    remarks = [f"{metric} is the mean of {names}" for metric, names in judges.items() if ", " in names]
    remarks += [
        f"{metric}: {pluralize(count, 'answer')} without a score, as not all judges gave one"
        for metric, count in short.items()
        if count
    ]
    return ForeignResult(
        tool=TOOL,
        task=task,
        model=model,
        answers=[one._replace(scores=of_answer[place]) for place, one in answers.items()],
        judges=judges,
        remarks=tuple(remarks),
    )


def _columns(path: Path, there: Sequence[str], named: Mapping[str, str], model: str | None) -> dict[str, str]:
    folded = {name.strip().lower(): name for name in reversed(there)}
    at = {}
    for meant, usual in USUAL.items():
        if meant in named:
            if named[meant] not in there:
                raise UsageError(f"{path} has no column {named[meant]}; its columns: {join_names(there)}")
            at[meant] = named[meant]
        elif (name := next((name for name in usual if name in folded), None)) is not None:
            at[meant] = folded[name]
    needed = [meant for meant in ("item", "model", "score") if meant not in at]
    if model is not None:
        needed = [meant for meant in needed if meant != "model"]
    if needed:
        raise UsageError(
            f"{path} has no column for {join_names(needed)}; its columns: {join_names(there)}. Name it with "
            f"--column {needed[0]}=COLUMN" + (", or the model with --model" if "model" in needed else "")
        )
    return at


def _text(value: Any) -> str:
    return "" if value is None else str(value).strip()


def _sample(value: Any, where: str) -> int:
    text = _text(value) or "0"
    if not text.isdecimal() or len(text) > _LONGEST_SAMPLE:
        raise UsageError(f"{where}: sample {text!r} is not a whole number from 0 to 999,999,999")
    return int(text)


def _score(value: Any, where: str, *, decimal_comma: bool) -> float | None:
    """Read a number, "75%", "yes" and such; with ``decimal_comma`` "0,75" too. None where it is missing."""
    text = _text(value).lower()
    if text in _MISSING:
        return None
    if text in _WORDS:
        return _WORDS[text]
    number = text.removesuffix("%")
    if decimal_comma and "." not in number:
        number = number.replace(",", ".", 1)
    try:
        return float(number) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise UsageError(f"{where}: the score {_text(value)!r} is no number") from None


_TABLES = (".csv", ".tsv", ".tab", ".jsonl", ".ndjson", ".parquet", ".gz")


def import_results(
    *files: str | Path,
    out: str | Path,
    model: str | None = None,
    columns: Mapping[str, str] | None = None,
    scale: Sequence[float] | None = None,
) -> Imported:
    """Write results of other tools as output folders, which `coeval compare` and others read.

    Parameters
    ----------
    files : logs of Inspect (``.eval``, ``.json``), ``samples_TASK_DATE.jsonl`` of lm-eval, ``.json``
        or ``.jsonl`` of promptfoo, or tables with a row for each item and model
    out : the folder to write; one for each model in it where there are several
    model : of lm-eval's samples and of tables, whose answers they hold
    columns : of tables, the columns by what they mean, where they have other than the usual names
    scale : the worst and the best score, where scores are not from 0 to 1

    Raises
    ------
    UsageError
        a file cannot be read, or ``out`` holds results already.
    StoreError
        the folder cannot be written.
    """
    ends = None
    if scale is not None:
        if len(scale) != 2 or scale[0] == scale[1]:
            raise UsageError("a scale has two ends, the worst and the best score: 1,5")
        ends = ScoreScale(*scale)
    results = [one for file in files for one in _read(Path(file), model, columns)]
    if not results:
        raise UsageError("name the files to import")
    return write_output(results, Path(out), ends)


def _read(path: Path, model: str | None, columns: Mapping[str, str] | None) -> list[ForeignResult]:
    if not path.is_file():
        raise UsageError(f"{path} is no file")
    suffix = path.suffix.lower()
    if suffix == ".eval":
        return [read_inspect(path)]
    if FILE_NAME.fullmatch(path.name):
        return [read_lm_eval(path, model)]
    if suffix in (".json", ".jsonl") and not columns and is_promptfoo(path):
        return read_promptfoo(path)
    if suffix == ".json" and not columns:
        return [read_inspect(path)]
    if suffix in (*_TABLES, ".json"):
        return read_table(path, model, columns)
    raise UsageError(
        f"{path} cannot be imported; supported are Inspect's .eval and .json, lm-eval's "
        "samples_TASK_DATE.jsonl, promptfoo's .json and .jsonl, tables as .csv, .tsv, .jsonl, .parquet"
    )
