"""The scores of a task's items at each checkpoint, on which all conclusions about a training run rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from coeval.analysis.intervals import Floats, Scale, scale_of_unit
from coeval.analysis.readers.output_reader import OutputReader, has_scores, read_task_summary
from coeval.analysis.readers.reader import Reader
from coeval.core.errors import StoreError
from coeval.core.text import canonical_json, digest, join_names, pluralize
from coeval.store.jsonl import read_json_if_whole
from coeval.store.output_folder import list_output_tasks, sample_index

# --- Samples of a task at a checkpoint that can be pooled
#
# How a sample was made says its ``summary.json``: the sampling that was sent, and the parts of the recipes of
# answers and judgments. The seed is left out, which differs between samples on purpose, and the name under
# which the checkpoint was served.

_NOT_SAMPLING = {"seed", "interface", "parameters.model", "checkpoint"}
_GONE = "its scores.jsonl is missing, so no item's score is known"
# The reason of a record that was not made yet.
_MISSING = "missing"


class _Requested(msgspec.Struct, frozen=True):
    model: str = ""
    sampling: dict[str, Any] = {}
    parts: dict[str, str] = {}
    dropped: dict[str, int] = {}


class _Metric(msgspec.Struct, frozen=True):
    value: float | None = None


class RunFacts(msgspec.Struct, frozen=True):
    """The facts of a sample that are read from its ``summary.json``."""

    task: str = ""
    model: str = ""
    metrics: dict[str, _Metric] = {}
    n_expected: int = 0
    n_failed: dict[str, int] = {}
    counted: str = "records"
    missing: dict[str, int] = {}
    not_measured: str = ""
    inference: _Requested | None = None
    judge: _Requested | None = None

    @property
    def answering_hash(self) -> str:
        """Hash how its answers were made, without the seed and the checkpoint."""
        return _hash_settings(self.inference, _NOT_SAMPLING)

    @property
    def judging_hash(self) -> str:
        """Hash who judged them and how, without the seed; empty if rules score them."""
        return _hash_settings(self.judge, {"seed"}) if self.judge is not None else ""

    @property
    def unrequested_count(self) -> int:
        """Return how many answers and judgments were not requested yet."""
        return self.missing.get(_MISSING, 0)


class JudgedBy(msgspec.Struct, frozen=True):
    """The judge of a sample; ``method``: a hash of all that shapes what it says, without the seed."""

    model: str
    sampling: dict[str, Any]
    method: str


class LeftOutRun(msgspec.Struct, frozen=True):
    """A sample that does not count, and why."""

    run: int
    why: str


class ChosenRuns(msgspec.Struct, frozen=True):
    """The samples of a task that count: ``facts`` by ``runs``, with ``notes`` on them. ``expected``: how many
    were requested, if that is known."""

    task: str
    expected: int | None
    runs: tuple[int, ...]
    facts: tuple[RunFacts, ...]
    left_out: tuple[LeftOutRun, ...]
    notes: tuple[str, ...]

    @property
    def recorded_task(self) -> str:
        """Return the task's name in its records, which a folder may be unable to have."""
        return self.facts[0].task or self.task

    @property
    def recipe_hashes(self) -> tuple[str, str]:
        """Return the hashes of how the answers were made, and how they were judged."""
        return self.facts[0].answering_hash, self.facts[0].judging_hash

    @property
    def judge(self) -> JudgedBy | None:
        if (requested := self.facts[0].judge) is None:
            return None
        return JudgedBy(requested.model, requested.sampling, self.facts[0].judging_hash)

    @property
    def missing(self) -> int:
        """Count answers and judgments without a value, over all samples that count."""
        return sum(count for fact in self.facts for count in fact.missing.values())


