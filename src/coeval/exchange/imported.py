"""Results that were made elsewhere, on their way into output folders."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from coeval import __version__
from coeval.benchmarks.benchmark import Answer, Metric, file_name
from coeval.benchmarks.run.judgment_outcomes import mean_metric
from coeval.core.errors import UsageError
from coeval.core.records import Failure, Usage
from coeval.core.text import digest, join_names, pluralize
from coeval.store.jsonl import write_json_atomic, write_lines
from coeval.store.output_folder import RESPONSES, SCORES, SUMMARY, is_sweep, list_output_tasks

_SHOWN = 3
# Tokens of one answer: what a table of usage can hold, and more than any model's window.
_MOST_TOKENS = 1 << 31


class ForeignAnswer(NamedTuple):
    """One answer to one item. ``scores`` by metric, None where the other tool has no score; ``answer`` None
    where the file holds no text, ``error`` why there is none. Answers of two models are compared where they
    have the same ``matched_by``, else the same prompt."""

    item: str
    sample: int
    scores: dict[str, float | None]
    prompt: str = ""
    answer: str | None = None
    error: str = ""
    usage: Usage | None = None
    latency_s: float | None = None
    matched_by: str = ""


class ForeignResult(NamedTuple):
    """One model on one task, as another tool recorded it.

    ``settings`` is all that the recipe hash covers. ``judges`` are by metric. ``reported`` are the means that
    the other tool gives, over all samples. ``remarks`` say what was left out.
    """

    tool: str
    task: str
    model: str
    answers: list[ForeignAnswer]
    settings: str = ""
    judges: dict[str, str] = {}  # noqa: RUF012  never changed
    reported: dict[str, float] = {}  # noqa: RUF012
    remarks: tuple[str, ...] = ()


def as_number(value: Any) -> float:
    """Convert a number of another tool; one beyond every float becomes infinite, which counts as missing."""
    try:
        return float(value)
    except OverflowError:
        return math.inf


def as_usage(took: Any, gave: Any, usd: float | None = None) -> Usage | None:
    """Make a usage of tokens in and out; None unless both are counts."""
    counts = all(isinstance(count, int) and 0 <= count < _MOST_TOKENS for count in (took, gave))
    return Usage(took, gave, usd) if counts else None


class _ForeignJudge(msgspec.Struct, frozen=True):
    model: str
    recipe: str


class ImportedSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A ``summary.json`` whose figures come from another tool's records (see `TaskSummary`)."""

    task: str
    model: str
    metrics: dict[str, Metric]
    n_expected: int
    n_scored: int
    n_failed: dict[str, int]
    counted: str = "prompts"
    comparable: bool = True
    compared_with: str = ""
    remarks: tuple[str, ...]
    complete: bool
    missing: dict[str, int]
    judge: _ForeignJudge | None
    imported: dict[str, Any]
    coeval_version: str = __version__


class Imported(NamedTuple):
    """What `write_output` made: by model its folder, and the number of its answers."""

    folders: dict[str, Path]
    answers: int
    remarks: tuple[str, ...]


class ScoreScale(NamedTuple):
    """The worst and the best that a score can be; what is measured on it is kept as a share of the way."""

    worst: float
    best: float

    def share(self, value: float) -> float:
        return (value - self.worst) / (self.best - self.worst)


def write_output(results: Sequence[ForeignResult], out: Path, scale: ScoreScale | None = None) -> Imported:
    """Write ``out/TASK`` for one model, ``out/MODEL/TASK`` for several, with ``run_K`` between where items
    have several samples.

    Raises UsageError: the folder holds results already, two files hold the same task of the same model, or
    no metric is on a known scale; StoreError: it cannot be written.
    """
    if list_output_tasks(out) or is_sweep(out) or any(map(list_output_tasks, out.glob("*/"))):
        raise UsageError(f"{out} holds results already; give --out another folder")
    twice = [name for name, count in Counter((one.model, one.task) for one in results).items() if count > 1]
    if twice:
        model, task = twice[0]
        raise UsageError(f"{task} of {model} is in several of these files; import each into its own folder")
    scaled = [_on_scale(result, scale) for result in results]
    models = list(dict.fromkeys(result.model for result in scaled))
    folders = {model: out if len(models) == 1 else out / _unique(model, models) for model in models}
    remarks: list[str] = []
    for result in scaled:
        samples = sorted({answer.sample for answer in result.answers})
        for number, sample in enumerate(samples):
            folder = folders[result.model]
            if len(samples) > 1:
                folder /= f"run_{number}"
            of_sample = [answer for answer in result.answers if answer.sample == sample]
            _write_task(folder / file_name(result.task), result, of_sample)
        remarks += [f"{result.task} of {result.model}: {remark}" for remark in result.remarks]
    return Imported(folders, sum(len(result.answers) for result in scaled), tuple(remarks))


def _unique(model: str, models: Sequence[str]) -> str:
    name = file_name(model)
    alike = [other for other in models if file_name(other).lower() == name.lower()]
    return name if len(alike) == 1 else f"{name}-{digest(model)[:8]}"


