"""Reads results of other tools, each file by its kind, and writes them as output folders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from coeval.core.errors import UsageError
from coeval.exchange.imported import ForeignResult, Imported, ScoreScale, write_output
from coeval.exchange.inspect_log import read_inspect
from coeval.exchange.lm_eval_samples import FILE_NAME, read_lm_eval
from coeval.exchange.promptfoo_results import is_promptfoo, read_promptfoo
from coeval.exchange.score_table import read_table

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
        f"{path} is none of the files that can be imported: Inspect's .eval and .json, lm-eval's "
        "samples_TASK_DATE.jsonl, promptfoo's .json and .jsonl, tables as .csv, .tsv, .jsonl, .parquet"
    )
