"""What a folder exports, read once for all formats, and its writing as tables and as logs of Inspect."""

from __future__ import annotations

import csv
import io
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial, singledispatch
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import duckdb

from coeval import __version__
from coeval.analysis.breakdown import By, break_down_scores_and_labels
from coeval.analysis.measures.pair_measures import (
    CountedPair,
    compute_pair_measures,
    read_counted_pairs,
    read_pair_comparisons,
)
from coeval.analysis.readers.reader import Reader
from coeval.analysis.readers.run_reader import RunReader
from coeval.benchmarks.benchmark import file_name
from coeval.core.errors import UsageError
from coeval.core.html_table import MeasureRow
from coeval.core.records import item_prefix
from coeval.core.text import canonical_json, digest
from coeval.pipeline.plan.count_plan import read_recipes
from coeval.pipeline.plan.run_reading import open_folder_reader
from coeval.reports.items.item_rows import make_item_tables
from coeval.reports.result_tables import Results, read_results
from coeval.store.jsonl import store_error, write_bytes_atomic, write_lines
from coeval.store.output_folder import is_sweep, list_sweep_steps, require_results
from coeval.store.rundir import utc_now

_AnswerKey: TypeAlias = tuple[str, str, int, str]
"""Task, item, sample and model."""


class ExportedScore(NamedTuple):
    """A score from 0 to 1 or in the metric's unit; ``judge`` None: by rules; ``value`` None: it failed."""

    judge: str | None
    metric: str
    value: float | None


class ExportedAnswer(NamedTuple):
    """An answer with all its scores. ``own_id`` is the item's id in the user's table, or its number;
    ``source`` the passage of a document that it was made from; ``text`` None if the answer failed,
    ``error`` why."""

    task: str
    model: str
    item: str
    own_id: str
    sample: int
    prompt: str
    reference: str
    source: str
    text: str | None
    error: str
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None
    latency_s: float | None
    attributes: dict[str, str]
    scores: tuple[ExportedScore, ...]


class ExportedFigure(NamedTuple):
    """A mean with its 95% interval over n items.

    ``judges`` gave the scores; ``recipes`` hold a hash of model, settings and prompt for each of them,
    several joined by commas. ``failed`` counts answers and judgments (of a benchmark, samples) without a
    result, ``missing`` the single scores that are possible but absent; both None if not counted. ``unit``
    is ``share`` (0 to 1), ``percent`` or ``points`` (1 to 10).
    """

    task: str
    model: str
    metric: str
    value: float | None
    low: float | None
    high: float | None
    standard_error: float | None
    n: int
    failed: int | None
    missing: int | None
    unit: str
    judges: tuple[str, ...]
    recipes: tuple[str, ...] = ()