def _on_scale(result: ForeignResult, scale: ScoreScale | None) -> ForeignResult:
    """Keep the metrics from 0 to 1; bring others there by ``scale``, or leave them out and say so. NaN and
    infinite scores become missing, and are counted in a remark."""
    values: defaultdict[str, list[float]] = defaultdict(list)
    unusable: Counter[str] = Counter()
    for answer in result.answers:
        for metric, value in answer.scores.items():
            if value is not None and math.isfinite(value):
                values[metric].append(value)
            elif value is not None:
                unusable[metric] += 1
    lost = (f"{metric}: {pluralize(count, 'score')} NaN or infinite" for metric, count in unusable.items())
    result = result._replace(remarks=(*result.remarks, *lost))
    beyond = {name for name, found in values.items() if min(found) < 0 or max(found) > 1}
    if scale is not None:
        for name in sorted(beyond):
            if min(values[name]) < min(scale) or max(values[name]) > max(scale):
                raise UsageError(
                    f"{name} of {result.task} goes from {min(values[name]):g} to {max(values[name]):g}, "
                    f"beyond --scale {scale.worst:g},{scale.best:g}"
                )
    elif beyond:
        if not values.keys() - beyond:
            name = min(beyond)
            raise UsageError(
                f"{name} of {result.task} goes from {min(values[name]):g} to {max(values[name]):g}; say from "
                "where to where it can go, such as --scale 1,5"
            )
        left_out = f"left out, as --scale was not given: {join_names(sorted(beyond), _SHOWN)}"
        result = result._replace(remarks=(*result.remarks, left_out))

    def kept(given: Mapping[str, float | None]) -> dict[str, float | None]:
        scores = {
            name: value if value is not None and math.isfinite(value) else None
            for name, value in given.items()
        }
        if scale is None:
            return {name: value for name, value in scores.items() if name not in beyond}
        return {
            name: scale.share(value) if name in beyond and value is not None else value
            for name, value in scores.items()
        }

    return result._replace(answers=[one._replace(scores=kept(one.scores)) for one in result.answers])


def _write_task(folder: Path, result: ForeignResult, answers: Sequence[ForeignAnswer]) -> None:
    recipe = digest(result.tool, result.model, result.settings)
    with_text = any(answer.answer is not None or answer.error for answer in answers)
    if with_text:
        write_lines(folder / RESPONSES, (_record(one, result, recipe) for one in answers))
    write_lines(folder / SCORES, ({"id": one.item, "scores": one.scores} for one in answers))
    names = list(dict.fromkeys(name for one in answers for name in one.scores))
    by_metric = {name: [one.scores.get(name) for one in answers] for name in names}
    unscored = [one for one in answers if all(value is None for value in one.scores.values())]
    failed = Counter("failed" if one.error else "unscored" for one in unscored)
    judges = list(dict.fromkeys(result.judges.values()))
    summary = ImportedSummary(
        task=result.task,
        model=result.model,
        metrics={name: _metric(values) for name, values in by_metric.items()},
        n_expected=len(answers),
        n_scored=len(answers) - len(unscored),
        n_failed=dict(failed),
        remarks=(*result.remarks, *_differences(result)),
        complete=not failed,
        missing=dict(failed),
        judge=_ForeignJudge(", ".join(judges), digest(*judges, result.settings)) if judges else None,
        imported={"from": result.tool, "judges": result.judges, "reported": result.reported},
    )
    write_json_atomic(folder / SUMMARY, summary)


def _metric(values: Iterable[float | None]) -> Metric:
    return mean_metric([value for value in values if value is not None], "share")


def _record(one: ForeignAnswer, result: ForeignResult, recipe: str) -> dict[str, Any]:
    lost = one.answer is None
    answer = Answer(
        id=one.item,
        prompt=one.prompt,
        response=one.answer,
        model=result.model,
        recipe=recipe,
        input_hash=digest("user", text) if (text := one.matched_by or one.prompt) else "",
        usage=one.usage,
        latency_s=one.latency_s,
        status="failed" if lost else "ok",
        error=Failure(result.tool, one.error or "the file holds no answer") if lost else None,
    )
    return msgspec.to_builtins(answer)  # type: ignore[no-any-return]


def _differences(result: ForeignResult) -> list[str]:
    """Of each metric whose mean is not what the other tool reports, both."""
    found = []
    for name, reported in result.reported.items():
        by_item: defaultdict[str, list[float]] = defaultdict(list)
        for one in result.answers:
            if (value := one.scores.get(name)) is not None:
                by_item[one.item].append(value)
        if not by_item:
            continue
        mean = math.fsum(math.fsum(values) / len(values) for values in by_item.values()) / len(by_item)
        if not math.isclose(mean, reported, rel_tol=1e-9, abs_tol=1e-9):
            found.append(
                f"{result.tool} reports {name} {reported:.4f}; the items' scores have the mean {mean:.4f}"
            )
    return found
