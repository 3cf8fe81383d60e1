"""The quality of the benchmark itself: of each task, and of each of its datapoints."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
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
from coeval.analysis.measures.student_measures import sum_item_scores
from coeval.analysis.measures.value_grid import read_label_grid
from coeval.analysis.readers.reader import Twin
from coeval.analysis.readers.run_reader import RunReader
from coeval.core.errors import StoreError, UsageError
from coeval.store.jsonl import read_json, store_error, write_bytes_atomic

_DIFFICULTY = "1 less the mean score over students; with labels alone, less the share of right labels"
_WITH_SCORE = "With a score of any student"


class TaskCoverage(Entity, frozen=True):
    """The items of a task: how much of the declared space they cover, and what they tell of students."""

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
    pairs: Annotated[int, ShownAs("Pairs of prompts that were held against each other", elsewhere=FILES)]
    difficulty: Annotated[Measured, ShownAs(_DIFFICULTY, "Difficulty", "difficulty", "points")]
    discrimination: Annotated[
        Measured, ShownAs("Mean item–rest correlation", "Discrimination", "discrimination", "coefficient")
    ]
    all_pass: Annotated[int, ShownAs("Items on which all have full marks", "All pass", kind="count")]
    all_fail: Annotated[int, ShownAs("Items on which nobody has any", "All fail", kind="count")]
    reversed: Annotated[int, ShownAs("Items whose discrimination is below 0", "Reversed", kind="count")]
    near_duplicates: Annotated[
        int, ShownAs("Items that nearly repeat an earlier one", "Near duplicates", kind="count")
    ]
    scored: Annotated[int, ShownAs(_WITH_SCORE, elsewhere="benchmark")]


class ItemMeasures(Entity, frozen=True):
    """One datapoint; ``students`` have a score of it."""

    task: Annotated[str, ShownAs("Its task", "Task", kind="text")]
    teacher: Annotated[str, ShownAs("Who wrote it", "Teacher", kind="text")]
    difficulty: Annotated[float | None, ShownAs(_DIFFICULTY, "Difficulty", "difficulty", "points")]
    discrimination: Annotated[
        float | None, ShownAs("Item–rest correlation", "Discrimination", "discrimination", "coefficient")
    ]
    students: Annotated[int, ShownAs("Who have a score of it", "Students", "students", "count")]
    all_pass: Annotated[bool, ShownAs("All have full marks", elsewhere="items-shown")]
    all_fail: Annotated[bool, ShownAs("Nobody has any", elsewhere="items-shown")]
    near_duplicate_of: Annotated[
        str | None, ShownAs("An earlier one that it nearly repeats", elsewhere="items-shown")
    ]

    @property
    def is_reversed(self) -> bool:
        """Whether better students do worse on it."""
        return self.discrimination is not None and self.discrimination < 0


class BenchmarkMeasures(NamedTuple):
    """By task, and by datapoint."""

    coverage: dict[str, TaskCoverage]
    items: dict[str, ItemMeasures]


# --- Coverage of the declared attributes

Space: TypeAlias = Mapping[str, Sequence[str]]
"""Attribute → its declared values."""

Stratum: TypeAlias = tuple[str, ...]
"""``attribute=value``, or two of them in order."""


class Coverage(NamedTuple):
    """Over strata, that is ``attribute=value``: ``acr`` = those declared that occur / all declared; ``rar`` =
    those declared that occur once or twice / those that occur at most twice (None where there are none). The
    same over pairs of values of two attributes. None where nothing is declared. ``absent``: the strata that
    do not occur."""

    acr: float | None
    rar: float | None
    pairwise_acr: float | None
    pairwise_rar: float | None
    absent: tuple[str, ...]


# RAR counts values that occur once or twice, as its definition does.
_RARE = 2


def measure_attribute_coverage(declared: Space, sampled: Iterable[Sequence[str]]) -> Coverage:
    """``sampled``: the strata of each datapoint, ``attribute=value``; what is not declared does not count.
    Either may hold a ``=`` of its own: strata are compared as they stand, and never taken apart."""
    single: Counter[Stratum] = Counter()
    double: Counter[Stratum] = Counter()
    for strata_of in sampled:
        single.update((stratum,) for stratum in strata_of)
        double.update(combinations(sorted(strata_of), 2))
    strata: list[Stratum] = [
        (f"{name}={value}",) for name, values in declared.items() for value in dict.fromkeys(values)
    ]
    pairs: list[Stratum] = [
        (min(a, b), max(a, b))
        for one, other in combinations(sorted(declared), 2)
        for a in (f"{one}={value}" for value in dict.fromkeys(declared[one]))
        for b in (f"{other}={value}" for value in dict.fromkeys(declared[other]))
    ]
    absent = tuple(stratum[0] for stratum in strata if not single[stratum])
    return Coverage(*_coverage_ratios(strata, single), *_coverage_ratios(pairs, double), absent)


def _coverage_ratios(
    declared: Sequence[Stratum], found: Counter[Stratum]
) -> tuple[float | None, float | None]:
    counts = [found[stratum] for stratum in declared]
    if not counts:
        return None, None
    scarce = [count for count in counts if count <= _RARE]
    rare = sum(1 for count in scarce if count)
    return sum(1 for count in counts if count) / len(counts), rare / len(scarce) if scarce else None


# --- Item difficulty and discrimination

# A correlation over fewer is no more than the sign of one difference.
FEWEST_STUDENTS = 3


class ItemQuality(NamedTuple):
    """Of each datapoint of a task, (I,): ``difficulty`` = 1 − the mean over students; ``discrimination``, the
    item–rest correlation; ``students`` who have a score; whether all of them have full marks, or none. NaN
    where a measure is not defined."""

    difficulty: Floats
    discrimination: Floats
    students: NDArray[np.int64]
    all_pass: NDArray[np.bool_]
    all_fail: NDArray[np.bool_]


def measure_item_quality(scores: Floats) -> ItemQuality:
    """``scores``: (S, I) of one task, 0 to 1, NaN where a student has none.

    The discrimination of an item is Pearson's correlation, over students, of their score on it with their
    mean over the task's other items (the corrected item–total correlation; Henrysson 1963). It is not
    defined with fewer than `FEWEST_STUDENTS`, or where all scores are the same.
    """
    known = np.isfinite(scores)
    filled = np.where(known, scores, 0.0)
    students = known.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = filled.sum(axis=0) / students
        others = known.sum(axis=1, keepdims=True) - known
        rest = (filled.sum(axis=1, keepdims=True) - filled) / others
        found = _pearson_by_column(filled, np.where(others > 0, rest, 0.0), known & (others > 0))
    return ItemQuality(
        difficulty=1 - mean,
        discrimination=found,
        students=students,
        all_pass=(students > 0) & (np.where(known, scores, 1.0) >= 1).all(axis=0),
        all_fail=(students > 0) & (np.where(known, scores, 0.0) <= 0).all(axis=0),
    )


def _pearson_by_column(x: Floats, y: Floats, known: NDArray[np.bool_]) -> Floats:
    """Pearson's, down each column."""
    n = known.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        dx = np.where(known, x - np.where(known, x, 0.0).sum(axis=0) / n, 0.0)
        dy = np.where(known, y - np.where(known, y, 0.0).sum(axis=0) / n, 0.0)
        spread = np.sqrt((dx**2).sum(axis=0) * (dy**2).sum(axis=0))
        found = (dx * dy).sum(axis=0) / spread
    return np.where((n >= FEWEST_STUDENTS) & (spread > 1e-12), found, np.nan)