class Export:
    """A run, or an output folder of ``eval-framework``, opened for export. Only a run has parts of scores,
    labels, comparisons and settings."""

    def __init__(self, reader: Reader, notes: tuple[str, ...], run_reader: RunReader | None = None) -> None:
        """``run_reader``: the same reader, where the folder is a run."""
        self._reader, self._run_reader = reader, run_reader
        self.notes = notes
        make_item_tables(reader)

    def figures(self, *, overall: bool = False, by_factor_and_judge: bool = False) -> list[ExportedFigure]:
        """Return each student's mean or strength by task, or each metric of a benchmark; also over all tasks
        (task "") with ``overall``, by factor and by judge with ``by_factor_and_judge``."""
        judges, recipes = self._judges_by_student(), self._recipes_by_task_model_and_judge()
        figures = [*_score_accuracy_and_metric_figures(read_results(self._reader, self.notes), judges)]
        if self._run_reader is not None:
            figures += _factor_and_judge_figures(self._run_reader, judges) if by_factor_and_judge else ()
            figures += _strength_figures(self._run_reader)
        return [
            figure._replace(
                recipes=tuple(recipes.get((figure.task, figure.model, judge), "") for judge in figure.judges)
            )
            for figure in figures
            if figure.task or overall
        ]

    def answers(self) -> Iterator[ExportedAnswer]:
        """Yield all answers, by task and item; label matches and comparisons count as scores. Raises
        UsageError: nothing is scored yet."""
        scores: defaultdict[_AnswerKey, list[ExportedScore]] = defaultdict(list)
        for task, item, sample, model, *fields in self._reader.rows(
            "SELECT task, item, sample, model, judge, metric, CASE WHEN NOT failed THEN value END "
            "FROM scores ORDER BY ALL"
        ):
            scores[task, item, sample, model].append(ExportedScore(*fields))
        for key, score in () if self._run_reader is None else _label_and_pair_scores(self._run_reader):
            scores[key].append(score)
        if not scores:
            raise UsageError(f"{self._reader.folder} has no scores yet")
        items = self._reader.items()
        for task, item in self._reader.rows("SELECT DISTINCT task, item FROM items ORDER BY ALL"):
            if (detail := items.read_item(item, task)) is None:
                continue
            for answer in detail.answers:
                yield ExportedAnswer(
                    task=task,
                    model=answer.student,
                    item=item,
                    own_id=item.removeprefix(item_prefix(task, detail.teacher or "")),
                    sample=answer.sample,
                    prompt=detail.prompt or "",
                    reference=detail.reference or "",
                    source=detail.source,
                    text=None if answer.failed else answer.text,
                    error=answer.error.message if answer.error is not None else "",
                    input_tokens=answer.input_tokens,
                    output_tokens=answer.output_tokens,
                    cost_usd=answer.cost_usd,
                    latency_s=answer.latency_s,
                    attributes=detail.attributes,
                    scores=tuple(scores.get((task, item, answer.sample, answer.student), ())),
                )

    def collect_parameters(self) -> dict[str, str]:
        """Return settings by name for a tracker: models, judges, tasks, samples, sampling, a hash of the
        items."""
        texts = self._reader.rows("SELECT task, item, content::VARCHAR FROM contents ORDER BY ALL")
        parameters = {"coeval_version": __version__, "items": digest(canonical_json(texts))}
        for name, column in _PARAMETERS.items():
            values = self._reader.rows(f"SELECT DISTINCT {column} AS part FROM scores ORDER BY part")  # noqa: S608
            parameters[name] = ", ".join(str(value) for (value,) in values if value is not None)
        parameters["samples"] = parameters["samples"].rpartition(", ")[2]
        sent: defaultdict[str, dict[str, None]] = defaultdict(dict)
        for settings in () if self._run_reader is None else read_recipes(self._run_reader.run).values():
            for key, value in settings.items():
                name = key.removeprefix("parameters.").partition(" (")[0]  # "temperature (student)"
                if key.startswith("parameters.") and name != "model":
                    sent[name][value] = None
        parameters |= {name: ", ".join(sorted(values)) for name, values in sent.items()}
        return {name: value for name, value in parameters.items() if value}

    def recipes_by_task_and_judge(self) -> dict[str, str]:
        """Return the recipe of each ``task/judge``: other recipes start a new tracked run."""
        recipes_of: defaultdict[str, set[str]] = defaultdict(set)
        for (task, _, judge), recipe in self._recipes_by_task_model_and_judge().items():
            if task:
                recipes_of[f"{task}/{judge}"].add(recipe)
        return {name: ",".join(sorted(recipes)) for name, recipes in recipes_of.items()}

    def _recipes_by_task_model_and_judge(self) -> dict[tuple[str, str, str], str]:
        """Return judges' recipes by task ("" for all), model and judge; several joined by commas."""
        texts = self._recipes_by_their_number()
        recipes_of: defaultdict[tuple[str, str, str], set[str]] = defaultdict(set)
        for task, model, judge, method in self._reader.rows("SELECT task, model, judge, method FROM methods"):
            for name in (task, ""):
                recipes_of[name, model, judge].add(texts.get(method, ""))
        return {key: ",".join(sorted(filter(None, recipes))) for key, recipes in recipes_of.items()}

    def _recipes_by_their_number(self) -> dict[int, str]:
        """Return judges' recipes by the hash that readers keep of them."""
        if self._run_reader is None:
            return dict(self._reader.rows("SELECT DISTINCT hash(judged_by), judged_by FROM place"))
        lines = "SELECT DISTINCT hash(recipe), recipe FROM {lines} WHERE recipe IS NOT NULL"
        return dict(self._run_reader.query_lines("evaluation", {"recipe": "VARCHAR"}, lines))

    def _judges_by_student(self) -> dict[tuple[str, str], tuple[str, ...]]:
        """Return the judges of each (task or "" for all, model)."""
        judges_of: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        for task, model, judge in self._reader.rows(
            "SELECT DISTINCT task, model, judge FROM scores WHERE judge IS NOT NULL"
        ):
            for name in (task, ""):
                judges_of[name, model].add(judge)
        return {key: tuple(sorted(judges)) for key, judges in judges_of.items()}


