"""The quality of the benchmark itself: of each task, and of each of its items."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, product
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeAlias

import duckdb
import msgspec
import numpy as np
from numpy.typing import NDArray

from coeval.analysis.intervals import Floats
from coeval.analysis.measures.measure_tree import FILES, Entity, Measured, ShownAs
from coeval.analysis.measures.near_duplicates import Resemblance, mean_prompt_similarity
from coeval.analysis.measures.score_grid import ScoreGrid
from coeval.analysis.measures.student_measures import sum_student_item_scores
from coeval.analysis.measures.value_grid import read_label_grid
from coeval.analysis.readers.reader import Twin
from coeval.analysis.readers.run_reader import RunReader
from coeval.core.errors import StoreError, UsageError
from coeval.store.jsonl import read_json, store_error, write_json_atomic, write_lines

_DIFFICULTY = "1 − the mean score over students; with labels alone, 1 − the share of right labels"
_WITH_SCORE = "With a score of any student"


class TaskCoverage(Entity, frozen=True):
    """The items of a task: how much of the declared space they cover, and how well they separate students."""

    acr: Annotated[
        Measured, ShownAs("Declared values that occur, of all declared", "Values covered", "acr", "share")
    ]
    rar: Annotated[
        Measured,
        ShownAs("Of values that occur at most twice, those that occur at all", "Rare values", "rar", "share"),
    ]
    pairwise_acr: Annotated[
        Measured, ShownAs("Values covered, of pairs of two attributes' values", "Pairs covered", kind="share")
    ]
    pairwise_rar: Annotated[
        Measured, ShownAs("Rare values, of pairs likewise", kind="share", elsewhere=FILES)
    ]
    absent: Annotated[tuple[str, ...], ShownAs("Declared values that do not occur", elsewhere="strata")]
    surface_bias: Annotated[
        Measured,
        ShownAs("Mean Jaccard similarity of two prompts' 3-grams", "Prompts alike", "likeness", "share"),
    ]
    pairs: Annotated[int, ShownAs("Pairs of prompts compared", elsewhere=FILES)]
    difficulty: Annotated[Measured, ShownAs(_DIFFICULTY, "Difficulty", "difficulty")]
    discrimination: Annotated[
        Measured, ShownAs("Mean item–rest correlation", "Discrimination", "discrimination", "coefficient")
    ]
    all_pass: Annotated[int, ShownAs("Items on which all get the top score", "All pass", kind="count")]
    all_fail: Annotated[int, ShownAs("Items on which all score 0", "All fail", kind="count")]
    reversed: Annotated[int, ShownAs("Items whose discrimination is below 0", "Reversed", kind="count")]
    near_duplicates: Annotated[
        int, ShownAs("Near duplicates of an earlier item", "Near duplicates", kind="count")
    ]
    scored: Annotated[int, ShownAs(_WITH_SCORE, elsewhere="benchmark")]


class ItemMeasures(Entity, frozen=True):
    """Measures of one item; ``students`` have a score of it."""

    task: Annotated[str, ShownAs("Its task", "Task", kind="text")]
    teacher: Annotated[str, ShownAs("Who wrote it", "Teacher", kind="text")]
    difficulty: Annotated[float | None, ShownAs(_DIFFICULTY, "Difficulty", "difficulty")]
    discrimination: Annotated[
        float | None, ShownAs("Item–rest correlation", "Discrimination", "discrimination", "coefficient")
    ]
    students: Annotated[int, ShownAs("Who have a score of it", "Students", "students", "count")]
    all_pass: Annotated[bool, ShownAs("All get the top score", elsewhere="items-shown")]
    all_fail: Annotated[bool, ShownAs("All score 0", elsewhere="items-shown")]
    near_duplicate_of: Annotated[
        str | None, ShownAs("Earlier item that it nearly repeats", elsewhere="items-shown")
    ]

    @property
    def is_reversed(self) -> bool:
        """Check whether stronger students score lower on it."""
        return self.discrimination is not None and self.discrimination < 0


class BenchmarkMeasures(NamedTuple):
    """Measures by task, and by item."""

    coverage: dict[str, TaskCoverage]
    items: dict[str, ItemMeasures]


# --- Coverage of the declared attributes

Space: TypeAlias = Mapping[str, Sequence[str]]
"""Attribute → its declared values."""

Stratum: TypeAlias = tuple[str, ...]
"""``attribute=value``, or two of them in order."""


class Coverage(NamedTuple):
    """How much of the declared space occurs, over strata (``attribute=value``); None where nothing is
    declared. ``acr`` = declared strata that occur / all; ``rar`` = those that occur once or twice / those
    that occur at most twice. The same over pairs of two attributes' values. ``absent``: strata that do not
    occur."""

    acr: float | None
    rar: float | None
    pairwise_acr: float | None
    pairwise_rar: float | None
    absent: tuple[str, ...]


# RAR counts values that occur once or twice, as its definition does.
_RARE = 2


def measure_attribute_coverage(declared: Space, sampled: Iterable[Sequence[str]]) -> Coverage:
    """Measure which declared strata occur. ``sampled``: the strata of each item; undeclared ones do not
    count. Names and values may contain ``=``, so strata are compared whole, never split."""
    single: Counter[Stratum] = Counter()
    double: Counter[Stratum] = Counter()
    for strata_of in sampled:
        single.update((stratum,) for stratum in strata_of)
        double.update(combinations(sorted(strata_of), 2))
    by_name = {name: [f"{name}={value}" for value in dict.fromkeys(declared[name])] for name in declared}
    strata = [(stratum,) for own in by_name.values() for stratum in own]
    pairs = [
        (min(a, b), max(a, b))
        for first, second in combinations(sorted(declared), 2)
        for a, b in product(by_name[first], by_name[second])
    ]
    absent = tuple(stratum[0] for stratum in strata if not single[stratum])
    return Coverage(
        *_plain_and_rare_coverage(strata, single), *_plain_and_rare_coverage(pairs, double), absent
    )


def _plain_and_rare_coverage(
    declared: Sequence[Stratum], counts_by_stratum: Counter[Stratum]
) -> tuple[float | None, float | None]:
    counts = [counts_by_stratum[stratum] for stratum in declared]
    if not counts:
        return None, None
    scarce = [count for count in counts if count <= _RARE]
    rare = sum(1 for count in scarce if count)
    return sum(1 for count in counts if count) / len(counts), rare / len(scarce) if scarce else None


# --- Item difficulty and discrimination

# A correlation over fewer is no more than the sign of one difference.
FEWEST_STUDENTS = 3


class ItemQuality(NamedTuple):
    """Measures of a task's items, (I,), NaN if undefined: ``difficulty`` = 1 − the mean over students; the
    item–rest correlation (``discrimination``); how many ``students`` have a score; whether all pass, or
    fail."""

    difficulty: Floats
    discrimination: Floats
    students: NDArray[np.int64]
    all_pass: NDArray[np.bool_]
    all_fail: NDArray[np.bool_]


def measure_item_quality(scores: Floats) -> ItemQuality:
    """Measure each item of a task from ``scores``, (S, I), 0 to 1, NaN where a student has none.

    The discrimination of an item is Pearson's correlation, over students, of their score on it with their
    mean over the task's other items (the corrected item–total correlation; Henrysson 1963). It is
    undefined with fewer than `FEWEST_STUDENTS`, or where all scores are the same.
    """
    has_score = np.isfinite(scores)
    filled = np.where(has_score, scores, 0.0)
    students = has_score.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = filled.sum(axis=0) / students
        others = has_score.sum(axis=1, keepdims=True) - has_score
        rest = (filled.sum(axis=1, keepdims=True) - filled) / others
        discrimination = _pearson_by_column(filled, np.where(others > 0, rest, 0.0), has_score & (others > 0))
    return ItemQuality(
        difficulty=1 - mean,
        discrimination=discrimination,
        students=students,
        all_pass=(students > 0) & (np.where(has_score, scores, 1.0) >= 1).all(axis=0),
        all_fail=(students > 0) & (np.where(has_score, scores, 0.0) <= 0).all(axis=0),
    )


def _pearson_by_column(x: Floats, y: Floats, is_known: NDArray[np.bool_]) -> Floats:
    """Compute Pearson's correlation down each column, over the known rows."""
    n = is_known.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        dx = np.where(is_known, x - np.where(is_known, x, 0.0).sum(axis=0) / n, 0.0)
        dy = np.where(is_known, y - np.where(is_known, y, 0.0).sum(axis=0) / n, 0.0)
        spread = np.sqrt((dx**2).sum(axis=0) * (dy**2).sum(axis=0))
        correlation = (dx * dy).sum(axis=0) / spread
    return np.where((n >= FEWEST_STUDENTS) & (spread > 1e-12), correlation, np.nan)