def measure_benchmark(reader: RunReader, grid: ScoreGrid) -> BenchmarkMeasures:
    """What the items of a run are worth."""
    texts = reader.texts(grid.items.ids)
    prompts = [texts[item].prompt or "" if item in texts else "" for item in grid.items.ids]
    scores, strata = _fill_with_labels(reader, grid, sum_item_scores(grid).mean), _strata_by_item(grid)
    coverage: dict[str, TaskCoverage] = {}
    items: dict[str, ItemMeasures] = {}
    for place, task in enumerate(grid.tasks):
        mine = np.flatnonzero(grid.items.task == place)
        of_task = [prompts[item] for item in mine]
        twins = [reader.twins.get(grid.items.ids[item]) for item in mine.tolist()]
        quality = measure_item_quality(scores[:, mine])
        covered = measure_attribute_coverage(reader.target_attributes(task), [strata[item] for item in mine])
        coverage[task] = _task_coverage(covered, mean_prompt_similarity(of_task), quality, twins)
        items |= _item_measures(grid, mine, quality, twins)
    return BenchmarkMeasures(coverage, items)


def _fill_with_labels(reader: RunReader, grid: ScoreGrid, judged: Floats) -> Floats:
    """The scores, (S, I), and in their place the share of right labels in tasks that have labels alone."""
    scored = np.unique(grid.items.task[np.isfinite(judged).any(axis=0)])
    right = sum_item_scores(read_label_grid(reader, grid)).mean
    return np.where(np.isin(grid.items.task, scored), judged, right)


def _strata_by_item(grid: ScoreGrid) -> list[list[str]]:
    """``attribute=value`` of each datapoint."""
    sampled: list[list[str]] = [[] for _ in grid.items.ids]
    for stratum, items in grid.items.attributes.items():
        for item in items.tolist():
            sampled[item].append(stratum)
    return sampled