@singledispatch
def _make_export(reader: Reader, notes: tuple[str, ...]) -> Export:
    return Export(reader, notes)


@_make_export.register
def _(reader: RunReader, notes: tuple[str, ...]) -> Export:
    return Export(reader, notes, reader)


@contextmanager
def open_export(folder: Path) -> Iterator[Export]:
    """Open a folder. Raises UsageError: it holds no results; StoreError: a file cannot be read."""
    with open_folder_reader(require_results(folder), is_look=True) as (reader, notes):
        yield _make_export(reader, tuple(notes))


def list_checkpoints_or_folder_itself(folder: Path) -> dict[str, Path]:
    """Return the folder itself under the name "", or a sweep's checkpoints by name."""
    if is_sweep(folder):
        return {step.name: step for step in list_sweep_steps(folder) or sorted(folder.glob("step_*/"))}
    return {"": folder}


def _factor_and_judge_figures(
    reader: RunReader, judges: Mapping[tuple[str, str], tuple[str, ...]]
) -> Iterator[ExportedFigure]:
    kinds: tuple[By, By] = ("factor", "judge")
    for part in (part for kind in kinds for part in break_down_scores_and_labels(reader, kind).scores):
        names = (part.part,) if part.by == "judge" else judges.get((part.task or "", part.student), ())
        yield _share_figure(part.task, f"{part.by} {part.part}", part.score, part, names)


def _share_figure(
    task: str | None, metric: str, value: float | None, row: MeasureRow, judges: tuple[str, ...] = ()
) -> ExportedFigure:
    counts = (row.n, row.get("failed"), row.missing, "share", judges)
    return ExportedFigure(task or "", row.student, metric, value, row.low, row.high, None, *counts)


def _label_and_pair_scores(reader: RunReader) -> Iterator[tuple[_AnswerKey, ExportedScore]]:
    """Yield label matches as scores, and comparisons as a score of both their answers."""
    for task, item, sample, model, attribute, match in reader.rows(
        "SELECT task, item, sample, model, attribute, match FROM labels ORDER BY ALL"
    ):
        value = None if match is None else float(match)
        yield (task, item, sample, model), ExportedScore(None, f"label {attribute}", value)
    for pair in read_counted_pairs(reader):
        part = pair.part
        students = part.first_model_id, part.second_model_id
        for student, other, order in zip(students, students[::-1], ("first", "second"), strict=True):
            score = ExportedScore(
                part.judge_model_id, f"against {other}, shown {order}", pair.win_share_unless_failed(student)
            )
            yield (part.task_id, part.datapoint_id, 0, student), score


_PARAMETERS = {"models": "model", "judges": "judge", "tasks": "task", "samples": "sample + 1"}
"""What to read of the scores, by the name of the parameter."""


def _strength_figures(reader: RunReader) -> Iterator[ExportedFigure]:
    """Yield each student's strength by comparisons, in each task and overall (task "")."""
    if (measured := compute_pair_measures(read_pair_comparisons(reader))) is None:
        return
    pairs_of: defaultdict[tuple[str, str], list[CountedPair]] = defaultdict(list)
    for pair in read_counted_pairs(reader):
        for student in (pair.part.first_model_id, pair.part.second_model_id):
            pairs_of[pair.part.task_id, student].append(pair)
            pairs_of["", student].append(pair)
    tasks = sorted({task for task, _ in pairs_of if task})
    for name, compared in measured.students.items():
        by_task = compared.by_task or dict.fromkeys(tasks, compared.strength)
        for task, strength in {"": compared.strength, **by_task}.items():
            pairs = pairs_of[task, name]
            yield ExportedFigure(
                task=task,
                model=name,
                metric="pairwise strength",
                value=strength.value,
                low=strength.low,
                high=strength.high,
                standard_error=None,
                n=strength.n or 0,
                failed=sum(not pair.good for pair in pairs),
                missing=None,
                unit="share",
                judges=tuple(sorted({pair.part.judge_model_id for pair in pairs})),
            )