def measure_benchmark(reader: RunReader, grid: ScoreGrid) -> BenchmarkMeasures:
    """Measure the items of a run: coverage, difficulty, discrimination and near duplicates."""
    texts = reader.read_texts(grid.items.ids)
    prompts = [texts[item].prompt or "" if item in texts else "" for item in grid.items.ids]
    scores = _replace_scores_of_label_only_tasks(reader, grid, sum_student_item_scores(grid).mean)
    strata = _attribute_values_by_item(grid)
    coverage: dict[str, TaskCoverage] = {}
    items: dict[str, ItemMeasures] = {}
    for code, task in enumerate(grid.tasks):
        task_items = np.flatnonzero(grid.items.task == code)
        task_prompts = [prompts[item] for item in task_items]
        twins = [reader.twins.get(grid.items.ids[item]) for item in task_items.tolist()]
        quality = measure_item_quality(scores[:, task_items])
        covered = measure_attribute_coverage(
            reader.target_attributes(task), [strata[item] for item in task_items]
        )
        coverage[task] = _task_coverage(covered, mean_prompt_similarity(task_prompts), quality, twins)
        items |= _item_measures(grid, task_items, quality, twins)
    return BenchmarkMeasures(coverage, items)


def _replace_scores_of_label_only_tasks(reader: RunReader, grid: ScoreGrid, judged_scores: Floats) -> Floats:
    """Return the scores, (S, I), replaced by the share of right labels in tasks that have labels alone."""
    scored = np.unique(grid.items.task[np.isfinite(judged_scores).any(axis=0)])
    right = sum_student_item_scores(read_label_grid(reader, grid)).mean
    return np.where(np.isin(grid.items.task, scored), judged_scores, right)