def _task_coverage(
    covered: Coverage, alike: Resemblance, quality: ItemQuality, twins: Sequence[Twin | None]
) -> TaskCoverage:
    items = len(twins)

    def mean(values: Floats) -> Measured:
        known = values[np.isfinite(values)]
        value = float(known.mean()) if len(known) else None
        return Measured(value, None, None, len(known), len(values) - len(known))

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
        difficulty=mean(quality.difficulty),
        discrimination=mean(quality.discrimination),
        all_pass=int(quality.all_pass.sum()),
        all_fail=int(quality.all_fail.sum()),
        reversed=int((quality.discrimination < 0).sum()),
        near_duplicates=sum(twin is not None for twin in twins),
        scored=int((quality.students > 0).sum()),
    )


def _item_measures(
    grid: ScoreGrid, mine: NDArray[np.int64], quality: ItemQuality, twins: Sequence[Twin | None]
) -> dict[str, ItemMeasures]:
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
        for at, item in enumerate(mine.tolist())
    }


def _none_if_nan(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


# --- A run's datapoints as a data set of its own, and where all of it comes from, with hashes

PROVENANCE = "provenance.json"


class ExportedFile(msgspec.Struct, frozen=True):
    """``path`` within the folder; ``rows`` of a task."""

    path: str
    task: str
    rows: int
    sha256: str


class ExportedBenchmark(msgspec.Struct, frozen=True):
    """What was written, as ``provenance.json`` has it. ``sources`` are those of the run's ``sources.json``:
    where items that are no model's were taken from, and under which licence. ``simulated``: simulated models
    took part; ``simulated_teachers`` wrote items."""

    experiment: str
    created_at: str
    coeval_version: str
    simulated: bool
    teachers: tuple[str, ...]
    files: tuple[ExportedFile, ...]
    sources: Any = None
    simulated_teachers: tuple[str, ...] = ()


def export_benchmark(reader: RunReader, items: Mapping[str, ItemMeasures], out: Path) -> ExportedBenchmark:
    """Write the good datapoints that count in a run into a new folder. ``items`` are those of
    `measure_benchmark`, and stand beside each item.

    Raises UsageError: the folder holds something already, or there is no datapoint; StoreError: a file cannot
    be read or written.
    """
    if not items:
        raise UsageError(f"{reader.run.path} holds no datapoints; there is nothing to export")
    try:
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise UsageError(f"{out} already exists; name a new folder for the data set")
        (out / "data").mkdir(parents=True, exist_ok=True)
        (out / "jsonl").mkdir(exist_ok=True)
    except OSError as error:
        raise store_error("write", out, error) from error
    rows = _export_rows(reader, items)
    files: list[ExportedFile] = []
    for task, of_task in rows.items():
        lines = out / "jsonl" / f"{task}.jsonl"
        parquet = out / "data" / f"{task}.parquet"
        write_bytes_atomic(lines, b"".join(msgspec.json.encode(row) + b"\n" for row in of_task))
        _write_parquet(lines, parquet, list(of_task[0]))
        for path in (lines, parquet):
            relative = path.relative_to(out).as_posix()
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            files.append(ExportedFile(relative, task, len(of_task), digest))
    found = _provenance(reader, rows, files)
    provenance = msgspec.json.format(msgspec.json.encode(found), indent=2)
    write_bytes_atomic(out / PROVENANCE, provenance + b"\n")
    return found


def _export_rows(reader: RunReader, items: Mapping[str, ItemMeasures]) -> dict[str, list[dict[str, Any]]]:
    """By task, the same columns in every row: an attribute has one of its own, named ``attribute_NAME``."""
    texts = reader.texts(items)
    attributes = {
        item: found or {}
        for item, found in reader.rows("SELECT item, attributes FROM items WHERE NOT failed")
    }
    names: dict[str, dict[str, None]] = {}
    for item, measures in items.items():
        names.setdefault(measures.task, {}).update(dict.fromkeys(sorted(attributes.get(item, {}))))
    rows: dict[str, list[dict[str, Any]]] = {}
    for item, measures in sorted(items.items()):
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


def _provenance(
    reader: RunReader, rows: Mapping[str, Sequence[Mapping[str, Any]]], files: Sequence[ExportedFile]
) -> ExportedBenchmark:
    meta: dict[str, Any] = {}
    sources: Any = None
    try:
        meta = read_json(reader.run.meta, dict[str, Any])
    except FileNotFoundError:
        meta = {"experiment_id": reader.run.path.resolve().name}
    if reader.run.sources.exists():
        sources = _strip_folders(read_json(reader.run.sources))
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
        sources=sources,
    )


def _strip_folders(sources: Any) -> Any:
    """The file's name, without the folders of this machine."""
    match sources:
        case dict():
            return {
                key: Path(value).name
                if isinstance(value, str) and (key == "path" or Path(value).is_absolute())
                else _strip_folders(value)
                for key, value in sources.items()
            }
        case list():
            return [_strip_folders(each) for each in sources]
        case _:
            return sources
