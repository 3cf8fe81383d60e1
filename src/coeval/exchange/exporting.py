"""Writes results as tables, and as logs of Inspect."""

from __future__ import annotations

import csv
import io
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb

from coeval import __version__
from coeval.benchmarks.benchmark import file_name
from coeval.core.errors import UsageError
from coeval.core.text import digest
from coeval.exchange.exported import AnswerOut, Export, FigureOut, GivenScore, export_of, folders_to_export
from coeval.store.jsonl import store_error, write_bytes_atomic, write_lines
from coeval.store.rundir import now

# --- Tables

_ANSWER = tuple(name for name in AnswerOut._fields if name not in ("attributes", "scores"))
_TYPES = {
    "sample": "INTEGER",
    "input_tokens": "BIGINT",
    "output_tokens": "BIGINT",
    "n": "BIGINT",
    "failed": "BIGINT",
}
_NUMBERS = ("cost_usd", "latency_s", "value", "low", "high", "standard_error")


def _write_csv(found: Export, out: Path) -> list[Path]:
    """Write ``scores.csv`` and ``figures.csv``; an empty cell is a missing value."""
    paths = [out / "scores.csv", out / "figures.csv"]
    write_bytes_atomic(paths[0], _csv(*_scores(found)))
    write_bytes_atomic(paths[1], _csv(FigureOut._fields, _figures(found)))
    return paths


def _write_parquet(found: Export, out: Path) -> list[Path]:
    """Write ``scores.parquet`` and ``figures.parquet``."""
    paths = [out / "scores.parquet", out / "figures.parquet"]
    _parquet(paths[0], *_scores(found))
    _parquet(paths[1], FigureOut._fields, _figures(found))
    return paths


def _scores(found: Export) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Names of columns, and rows; an item's attributes are columns ``attribute_NAME``."""
    answers = list(found.answers())
    attributes = sorted({name for answer in answers for name in answer.attributes})
    rows = [
        (*answer[: len(_ANSWER)], *map(answer.attributes.get, attributes), *score)
        for answer in answers
        for score in answer.scores or (GivenScore(None, "", None),)
    ]
    return [*_ANSWER, *(f"attribute_{name}" for name in attributes), *GivenScore._fields], rows


def _figures(found: Export) -> Iterator[tuple[Any, ...]]:
    for figure in found.figures(overall=True, parts=True):
        yield tuple(", ".join(filter(None, cell)) if isinstance(cell, tuple) else cell for cell in figure)


