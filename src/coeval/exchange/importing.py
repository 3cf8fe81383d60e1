"""Reads results of other tools, recognises each file's kind, and writes them as output folders."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from coeval.core.errors import UsageError
from coeval.core.text import join_names, pluralize
from coeval.exchange.imported import ForeignAnswer, ForeignResult, Imported, ScoreScale, write_results
from coeval.exchange.inspect_log import read_inspect
from coeval.exchange.lm_eval_samples import FILE_NAME, read_lm_eval
from coeval.exchange.promptfoo_results import is_promptfoo, read_promptfoo
from coeval.tables.table import open_table

# --- Tables

TOOL = "table"

USUAL_COLUMNS = {
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
"""Usual names of each column; the first that the table has is taken."""

_MISSING = ("", "na", "n/a", "nan", "null", "none", "-", "–")
_WORDS = {"true": 1.0, "false": 0.0, "yes": 1.0, "no": 0.0, "pass": 1.0, "fail": 0.0}

# Digits: Python reads no more than 4,300, and nobody takes a billion samples.
_LONGEST_SAMPLE = 9

_Answers: TypeAlias = defaultdict[tuple[str, str], dict[tuple[str, int], ForeignAnswer]]
"""By task and model: answers by item and sample."""
_Scores: TypeAlias = defaultdict[tuple[str, str, str, int, str], dict[str, float | None]]
"""By task, model, item, sample and metric: each judge's score."""
_Panel: TypeAlias = defaultdict[tuple[str, str], set[str]]
"""By task and metric: all who judge it, of whichever model."""


def read_table(
    path: Path, model: str | None = None, columns: Mapping[str, str] | None = None
) -> list[ForeignResult]:
    """Read a table; ``columns`` maps a role (a key of `USUAL_COLUMNS`) to a column of another name. Empty and
    NaN scores are missing. An answer's score is the mean of its judges', and missing if one of them is:
    means over different judges cannot be compared.

    Raises UsageError: a column is missing, a score is not a number, or an answer has two scores.
    """
    table = open_table(path)
    try:
        column_by_role = _find_columns(path, table.columns, columns or {}, model)
        answers_by_model: _Answers = defaultdict(dict)
        scores: _Scores = defaultdict(dict)
        for row in table.rows:
            where = f"{path}:{row.line}"
            if not isinstance(row.fields, dict):
                raise UsageError(f"{where}: {row.fields}")
            cell = {role: row.fields.get(column) for role, column in column_by_role.items()}
            item = _clean_text(cell["item"])
            if not item:
                raise UsageError(f"{where}: no item is named")
            task = _clean_text(cell.get("task")) or path.stem
            owner = model or _clean_text(cell.get("model"))
            if not owner:
                raise UsageError(f"{where}: no model is named")
            sample = _parse_sample(cell.get("sample"), where)
            answer = _clean_text(cell["answer"]) if cell.get("answer") is not None else None
            answers_by_model[task, owner][item, sample] = ForeignAnswer(
                item, sample, {}, _clean_text(cell.get("prompt")), answer
            )
            metric = _clean_text(cell.get("metric")) or "score"
            judge = _clean_text(cell.get("judge"))
            score_by_judge = scores[task, owner, item, sample, metric]
            if judge in score_by_judge:
                raise UsageError(
                    f"{where}: {item} of {owner} has a second {metric}; distinguish them by a "
                    "column `sample` or `judge`"
                )
            score_by_judge[judge] = _parse_score(
                cell["score"], where, decimal_comma=table.delimiter not in ("", ",")
            )
    finally:
        table.close()
    panel: _Panel = defaultdict(set)
    for (task, _, _, _, metric), by_judge in scores.items():
        panel[task, metric] |= by_judge.keys()
    return [
        _make_result(task, owner, answers, scores, panel)
        for (task, owner), answers in answers_by_model.items()
    ]