def choose_task_runs(
    folder: Path, tasks: Sequence[str] | None = None, requested: Mapping[str, int] | None = None
) -> list[ChosenRuns]:
    """Choose the samples that count in a checkpoint's output folder, by task; ``runs`` is empty if none does.

    Samples that agree in how they were made and judged count: of several such groups the largest, of
    equally large ones that with the lowest number. Unfinished ones count only if none is finished, and
    those without ``scores.jsonl`` only if no other has it: then ``summary.json`` alone has their figures.
    ``requested``: by task, how many samples, and those beyond it are left out; None: as many
    as its ``summary_agg.json`` says.
    """
    of_task: dict[str, list[Path]] = {}
    for path in list_output_tasks(folder):
        if tasks is None or path.name in tasks:
            of_task.setdefault(path.name, []).append(path)
    chosen = []
    for task, paths in sorted(of_task.items()):
        before = read_json_if_whole(folder / task / AGGREGATE, _ExpectedRuns) if requested is None else None
        number = before.expected_runs if before is not None else (requested or {}).get(task)
        # where there are ``run_<k>/``, what lies beside them is no sample of theirs
        samples = [path for path in paths if path.parent != folder] or paths
        chosen.append(_choose_runs_of_task(task, samples, number, of_task.keys() - {task}))
    return chosen


AGGREGATE = "summary_agg.json"


class _ExpectedRuns(msgspec.Struct, frozen=True):
    expected_runs: int | None = None


def _choose_runs_of_task(
    task: str, paths: Sequence[Path], expected: int | None, other_tasks: AbstractSet[str]
) -> ChosenRuns:
    """Choose the samples of a task, and note why others are left out; ``others``: the folder's tasks."""
    read: dict[int, RunFacts] = {}
    reasons: dict[int, str] = {}
    gone = {sample_index(path) for path in paths if not has_scores(path)}
    for path in paths:
        run = sample_index(path)
        own = _read_facts_or_reason(path)
        if isinstance(own, str):
            reasons[run] = own
        elif own.task in other_tasks:
            reasons[run] = _other_task_reason(own)
        elif expected is not None and run >= expected:
            reasons[run] = f"{pluralize(expected, 'sample')} {'was' if expected == 1 else 'were'} requested"
        elif run in gone and len(gone) < len(paths):
            reasons[run] = "its scores.jsonl is missing"
        else:
            read[run] = own
    finished = [run for run, facts in read.items() if not facts.unrequested_count]
    if finished:
        for run in read.keys() - set(finished):
            reasons[run] = f"unfinished: {read[run].unrequested_count:,} answers or judgments are missing"
    kept = _keep_largest_group({run: facts for run, facts in read.items() if run not in reasons}, reasons)
    notes = [f"run_{run} is left out: {why}" for run, why in sorted(reasons.items())]
    notes += _unfinished_or_valueless_run_notes(kept)
    notes += [f"run_{run}: {_GONE}" for run in kept if run in gone]
    if expected is not None and len(kept) < expected:
        notes.append(f"{len(kept)} of the {expected} requested samples exist")
    return ChosenRuns(
        task=task,
        expected=expected,
        runs=tuple(kept),
        facts=tuple(kept.values()),
        left_out=tuple(LeftOutRun(run, why) for run, why in sorted(reasons.items())),
        notes=tuple(notes),
    )


def _read_facts_or_reason(path: Path) -> RunFacts | str:
    try:
        facts = read_task_summary(path, RunFacts)
    except StoreError as error:
        return str(error)
    if facts.not_measured:
        return f"not measured: {facts.not_measured}"
    if all(metric.value is None for metric in facts.metrics.values()):
        return "not scored yet"
    return facts


def _keep_largest_group(run_facts: dict[int, RunFacts], added_reasons: dict[int, str]) -> dict[int, RunFacts]:
    """Return the largest group of samples made and judged alike; add the others' reasons."""
    if not run_facts:
        return {}
    groups = Counter(_recipe_key(facts) for facts in run_facts.values())  # in order of their first samples
    [(most, _)] = groups.most_common(1)
    kept = {run: facts for run, facts in run_facts.items() if _recipe_key(facts) == most}
    first = next(iter(kept.values()))
    added_reasons |= {
        run: _describe_difference(facts, first) for run, facts in run_facts.items() if run not in kept
    }
    return kept


def _recipe_key(facts: RunFacts) -> tuple[str, str, str, str]:
    return facts.task, facts.model, facts.answering_hash, facts.judging_hash


def _describe_difference(facts: RunFacts, first: RunFacts) -> str:
    if facts.task != first.task:
        return _other_task_reason(facts)
    if facts.model != first.model:
        return f"answered by {facts.model}, the others by {first.model}"
    if names := name_changed_sampling_settings(facts, first):
        return f"made with other sampling ({names})"
    return describe_judging_change(facts, first, ", the others by ")