def _csv(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(names)
    writer.writerows(rows)
    return text.getvalue().encode("utf-8", "surrogatepass")


def _parquet(path: Path, names: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    columns = [f'"{name}" {"DOUBLE" if name in _NUMBERS else _TYPES.get(name, "VARCHAR")}' for name in names]
    with duckdb.connect() as database:
        database.execute(f"CREATE TABLE exported ({', '.join(columns)})")
        whole = [tuple(row) for row in rows]
        if whole:
            database.executemany(f"INSERT INTO exported VALUES ({', '.join('?' * len(names))})", whole)  # noqa: S608
        database.table("exported").write_parquet(str(path))


# --- Inspect
#
# Logs for its viewer and its ``read_eval_log``: version 2 of its JSON format.

_RULES = "coeval"
"""The scorer's name where no judge gave the scores."""


def _write_inspect(found: Export, out: Path) -> list[Path]:
    """Write ``MODEL/TASK.json`` for each task and model; return the files."""
    answers: defaultdict[tuple[str, str], list[AnswerOut]] = defaultdict(list)
    for answer in found.answers():
        answers[answer.task, answer.model].append(answer)
    figures = found.figures()
    paths = []
    for (task, model), of_task in answers.items():
        own = [figure for figure in figures if (figure.task, figure.model) == (task, model)]
        path = out / file_name(model) / f"{file_name(task)}.json"
        write_lines(path, [_inspect_log(task, model, of_task, own)])
        paths.append(path)
    return paths


def _inspect_log(
    task: str, model: str, answers: Sequence[AnswerOut], figures: Sequence[FigureOut]
) -> dict[str, Any]:
    """Make a log: a sample for each answer, a scorer for each judge with the factors as its keys. The figures
    with their intervals, which the format has no place for, are in its metadata."""
    judges = sorted({score.judge or _RULES for answer in answers for score in answer.scores})
    at = now()
    return {
        "version": 2,
        "status": "success" if all(answer.text is not None for answer in answers) else "error",
        "eval": {
            "eval_id": digest(task, model, at)[:22],
            "run_id": digest(model, at)[:22],
            "task_id": digest(task)[:22],
            "created": at,
            "task": task,
            "task_version": 0,
            "dataset": {"name": task, "samples": len({answer.item for answer in answers})},
            "model": model,
            "config": {"epochs": 1 + max(answer.sample for answer in answers)},
            "packages": {"coeval": __version__},
            "scorers": [
                {"name": judge, "options": {} if judge == _RULES else {"model": judge}} for judge in judges
            ],
            "metadata": {"figures": [figure._asdict() for figure in figures]},
        },
        "plan": {"name": "plan", "steps": [], "config": {}},
        "results": {
            "total_samples": len(answers),
            "completed_samples": sum(answer.text is not None for answer in answers),
            "scores": [score for judge in judges for score in _means(judge, answers)],
        },
        "stats": {"started_at": at, "completed_at": at, "model_usage": {}},
        "samples": [_sample(answer, model) for answer in answers],
    }


def _means(judge: str, answers: Iterable[AnswerOut]) -> list[dict[str, Any]]:
    """A mean over items of the means of their samples, as Inspect reduces epochs, for each factor."""
    by_item: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for answer in answers:
        for score in answer.scores:
            if (score.judge or _RULES) == judge and score.value is not None:
                by_item[score.metric][answer.item].append(score.value)
    found = []
    for metric, items in by_item.items():
        mean = math.fsum(math.fsum(values) / len(values) for values in items.values()) / len(items)
        measured = {"mean": {"name": "mean", "value": mean, "params": {}}}
        found.append({"name": metric, "scorer": judge, "scored_samples": len(items), "metrics": measured})
    return found


def _sample(answer: AnswerOut, model: str) -> dict[str, Any]:
    values: defaultdict[str, dict[str, float | None]] = defaultdict(dict)
    for score in answer.scores:
        values[score.judge or _RULES][score.metric] = score.value
    sample: dict[str, Any] = {
        "id": answer.item,
        "epoch": answer.sample + 1,
        "input": answer.prompt,
        "target": answer.reference,
        "messages": [],
        "output": {"model": model, "choices": []},
        "scores": {judge: {"value": given, "answer": answer.text} for judge, given in values.items()},
        "metadata": {"cost_usd": answer.cost_usd} | ({"source": answer.source} if answer.source else {}),
    }
    if answer.text is None:
        message = answer.error or "no answer"
        sample["error"] = {"message": message, "traceback": "", "traceback_ansi": ""}
        return sample
    said = {"role": "assistant", "content": answer.text, "source": "generate", "model": model}
    sample["messages"] = [{"role": "user", "content": answer.prompt}, said]
    sample["output"] |= {"choices": [{"message": said, "stop_reason": "stop"}], "completion": answer.text}
    if answer.input_tokens is not None and answer.output_tokens is not None:
        total = answer.input_tokens + answer.output_tokens
        counts = {"input_tokens": answer.input_tokens, "output_tokens": answer.output_tokens}
        sample["output"]["usage"] = counts | {"total_tokens": total}
    if answer.latency_s is not None:
        sample["output"]["time"] = answer.latency_s
    return sample


# --- All formats

FORMATS: dict[str, Callable[[Export, Path], list[Path]]] = {
    "csv": _write_csv,
    "parquet": _write_parquet,
    "inspect": _write_inspect,
}
"""What writes each format: the files that it wrote."""


def export_results(folder: str | Path, to: str, out: str | Path) -> list[Path]:
    """Write the results of a run, an output folder or a sweep in another format; return the files.

    Parameters
    ----------
    folder : a run, an output folder of ``eval-framework``, or a sweep, whose checkpoints get a folder each
    to : ``csv``, ``parquet`` or ``inspect``
    out : a folder that is new or empty

    Raises
    ------
    UsageError
        the folder holds no results, or none that this format can hold; ``out`` is not empty.
    StoreError
        a file cannot be read or written.
    """
    if to not in FORMATS:
        raise UsageError(f"{to} is no format; there are {', '.join(FORMATS)}")
    target = Path(out)
    try:
        if target.exists() and any(target.iterdir()):
            raise UsageError(f"{target} is not empty; give --out another folder")
        places = folders_to_export(Path(folder))
        for name in places:
            (target / name).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise store_error("create", target, error) from error
    paths: list[Path] = []
    for name, place in places.items():
        with export_of(place) as found:
            paths += FORMATS[to](found, target / name)
    return paths