def _score_accuracy_and_metric_figures(
    scores: Results, judges: dict[tuple[str, str], tuple[str, ...]]
) -> Iterator[ExportedFigure]:
    """Yield means of students, label accuracies and a benchmark's metrics; removed models are skipped."""
    for score in (score for score in scores.students if not score.removed):
        names = judges.get((score.task or "", score.student), ())
        yield _share_figure(score.task, "score", score.score, score, names)
    for label in (label for label in scores.labels if not label.removed):
        yield _share_figure(label.task, f"accuracy of {label.attribute}", label.accuracy, label)
    for metric in scores.metrics:
        same: dict[str, Any] = {name: getattr(metric, name, None) for name in ExportedFigure._fields[:-1]}
        yield ExportedFigure(**same | {"judges": judges.get((metric.task, metric.model), ())})


# --- Tables

_ANSWER = tuple(name for name in ExportedAnswer._fields if name not in ("attributes", "scores"))
_TYPES = {
    "sample": "INTEGER",
    "input_tokens": "BIGINT",
    "output_tokens": "BIGINT",
    "n": "BIGINT",
    "failed": "BIGINT",
    "missing": "BIGINT",
}
_NUMBERS = ("cost_usd", "latency_s", "value", "low", "high", "standard_error")


def _score_table(export: Export) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Return column names and a row per score; an item's attributes are columns ``attribute_NAME``."""
    answers = list(export.answers())
    attributes = sorted({name for answer in answers for name in answer.attributes})
    rows = [
        (*answer[: len(_ANSWER)], *map(answer.attributes.get, attributes), *score)
        for answer in answers
        for score in answer.scores or (ExportedScore(None, "", None),)
    ]
    return [*_ANSWER, *(f"attribute_{name}" for name in attributes), *ExportedScore._fields], rows


def _figure_rows(export: Export) -> Iterator[tuple[Any, ...]]:
    for figure in export.figures(overall=True, by_factor_and_judge=True):
        yield tuple(", ".join(filter(None, cell)) if isinstance(cell, tuple) else cell for cell in figure)


def _write_tables(export: Export, out: Path, suffix: str) -> list[Path]:
    """Write tables of scores and figures; an empty cell of CSV is a missing value."""
    tables = {"scores": _score_table(export), "figures": (ExportedFigure._fields, list(_figure_rows(export)))}
    paths = []
    for stem, (names, rows) in tables.items():
        paths.append(path := out / f"{stem}.{suffix}")
        if suffix == "csv":
            text = io.StringIO()
            csv.writer(text).writerows([names, *rows])
            write_bytes_atomic(path, text.getvalue().encode("utf-8", "surrogatepass"))
        else:
            _write_parquet(path, names, rows)
    return paths


def _write_parquet(path: Path, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    columns = [f'"{name}" {"DOUBLE" if name in _NUMBERS else _TYPES.get(name, "VARCHAR")}' for name in names]
    with duckdb.connect() as database:
        database.execute(f"CREATE TABLE exported ({', '.join(columns)})")
        if rows:
            database.executemany(f"INSERT INTO exported VALUES ({', '.join('?' * len(names))})", rows)  # noqa: S608
        database.table("exported").write_parquet(str(path))


# --- Inspect
#
# Logs for its viewer and its ``read_eval_log``: version 2 of its JSON format.

_RULES = "coeval"
"""The scorer's name where no judge gave the scores."""


def _write_inspect(export: Export, out: Path) -> list[Path]:
    """Write ``MODEL/TASK.json`` for each task and model; return the files."""
    answers: defaultdict[tuple[str, str], list[ExportedAnswer]] = defaultdict(list)
    for answer in export.answers():
        answers[answer.task, answer.model].append(answer)
    figures = export.figures()
    paths = []
    for (task, model), of_task in answers.items():
        own = [figure for figure in figures if (figure.task, figure.model) == (task, model)]
        path = out / file_name(model) / f"{file_name(task)}.json"
        write_lines(path, [_make_inspect_log(task, model, of_task, own)])
        paths.append(path)
    return paths


def _make_inspect_log(
    task: str, model: str, answers: Sequence[ExportedAnswer], figures: Sequence[ExportedFigure]
) -> dict[str, Any]:
    """Make a log: a sample for each answer, a scorer for each judge with the factors as its keys. Its
    metadata hold the figures with their intervals, for which the format has no field."""
    judges = sorted({score.judge or _RULES for answer in answers for score in answer.scores})
    at = utc_now()
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
            "scores": [score for judge in judges for score in _inspect_means(judge, answers)],
        },
        "stats": {"started_at": at, "completed_at": at, "model_usage": {}},
        "samples": [_inspect_sample(answer, model) for answer in answers],
    }