def _make_result(
    task: str, model: str, answers: Mapping[tuple[str, int], ForeignAnswer], scores: _Scores, panel: _Panel
) -> ForeignResult:
    """Return the result of one model on one task, with the mean of each answer's judges."""
    scores_by_answer: defaultdict[tuple[str, int], dict[str, float | None]] = defaultdict(dict)
    incomplete: Counter[str] = Counter()
    judges: dict[str, str] = {}
    for (score_task, owner, item, sample, metric), by_judge in scores.items():
        if (score_task, owner) == (task, model):
            judges_of_metric = panel[task, metric]
            values = [value for judge in judges_of_metric if (value := by_judge.get(judge)) is not None]
            # Each addend divided, nine scores of 1 come to more than 1; an infinite mean is counted later.
            mean = sum(sorted(values)) / len(judges_of_metric)
            scores_by_answer[item, sample][metric] = mean if len(values) == len(judges_of_metric) else None
            incomplete[metric] += 0 < len(values) < len(judges_of_metric)
            if named := sorted(filter(None, judges_of_metric)):
                judges[metric] = ", ".join(named)
    remarks = [f"{metric} is the mean of {names}" for metric, names in judges.items() if ", " in names]
    remarks += [
        f"{metric}: {pluralize(count, 'answer')} without a score, as not all judges gave one"
        for metric, count in incomplete.items()
        if count
    ]
    return ForeignResult(
        tool=TOOL,
        task=task,
        model=model,
        answers=[answer._replace(scores=scores_by_answer[key]) for key, answer in answers.items()],
        judges=judges,
        remarks=tuple(remarks),
    )


def _find_columns(
    path: Path, columns: Sequence[str], renamed: Mapping[str, str], model: str | None
) -> dict[str, str]:
    """Return the table's column for each role (a key of `USUAL_COLUMNS`): as ``renamed``, else by usual name.
    Raises UsageError: a renamed column, or one for item, model or score is missing."""
    folded = {name.strip().lower(): name for name in reversed(columns)}
    column_by_role = {}
    for role, usual in USUAL_COLUMNS.items():
        if role in renamed:
            if renamed[role] not in columns:
                raise UsageError(f"{path} has no column {renamed[role]}; its columns: {join_names(columns)}")
            column_by_role[role] = renamed[role]
        elif (name := next((name for name in usual if name in folded), None)) is not None:
            column_by_role[role] = folded[name]
    required = ("item", "score") if model is not None else ("item", "model", "score")
    if missing := [role for role in required if role not in column_by_role]:
        alternative = ", or the model with --model" if "model" in missing else ""
        raise UsageError(
            f"{path} has no column for {join_names(missing)}; its columns: {join_names(columns)}. Name it "
            f"with --column {missing[0]}=COLUMN{alternative}"
        )
    return column_by_role


def _clean_text(value: Any) -> str:
    return "" if value is None else str(value).strip()


def _parse_sample(value: Any, where: str) -> int:
    text = _clean_text(value) or "0"
    if not text.isdecimal() or len(text) > _LONGEST_SAMPLE:
        raise UsageError(f"{where}: sample {text!r} is not a whole number from 0 to 999,999,999")
    return int(text)


def _parse_score(value: Any, where: str, *, decimal_comma: bool) -> float | None:
    """Read a number, "75%", "yes" and such; with ``decimal_comma`` "0,75" too. None where it is missing."""
    text = _clean_text(value).lower()
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
        raise UsageError(f"{where}: the score {_clean_text(value)!r} is not a number") from None


_TABLES = (".csv", ".tsv", ".tab", ".jsonl", ".ndjson", ".parquet", ".gz")


def import_results(
    *files: str | Path,
    out: str | Path,
    model: str | None = None,
    columns: Mapping[str, str] | None = None,
    scale: Sequence[float] | None = None,
) -> Imported:
    """Write results of other tools as output folders, which `coeval compare` and others read.

    ``files``: logs of Inspect (``.eval``, ``.json``), ``samples_TASK_DATE.jsonl`` of lm-eval, ``.json`` or
    ``.jsonl`` of promptfoo, or tables with a row for each item and model. ``out``: the folder to write;
    one for each of several models in it. ``model``: whose answers lm-eval's samples and tables hold.
    ``columns``: a table's columns by what they mean, where they have other than the usual names.
    ``scale``: the worst and the best score, where scores are not from 0 to 1.

    Raises UsageError: a file cannot be read, or ``out`` holds results already; StoreError: the folder
    cannot be written.

    >>> _ = Path("scores.csv").write_text("id,model,score\\n1,ann,0.9\\n1,bob,0.4\\n")
    >>> sorted(coeval.import_results("scores.csv", out="imported").folders)
    ['ann', 'bob']
    """
    if scale is not None and (len(scale) != 2 or scale[0] == scale[1]):
        raise UsageError("a scale is the worst and the best score: 1,5")
    results = [result for file in files for result in _read_file(Path(file), model, columns)]
    if not results:
        raise UsageError("name the files to import")
    return write_results(results, Path(out), None if scale is None else ScoreScale(*scale))


def _read_file(path: Path, model: str | None, columns: Mapping[str, str] | None) -> list[ForeignResult]:
    """Read a file by its suffix and name; tables are the last resort."""
    if not path.is_file():
        raise UsageError(f"{path} is not a file")
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