def _other_task_reason(facts: RunFacts) -> str:
    return f"its summary.json is of the task {facts.task}"


def describe_judging_change(a: RunFacts, b: RunFacts, joined: str = " and by ") -> str:
    """Say how b's answers were judged differently from a's; empty if they were judged alike."""
    if a.judging_hash == b.judging_hash:
        return ""
    judge_a, judge_b = ("rules" if facts.judge is None else facts.judge.model for facts in (a, b))
    if judge_a != judge_b:
        return f"judged by {judge_a}{joined}{judge_b}"
    return f"judged by {judge_a} with other settings ({join_names(_changed_settings(a.judge, b.judge))})"


def name_changed_sampling_settings(a: RunFacts, b: RunFacts) -> str:
    """List the settings in which the sampling of b's answers differs from a's; empty if none does."""
    if a.answering_hash == b.answering_hash:
        return ""
    return join_names(_changed_settings(a.inference, b.inference))


def _changed_settings(a: _Requested | None, b: _Requested | None) -> list[str]:
    settings_a, settings_b = (_list_request_settings(requested, _NOT_SAMPLING) for requested in (a, b))
    names = sorted(settings_a.keys() | settings_b.keys())
    return [name for name in names if settings_a.get(name) != settings_b.get(name)]


def _unfinished_or_valueless_run_notes(kept: dict[int, RunFacts]) -> Iterator[str]:
    for run, facts in kept.items():
        if facts.unrequested_count:
            yield f"run_{run} is unfinished: {facts.unrequested_count:,} answers or judgments are missing"
        lacking = {reason: count for reason, count in facts.missing.items() if reason != _MISSING}
        if failures := lacking or facts.n_failed:
            reasons = join_names(f"{count:,} {reason}" for reason, count in failures.items())
            yield f"run_{run}: without a value, of {facts.n_expected:,} {facts.counted}: {reasons}"


def _hash_settings(requested: _Requested | None, left_out: set[str]) -> str:
    return digest(canonical_json(_list_request_settings(requested, left_out)))


def _list_request_settings(requested: _Requested | None, left_out: set[str]) -> dict[str, str]:
    """Return the parts of the recipe by name, and the sampling as it was sent."""
    if requested is None:
        return {}
    parts = {  # ``temperature`` of ``parameters.temperature (student)``
        name.removeprefix("parameters.").partition(" (")[0]: value
        for name, value in requested.parts.items()
        if name not in left_out
    }
    sent = {name: str(value) for name, value in requested.sampling.items() if name != "seed"}
    model = {} if "parameters.model" in left_out else {"model": requested.model}
    refused = dict.fromkeys(requested.dropped, "refused")
    refused.pop("seed", None)
    return {**parts, **sent, **refused, **model}


# Of the items that other checkpoints have; one that lacks more is left out rather than their items.
_MOST_LACKING = 0.1


def uncounted_or_scoreless_sample_notes(reader: Reader) -> Iterator[str]:
    """Report which samples with a figure do not count, and which samples that count lack items' scores."""
    scored = {(metric.task, metric.sample) for metric in reader.metrics if metric.value is not None}
    for runs in choose_task_runs(reader.folder):
        task = runs.recorded_task if runs.runs else runs.task
        for left in runs.left_out:
            if (task, left.run) in scored:
                yield f"run_{left.run} {task} is left out: {left.why}"
        yield from (f"{task}: {note}" for note in runs.notes if note.endswith(_GONE))


class ItemColumn(NamedTuple):
    """The items' scores in a metric at one checkpoint, in its unit. ``keys``: an id, and a hash of the
    prompt; ``sums`` and ``totals``: of an item's weighted scores and of their weights (1 in most metrics),
    over so many ``counts`` samples. Single scores lie between ``least`` and ``most``."""

    metric: str
    unit: str
    keys: tuple[tuple[str, int], ...]
    sums: Floats
    totals: Floats
    counts: Floats
    least: float
    most: float

    @property
    def values(self) -> Floats:
        """Return items' means over the samples."""
        return self.sums / self.totals

    @property
    def weights(self) -> Floats:
        """Return how often each item counts in a sample."""
        return self.totals / self.counts