def _attribute_values_by_item(grid: ScoreGrid) -> list[list[str]]:
    """Return the ``attribute=value`` strata of each item."""
    sampled: list[list[str]] = [[] for _ in grid.items.ids]
    for stratum, items in grid.items.attributes.items():
        for item in items.tolist():
            sampled[item].append(stratum)
    return sampled


def _task_coverage(
    covered: Coverage, alike: Resemblance, quality: ItemQuality, twins: Sequence[Twin | None]
) -> TaskCoverage:
    """Combine coverage, likeness and item quality into one task's measures."""
    items = len(twins)

    def mean_of_defined(values: Floats) -> Measured:
        defined = values[np.isfinite(values)]
        value = float(defined.mean()) if len(defined) else None
        return Measured(value, None, None, len(defined), len(values) - len(defined))

    def ratio(value: float | None) -> Measured:
        return Measured(value, None, None, items, 0)

    return TaskCoverage(
        acr=ratio(covered.acr),
        rar=ratio(covered.rar),
        pairwise_acr=ratio(covered.pairwise_acr),
        pairwise_rar=ratio(covered.pairwise_rar),
        absent=covered.absent,
        surface_bias=ratio(alike.mean),
        pairs=alike.pairs,
        difficulty=mean_of_defined(quality.difficulty),
        discrimination=mean_of_defined(quality.discrimination),
        all_pass=int(quality.all_pass.sum()),
        all_fail=int(quality.all_fail.sum()),
        reversed=int((quality.discrimination < 0).sum()),
        near_duplicates=sum(twin is not None for twin in twins),
        scored=int((quality.students > 0).sum()),
    )


def _item_measures(
    grid: ScoreGrid, task_items: NDArray[np.int64], quality: ItemQuality, twins: Sequence[Twin | None]
) -> dict[str, ItemMeasures]:
    """Combine what is known of a task's items; ``task_items`` are their numbers in the grid."""
    return {
        grid.items.ids[item]: ItemMeasures(
            task=grid.tasks[grid.items.task[item]],
            teacher=grid.teachers[grid.items.teacher[item]],
            difficulty=_none_if_nan(quality.difficulty[at]),
            discrimination=_none_if_nan(quality.discrimination[at]),
            students=int(quality.students[at]),
            all_pass=bool(quality.all_pass[at]),
            all_fail=bool(quality.all_fail[at]),
            near_duplicate_of=None if (twin := twins[at]) is None else twin.of,
        )
        for at, item in enumerate(task_items.tolist())
    }