def _inspect_means(judge: str, answers: Iterable[ExportedAnswer]) -> list[dict[str, Any]]:
    """Return a judge's mean by factor, over items of their samples' means, as Inspect reduces epochs."""
    by_item: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for answer in answers:
        for score in answer.scores:
            if (score.judge or _RULES) == judge and score.value is not None:
                by_item[score.metric][answer.item].append(score.value)
    means = []
    for metric, items in by_item.items():
        mean = math.fsum(math.fsum(values) / len(values) for values in items.values()) / len(items)
        measures = {"mean": {"name": "mean", "value": mean, "params": {}}}
        means.append({"name": metric, "scorer": judge, "scored_samples": len(items), "metrics": measures})
    return means


def _inspect_sample(answer: ExportedAnswer, model: str) -> dict[str, Any]:
    """Return an answer as a sample of Inspect, with its messages, usage and time, or with its error."""
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
        "scores": {
            judge: {"value": values_by_factor, "answer": answer.text}
            for judge, values_by_factor in values.items()
        },
        "metadata": {"cost_usd": answer.cost_usd} | ({"source": answer.source} if answer.source else {}),
    }
    if answer.text is None:
        sample["error"] = {"message": answer.error or "no answer", "traceback": "", "traceback_ansi": ""}
        return sample
    message = {"role": "assistant", "content": answer.text, "source": "generate", "model": model}
    sample["messages"] = [{"role": "user", "content": answer.prompt}, message]
    sample["output"] |= {"choices": [{"message": message, "stop_reason": "stop"}], "completion": answer.text}
    if answer.input_tokens is not None and answer.output_tokens is not None:
        total = answer.input_tokens + answer.output_tokens
        counts = {"input_tokens": answer.input_tokens, "output_tokens": answer.output_tokens}
        sample["output"]["usage"] = counts | {"total_tokens": total}
    if answer.latency_s is not None:
        sample["output"]["time"] = answer.latency_s
    return sample


# --- All formats

FORMATS: dict[str, Callable[[Export, Path], list[Path]]] = {
    "csv": partial(_write_tables, suffix="csv"),
    "parquet": partial(_write_tables, suffix="parquet"),
    "inspect": _write_inspect,
}
"""What writes each format: the files that it wrote."""


def export_results(folder: str | Path, to: str, out: str | Path) -> list[Path]:
    """Write the results of a run, an output folder or a sweep in another format; return the files.

    ``to``: ``csv``, ``parquet`` or ``inspect``; ``out``: a folder that is new or empty, with one in it for
    each checkpoint of a sweep.

    Raises UsageError: the folder holds no results, or none that this format can hold; ``out`` is not
    empty; StoreError: a file cannot be read or written.

    >>> [path.name for path in coeval.export_results("runs/quickstart", to="csv", out="exported")]
    ['scores.csv', 'figures.csv']
    """
    if to not in FORMATS:
        raise UsageError(f"{to} is not a format; there are {', '.join(FORMATS)}")
    target = Path(out)
    try:
        if target.exists() and any(target.iterdir()):
            raise UsageError(f"{target} is not empty; give --out another folder")
        folders = list_checkpoints_or_folder_itself(Path(folder))
        for name in folders:
            (target / name).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise store_error("create", target, error) from error
    paths: list[Path] = []
    for name, source in folders.items():
        with open_export(source) as export:
            paths += FORMATS[to](export, target / name)
    return paths