class CommonItems(NamedTuple):
    """The n items that all of K checkpoints have a score of, on a scale from 0 to 1.

    The mean of a column of ``scores``, (n, K), is the metric's value: if items count unequally they are
    the pseudo-values ``m + w (x − m) / mean(w)`` of the ratio m, and may lie beyond the scale. ``scale``
    is the metric's, extended to single scores beyond it.
    """

    metric: str
    unit: str
    steps: tuple[int, ...]
    scores: Floats
    scale: Scale
    notes: tuple[str, ...]


def read_item_columns(reader: OutputReader, runs: ChosenRuns) -> dict[str, ItemColumn]:
    """Read the items' scores in each of the task's metrics that has any, the benchmark's first one first."""
    task = runs.recorded_task
    rows = {metric: columns for metric, *columns in reader.rows(_ITEMS, [task, list(runs.runs), task])}
    item_columns: dict[str, ItemColumn] = {}
    for figure in reader.metrics:
        name = figure.metric
        if figure.task == task and name in rows and name not in item_columns:
            items, contents, *numbers, least, most = rows[name]
            keys = tuple(zip(items, contents, strict=True))
            sums, totals, counts = np.array(numbers, np.float64)
            item_columns[name] = ItemColumn(name, figure.unit, keys, sums, totals, counts, least, most)
    return item_columns


_ITEMS = """
SELECT metric, list(item ORDER BY item), list(coalesce(content, 0) ORDER BY item), list(sums ORDER BY item),
       list(totals ORDER BY item), list(samples ORDER BY item), min(least), max(most)
FROM (
    SELECT metric, item, sum(value * weight) AS sums, sum(weight) AS totals, count(*) AS samples,
           min(value) AS least, max(value) AS most
    FROM scores
    WHERE task = ? AND list_contains(?::INTEGER[], sample) AND value IS NOT NULL AND weight > 0
    GROUP BY ALL
)
LEFT JOIN (SELECT item, content FROM contents WHERE task = ?) USING (item)
GROUP BY ALL
"""


def keep_commonest_metric(columns: Mapping[int, ItemColumn]) -> dict[int, ItemColumn]:
    names = [(column.metric, column.unit) for column in columns.values()]
    most = max(dict.fromkeys(names), key=names.count, default=None)
    return {step: own for step, own in columns.items() if (own.metric, own.unit) == most}


def select_common_items(
    columns: Mapping[int, ItemColumn], lacking_at_most: float = _MOST_LACKING
) -> CommonItems:
    """Select the items that all checkpoints share, in one metric; a checkpoint that lacks a larger share of
    what others have is left out. Items are the same if id and prompt are. ``columns``: one or more, by step.
    """
    steps, first = tuple(columns), next(iter(columns.values()))
    keys = dict.fromkeys(key for column in columns.values() for key in column.keys)
    index_of = {key: at for at, key in enumerate(keys)}
    values, weights = arrays = np.full((2, len(index_of), len(steps)), np.nan)
    for at, column in enumerate(columns.values()):
        arrays[:, [index_of[key] for key in column.keys], at] = (column.values, column.weights)
    scored = np.isfinite(values)
    counts = scored.sum(axis=0).tolist()
    most = max(counts)
    kept = [at for at, count in enumerate(counts) if count and count >= (1 - lacking_at_most) * most]
    notes = []
    if few := [f"step {step} ({counts[at]:,})" for at, step in enumerate(steps) if at not in kept]:
        notes.append(f"left out of the conclusions, with too few of {most:,} items: {join_names(few)}")
    whole = scored[:, kept].all(axis=1)
    if lacking := int(scored[:, kept].any(axis=1).sum()) - int(whole.sum()):
        notes.append(
            f"conclusions rest on {pluralize(int(whole.sum()), 'item')} that all checkpoints have; "
            f"{lacking:,} more are scored at some only"
        )
    least, most_of_scale = scale_of_unit(first.unit)
    recorded = values[scored]
    scale = Scale(float(recorded.min(initial=least)), float(recorded.max(initial=most_of_scale)))
    shares = scale.to_shares(values[whole][:, kept])
    weights = weights[whole][:, kept]
    if not (weights == 1).all():
        means = (shares * weights).sum(axis=0) / weights.sum(axis=0)
        shares = means + weights / weights.mean(axis=0) * (shares - means)
    kept_steps = tuple(steps[at] for at in kept)
    return CommonItems(first.metric, first.unit, kept_steps, shares, scale, tuple(notes))