def _none_if_nan(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


# --- A run's datapoints as a data set of its own, and where all of it comes from, with hashes

PROVENANCE = "provenance.json"


class ExportedFile(msgspec.Struct, frozen=True):
    """A file of an exported data set: ``path`` within its folder, and ``rows`` of a task."""

    path: str
    task: str
    rows: int
    sha256: str


class ExportedBenchmark(msgspec.Struct, frozen=True):
    """An exported data set, as ``provenance.json`` has it. ``sources``: the run's ``sources.json``.
    ``simulated``: simulated models took part; ``simulated_teachers`` wrote items."""

    experiment: str
    created_at: str
    coeval_version: str
    simulated: bool
    teachers: tuple[str, ...]
    files: tuple[ExportedFile, ...]
    sources: Any = None
    simulated_teachers: tuple[str, ...] = ()


def export_benchmark(reader: RunReader, measures: Mapping[str, ItemMeasures], out: Path) -> ExportedBenchmark:
    """Write the good items that count in a run into a new folder, with their ``measures``. Raises UsageError:
    the folder is not empty, or there is no item; StoreError: a file cannot be read or written."""
    if not measures:
        raise UsageError(f"{reader.run.path} holds no datapoints; there is nothing to export")
    try:
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise UsageError(f"{out} already exists; name a new folder for the data set")
        (out / "data").mkdir(parents=True, exist_ok=True)
        (out / "jsonl").mkdir(exist_ok=True)
    except OSError as error:
        raise store_error("write", out, error) from error
    rows = _build_item_rows_by_task(reader, measures)
    files: list[ExportedFile] = []
    for task, of_task in rows.items():
        lines = out / "jsonl" / f"{task}.jsonl"
        parquet = out / "data" / f"{task}.parquet"
        write_lines(lines, of_task)
        _write_parquet(lines, parquet, list(of_task[0]))
        for path in (lines, parquet):
            relative = path.relative_to(out).as_posix()
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            files.append(ExportedFile(relative, task, len(of_task), digest))
    exported = _describe_export(reader, rows, files)
    write_json_atomic(out / PROVENANCE, exported)
    return exported


def _build_item_rows_by_task(
    reader: RunReader, measures_by_item: Mapping[str, ItemMeasures]
) -> dict[str, list[dict[str, Any]]]:
    """Build each task's rows with the same columns: every attribute has one, named ``attribute_NAME``."""
    texts = reader.read_texts(measures_by_item)
    attributes = {
        item: values or {}
        for item, values in reader.rows("SELECT item, attributes FROM items WHERE NOT failed")
    }
    names: dict[str, dict[str, None]] = {}
    for item, measures in measures_by_item.items():
        names.setdefault(measures.task, {}).update(dict.fromkeys(sorted(attributes.get(item, {}))))
    rows: dict[str, list[dict[str, Any]]] = {}
    for item, measures in sorted(measures_by_item.items()):
        if item not in texts:
            continue
        task, text = measures.task, texts[item]
        rows.setdefault(task, []).append(
            {
                "id": item,
                "task": task,
                "teacher": measures.teacher,
                "prompt": text.prompt,
                "reference_response": text.reference_response,
                **{f"attribute_{name}": attributes[item].get(name) for name in names[task]},
                "difficulty": measures.difficulty,
                "discrimination": measures.discrimination,
                "near_duplicate_of": measures.near_duplicate_of,
            }
        )
    return rows


_NUMBERS = ("difficulty", "discrimination")


def _write_parquet(lines: Path, parquet: Path, columns: Sequence[str]) -> None:
    kinds = {name: "DOUBLE" if name in _NUMBERS else "VARCHAR" for name in columns}
    with duckdb.connect(":memory:") as db:
        try:
            rows = db.read_json(
                str(lines), format="newline_delimited", columns=kinds, maximum_object_size=1 << 28
            )
            rows.write_parquet(str(parquet))
        except duckdb.Error as error:
            raise StoreError(f"cannot write {parquet}: {error}") from error


def _describe_export(
    reader: RunReader, rows: Mapping[str, Sequence[Mapping[str, Any]]], files: Sequence[ExportedFile]
) -> ExportedBenchmark:
    """Describe the exported data set: where its items come from, and the hashes of its files."""
    unnamed = {"experiment_id": reader.run.path.resolve().name}
    meta = read_json(reader.run.meta, dict[str, Any], missing=unnamed)
    teachers = tuple(sorted({row["teacher"] for of_task in rows.values() for row in of_task}))
    planned = reader.planned
    return ExportedBenchmark(
        experiment=str(meta.get("experiment_id", "")),
        created_at=str(meta.get("created_at", "")),
        coeval_version=str(meta.get("coeval_version", "")),
        simulated=reader.simulated,
        teachers=teachers,
        simulated_teachers=tuple(
            name for name in teachers if reader.simulated and (planned is None or name in planned.simulated)
        ),
        files=tuple(files),
        sources=_strip_folders(read_json(reader.run.sources)) if reader.run.sources.exists() else None,
    )


def _strip_folders(sources: Any) -> Any:
    """Strip the folders of this machine from file paths, keeping names."""
    match sources:
        case dict():
            return {
                key: Path(value).name
                if isinstance(value, str) and (key == "path" or Path(value).is_absolute())
                else _strip_folders(value)
                for key, value in sources.items()
            }
        case list():
            return [_strip_folders(entry) for entry in sources]
        case _:
            return sources
