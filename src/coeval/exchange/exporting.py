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
from coeval.analysis.breakdown import By, break_down_scores
from coeval.analysis.measures.pair_measures import (
    PlannedPair,
    compute_pair_measures,
    read_pair_comparisons,
    read_planned_pairs,
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

_Place: TypeAlias = tuple[str, str, int, str]
"""Task, item, sample and model."""


class GivenScore(NamedTuple):
    """A score from 0 to 1, or in the metric's unit; ``judge`` None where rules gave it, ``value`` None where
    it failed."""

    judge: str | None
    metric: str
    value: float | None

    @property
    def name(self) -> str:
        return self.metric if self.judge is None else f"{self.judge}/{self.metric}"


class AnswerOut(NamedTuple):
    """An answer with all its scores. ``own_id`` is the item's id in the user's table, or its number;
    ``source`` the passage of a document that it was made from; ``text`` None where it failed, and ``error``
    why."""

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
    scores: tuple[GivenScore, ...]


class FigureOut(NamedTuple):
    """A mean with its 95% interval over n items. ``judges`` gave the scores; ``recipes`` has a hash of model,
    settings and prompt for each of them, or several with commas; ``failed`` counts the answers and judgments
    (of a benchmark, samples) that came to nothing, ``missing`` the single scores that are possible and not
    there; both None where nobody counts them. ``unit`` is ``share`` (0 to 1),
    ``percent`` or ``points`` (1 to 10)."""

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
    """A run, or an output folder of ``eval-framework``, opened for export."""

    def __init__(self, reader: Reader, notes: tuple[str, ...]) -> None:
        self._reader = reader
        self.notes = notes
        make_item_tables(reader)

    def figures(self, *, overall: bool = False, parts: bool = False) -> list[FigureOut]:
        """Each student's mean, or strength by comparisons, in each task, and ``overall`` (task "") too; or
        each metric of a benchmark. ``parts``: also its mean by factor and by judge."""
        judges, recipes = self._judges(), self._recipes()
        found = [*_figures(read_results(self._reader, self.notes), judges)]
        found += _parts(self._reader, judges) if parts else ()
        return [
            each._replace(
                recipes=tuple(recipes.get((each.task, each.model, judge), "") for judge in each.judges)
            )
            for each in (*found, *_strengths(self._reader))
            if each.task or overall
        ]

    def answers(self) -> Iterator[AnswerOut]:
        """All answers, by task and item; labels that match and comparisons are scores too.

        Raises UsageError: nothing is scored yet.
        """
        scores: defaultdict[_Place, list[GivenScore]] = defaultdict(list)
        for task, item, sample, model, *score in self._reader.rows(
            "SELECT task, item, sample, model, judge, metric, CASE WHEN NOT failed THEN value END "
            "FROM scores ORDER BY ALL"
        ):
            scores[task, item, sample, model].append(GivenScore(*score))
        for place, given in _of_run(self._reader):
            scores[place].append(given)
        if not scores:
            raise UsageError(f"{self._reader.folder} has no scores yet")
        items = self._reader.items()
        for task, item in self._reader.rows("SELECT DISTINCT task, item FROM items ORDER BY ALL"):
            if (detail := items.read_item(item, task)) is None:
                continue
            for answer in detail.answers:
                yield AnswerOut(
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

    def parameters(self) -> dict[str, str]:
        """Say by name what the figures come from: who answered, judged and was asked what, how often, and
        with which sampling; ``items`` is a hash of them."""
        texts = self._reader.rows("SELECT task, item, content::VARCHAR FROM contents ORDER BY ALL")
        found = {"coeval_version": __version__, "items": digest(canonical_json(texts))}
        for name, column in _PARAMETERS.items():
            values = self._reader.rows(f"SELECT DISTINCT {column} AS part FROM scores ORDER BY part")  # noqa: S608
            found[name] = ", ".join(str(value) for (value,) in values if value is not None)
        found["samples"] = found["samples"].rpartition(", ")[2]
        sent: defaultdict[str, dict[str, None]] = defaultdict(dict)
        for parts in _setups(self._reader):
            for key, value in parts.items():
                name = key.removeprefix("parameters.").partition(" (")[0]  # "temperature (student)"
                if key.startswith("parameters.") and name != "model":
                    sent[name][value] = None
        found |= {name: ", ".join(sorted(values)) for name, values in sent.items()}
        return {name: value for name, value in found.items() if value}

    def judged_by(self) -> dict[str, str]:
        """The recipe of each judge in each task: another one gives other scores."""
        found: defaultdict[str, set[str]] = defaultdict(set)
        for (task, _, judge), recipe in self._recipes().items():
            found[f"{task}/{judge}"] |= {recipe} if task else set()
        return {place: ",".join(sorted(recipes)) for place, recipes in found.items() if recipes}

    def _recipes(self) -> dict[tuple[str, str, str], str]:
        """The recipes of each judge of a model in a task, and in all (task "")."""
        texts = _recipe_texts(self._reader)
        found: defaultdict[tuple[str, str, str], set[str]] = defaultdict(set)
        for task, model, judge, method in self._reader.rows("SELECT task, model, judge, method FROM methods"):
            for of in (task, ""):
                found[of, model, judge].add(texts.get(method, ""))
        return {place: ",".join(sorted(filter(None, recipes))) for place, recipes in found.items()}

    def _judges(self) -> dict[tuple[str, str], tuple[str, ...]]:
        """The judges of a model in a task, and in all (task "")."""
        found: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        for task, model, judge in self._reader.rows(
            "SELECT DISTINCT task, model, judge FROM scores WHERE judge IS NOT NULL"
        ):
            for of in (task, ""):
                found[of, model].add(judge)
        return {place: tuple(sorted(judges)) for place, judges in found.items()}


@contextmanager
def export_of(folder: Path) -> Iterator[Export]:
    """Open a folder. Raises UsageError: it holds no results; StoreError: a file cannot be read."""
    with open_folder_reader(require_results(folder), is_look=True) as (reader, notes):
        yield Export(reader, tuple(notes))


def folders_to_export(folder: Path) -> dict[str, Path]:
    """The folder itself under the name "", or each checkpoint of a sweep under its own."""
    if is_sweep(folder):
        return {step.name: step for step in list_sweep_steps(folder) or sorted(folder.glob("step_*/"))}
    return {"": folder}


@singledispatch
def _parts(reader: Reader, judges: Mapping[tuple[str, str], tuple[str, ...]]) -> Iterator[FigureOut]:  # noqa: ARG001
    """A student's means by factor and by judge, which only runs have."""
    yield from ()


@_parts.register
def _(reader: RunReader, judges: Mapping[tuple[str, str], tuple[str, ...]]) -> Iterator[FigureOut]:
    made_of: tuple[By, By] = ("factor", "judge")
    for part in (part for by in made_of for part in break_down_scores(reader, by).scores):
        of = (part.part,) if part.by == "judge" else judges.get((part.task or "", part.student), ())
        yield _share(part.task, f"{part.by} {part.part}", part.score, part, of)


def _share(
    task: str | None,
    metric: str,
    value: float | None,
    of: MeasureRow,
    judges: tuple[str, ...] = (),
) -> FigureOut:
    counts = (of.n, of.get("failed"), of.missing, "share", judges)
    return FigureOut(task or "", of.student, metric, value, of.low, of.high, None, *counts)


@singledispatch
def _of_run(reader: Reader) -> Iterator[tuple[_Place, GivenScore]]:  # noqa: ARG001
    """What only runs have: labels that match, and comparisons, each as a score of both its answers."""
    yield from ()


@_of_run.register
def _(reader: RunReader) -> Iterator[tuple[_Place, GivenScore]]:
    for *place, attribute, match in reader.rows(
        "SELECT task, item, sample, model, attribute, match FROM labels ORDER BY ALL"
    ):
        task, item, sample, model = place
        yield (
            (task, item, sample, model),
            GivenScore(None, f"label {attribute}", None if match is None else float(match)),
        )
    for pair in read_planned_pairs(reader):
        part = pair.part
        students = part.first_model_id, part.second_model_id
        for student, other, shown in zip(students, students[::-1], ("first", "second"), strict=True):
            given = GivenScore(
                part.judge_model_id, f"against {other}, shown {shown}", pair.win_share(student)
            )
            yield (part.task_id, part.datapoint_id, 0, student), given


_PARAMETERS = {"models": "model", "judges": "judge", "tasks": "task", "samples": "sample + 1"}
"""What to read of the scores, by the name of the parameter."""


@singledispatch
def _setups(reader: Reader) -> list[dict[str, str]]:  # noqa: ARG001
    """The settings of all models, as the recipes of a run have them."""
    return []


@_setups.register
def _(reader: RunReader) -> list[dict[str, str]]:
    return list(read_recipes(reader.run).values())


@singledispatch
def _recipe_texts(reader: Reader) -> dict[int, str]:
    """The recipes of judges by the hash that the readers keep of them."""
    return dict(reader.rows("SELECT DISTINCT hash(judged_by), judged_by FROM place"))


@_recipe_texts.register
def _(reader: RunReader) -> dict[int, str]:
    lines = "SELECT DISTINCT hash(recipe), recipe FROM {lines} WHERE recipe IS NOT NULL"
    return dict(reader.query_lines("evaluation", {"recipe": "VARCHAR"}, lines))


@singledispatch
def _strengths(reader: Reader) -> Iterator[FigureOut]:  # noqa: ARG001
    """What they come to for each student."""
    yield from ()


@_strengths.register
def _(reader: RunReader) -> Iterator[FigureOut]:
    if (measured := compute_pair_measures(read_pair_comparisons(reader))) is None:
        return
    found: defaultdict[tuple[str, str], list[PlannedPair]] = defaultdict(list)
    for pair in read_planned_pairs(reader):
        for student in (pair.part.first_model_id, pair.part.second_model_id):
            found[pair.part.task_id, student].append(pair)
            found["", student].append(pair)
    tasks = sorted({task for task, _ in found if task})
    for name, compared in measured.students.items():
        by_task = compared.by_task or dict.fromkeys(tasks, compared.strength)
        for task, strength in {"": compared.strength, **by_task}.items():
            pairs = found[task, name]
            yield FigureOut(
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


def _figures(found: Results, judges: dict[tuple[str, str], tuple[str, ...]]) -> Iterator[FigureOut]:
    for score in (score for score in found.students if not score.removed):
        by = judges.get((score.task or "", score.student), ())
        yield _share(score.task, "score", score.score, score, by)
    for label in (label for label in found.labels if not label.removed):
        yield _share(label.task, f"accuracy of {label.attribute}", label.accuracy, label)
    for metric in found.metrics:
        same: dict[str, Any] = {name: getattr(metric, name, None) for name in FigureOut._fields[:-1]}
        yield FigureOut(**same | {"judges": judges.get((metric.task, metric.model), ())})


# --- Tables

_ANSWER = tuple(name for name in AnswerOut._fields if name not in ("attributes", "scores"))
_TYPES = {
    "sample": "INTEGER",
    "input_tokens": "BIGINT",
    "output_tokens": "BIGINT",
    "n": "BIGINT",
    "failed": "BIGINT",
    "missing": "BIGINT",
}
_NUMBERS = ("cost_usd", "latency_s", "value", "low", "high", "standard_error")


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


def _figures_out(found: Export) -> Iterator[tuple[Any, ...]]:
    for figure in found.figures(overall=True, parts=True):
        yield tuple(", ".join(filter(None, cell)) if isinstance(cell, tuple) else cell for cell in figure)


def _write_tables(found: Export, out: Path, suffix: str) -> list[Path]:
    """Write tables of scores and figures; an empty cell of CSV is a missing value."""
    tables = {"scores": _scores(found), "figures": (FigureOut._fields, list(_figures_out(found)))}
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
    "csv": partial(_write_tables, suffix="csv"),
    "parquet": partial(_write_tables, suffix="parquet"),
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
