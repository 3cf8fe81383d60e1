"""What an export holds, read once for all formats: each answer with its scores, and the figures."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import singledispatch
from pathlib import Path
from typing import NamedTuple, TypeAlias

from coeval import __version__
from coeval.analysis.breakdown import By, breakdown
from coeval.analysis.measures.pair_measures import (
    KeptPair,
    kept_pairs,
    measured_pairs,
    read_comparisons,
)
from coeval.analysis.readers.reader import Reader
from coeval.analysis.readers.run_reader import RunReader
from coeval.core.errors import UsageError
from coeval.core.html_table import MeasureRow
from coeval.core.records import item_prefix
from coeval.core.text import canonical, digest
from coeval.pipeline.plan.count_plan import known_recipes
from coeval.pipeline.plan.run_reading import opened
from coeval.reports.items.item_rows import make_item_tables
from coeval.reports.result_tables import Results
from coeval.reports.scores import results
from coeval.store.output_folder import existing_results, is_sweep, sweep_steps

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
    settings and prompt for each of them, or several with commas; ``failed`` counts those that are
    missing; ``unit`` is ``share`` (0 to 1), ``percent`` or ``points`` (1 to 10)."""

    task: str
    model: str
    metric: str
    value: float | None
    low: float | None
    high: float | None
    standard_error: float | None
    n: int
    failed: int
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
        found = [*_figures(results(self._reader, self.notes), judges)]
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
            if (detail := items.detail(item, task)) is None:
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
        found = {"coeval_version": __version__, "items": digest(canonical(texts))}
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
    with opened(existing_results(folder), shown=True) as (reader, notes):
        yield Export(reader, tuple(notes))


def folders_to_export(folder: Path) -> dict[str, Path]:
    """The folder itself under the name "", or each checkpoint of a sweep under its own."""
    if is_sweep(folder):
        return {step.name: step for step in sweep_steps(folder) or sorted(folder.glob("step_*/"))}
    return {"": folder}


@singledispatch
def _parts(reader: Reader, judges: Mapping[tuple[str, str], tuple[str, ...]]) -> Iterator[FigureOut]:  # noqa: ARG001
    """A student's means by factor and by judge, which only runs have."""
    yield from ()


@_parts.register
def _(reader: RunReader, judges: Mapping[tuple[str, str], tuple[str, ...]]) -> Iterator[FigureOut]:
    made_of: tuple[By, By] = ("factor", "judge")
    for part in (part for by in made_of for part in breakdown(reader, by).scores):
        of = (part.part,) if part.by == "judge" else judges.get((part.task or "", part.student), ())
        yield _share(
            part.task, f"{part.by} {part.part}", part.score, MeasureRow(part, failed=part.missing), of
        )


def _share(
    task: str | None,
    metric: str,
    value: float | None,
    of: MeasureRow,
    judges: tuple[str, ...] = (),
) -> FigureOut:
    counts = (of.n, of.failed, "share", judges)
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
    for pair in kept_pairs(reader):
        part = pair.part
        students = part.first_model_id, part.second_model_id
        for student, other, shown in zip(students, students[::-1], ("first", "second"), strict=True):
            given = GivenScore(part.judge_model_id, f"against {other}, shown {shown}", pair.won(student))
            yield (part.task_id, part.datapoint_id, 0, student), given


_PARAMETERS = {"models": "model", "judges": "judge", "tasks": "task", "samples": "sample + 1"}
"""What to read of the scores, by the name of the parameter."""


@singledispatch
def _setups(reader: Reader) -> list[dict[str, str]]:  # noqa: ARG001
    """The settings of all models, as the recipes of a run have them."""
    return []


@_setups.register
def _(reader: RunReader) -> list[dict[str, str]]:
    return list(known_recipes(reader.run).values())


@singledispatch
def _recipe_texts(reader: Reader) -> dict[int, str]:
    """The recipes of judges by the hash that the readers keep of them."""
    return dict(reader.rows("SELECT DISTINCT hash(judged_by), judged_by FROM place"))


@_recipe_texts.register
def _(reader: RunReader) -> dict[int, str]:
    lines = "SELECT DISTINCT hash(recipe), recipe FROM {lines} WHERE recipe IS NOT NULL"
    return dict(reader.of_lines("evaluation", {"recipe": "VARCHAR"}, lines))


@singledispatch
def _strengths(reader: Reader) -> Iterator[FigureOut]:  # noqa: ARG001
    """What they come to for each student."""
    yield from ()


@_strengths.register
def _(reader: RunReader) -> Iterator[FigureOut]:
    if (measured := measured_pairs(read_comparisons(reader))) is None:
        return
    found: defaultdict[tuple[str, str], list[KeptPair]] = defaultdict(list)
    for pair in kept_pairs(reader):
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
        yield FigureOut(
            task=metric.task,
            model=metric.model,
            metric=metric.metric,
            value=metric.value,
            low=metric.low,
            high=metric.high,
            standard_error=metric.standard_error,
            n=metric.n,
            failed=metric.failed,
            unit=metric.unit,
            judges=judges.get((metric.task, metric.model), ()),
        )
