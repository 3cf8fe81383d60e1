"""Results of other tools, written as output folders."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from coeval import __version__
from coeval.benchmarks.benchmark import Answer, file_name
from coeval.benchmarks.run.judgment_outcomes import mean_metric
from coeval.core.errors import UsageError
from coeval.core.records import Failure, Usage
from coeval.core.text import digest, join_names, pluralize
from coeval.store.jsonl import write_json_atomic, write_lines
from coeval.store.output_folder import RESPONSES, SCORES, SUMMARY, is_sweep, list_output_tasks

_MOST_NAMED = 3
# Tokens of one answer: what a table of usage can hold, and more than any model's window.
_MOST_TOKENS = 1 << 31


class ForeignAnswer(NamedTuple):
    """One answer to one item. ``scores`` by metric, None if the other tool has no score; ``answer`` None if
    the file holds no text, ``error`` why. Answers of two models are paired by equal ``matched_by``, else
    by equal prompts."""

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
    """One model on one task, as another tool recorded it. ``settings`` is everything that the recipe hash
    covers. ``judges`` are by metric. ``reported`` are the other tool's means over all samples. ``remarks``
    say what was left out."""

    tool: str
    task: str
    model: str
    answers: list[ForeignAnswer]
    settings: str = ""
    judges: dict[str, str] = {}  # noqa: RUF012  never changed
    reported: dict[str, float] = {}  # noqa: RUF012
    remarks: tuple[str, ...] = ()


def to_float(value: Any) -> float:
    """Convert a number of another tool; beyond a float it is infinite, which counts as missing."""
    try:
        return float(value)
    except OverflowError:
        return math.inf


def make_usage_if_plausible(input_tokens: Any, output_tokens: Any, usd: float | None = None) -> Usage | None:
    """Return the usage, or None unless both counts are whole numbers of a plausible size."""
    counts = all(
        isinstance(count, int) and 0 <= count < _MOST_TOKENS for count in (input_tokens, output_tokens)
    )
    return Usage(input_tokens, output_tokens, usd) if counts else None


class Imported(NamedTuple):
    """The outcome of `write_results`: folders by model, and the number of answers."""

    folders: dict[str, Path]
    answers: int
    remarks: tuple[str, ...]


class ScoreScale(NamedTuple):
    """The worst and the best possible score; scores on it are stored as shares from 0 to 1."""

    worst: float
    best: float

    def to_share(self, value: float) -> float:
        return (value - self.worst) / (self.best - self.worst)


def write_results(results: Sequence[ForeignResult], out: Path, scale: ScoreScale | None = None) -> Imported:
    """Write ``out/TASK`` for one model, ``out/MODEL/TASK`` for several, with ``run_K`` between where items
    have several samples. Raises UsageError: the folder holds results already, two files hold the same task
    of the same model, or no metric is on a known scale; StoreError: it cannot be written."""
    if list_output_tasks(out) or is_sweep(out) or any(map(list_output_tasks, out.glob("*/"))):
        raise UsageError(f"{out} holds results already; give --out another folder")
    files_by_task = Counter((result.model, result.task) for result in results)
    for (model, task), count in files_by_task.items():
        if count > 1:
            raise UsageError(
                f"{task} of {model} is in several of these files; import each into its own folder"
            )
    scaled = [_rescale_or_leave_out_metrics(result, scale) for result in results]
    models = list(dict.fromkeys(result.model for result in scaled))
    folders = {
        model: out if len(models) == 1 else out / _model_folder_name(model, models) for model in models
    }
    remarks: list[str] = []
    for result in scaled:
        samples = sorted({answer.sample for answer in result.answers})
        for number, sample in enumerate(samples):
            folder = folders[result.model]
            if len(samples) > 1:
                folder /= f"run_{number}"
            sample_answers = [answer for answer in result.answers if answer.sample == sample]
            _write_task(folder / file_name(result.task), result, sample_answers)
        remarks += [f"{result.task} of {result.model}: {remark}" for remark in result.remarks]
    return Imported(folders, sum(len(result.answers) for result in scaled), tuple(remarks))


def _model_folder_name(model: str, models: Sequence[str]) -> str:
    name = file_name(model)
    alike = [other for other in models if file_name(other).lower() == name.lower()]
    return name if len(alike) == 1 else f"{name}-{digest(model)[:8]}"


def _rescale_or_leave_out_metrics(result: ForeignResult, scale: ScoreScale | None) -> ForeignResult:
    """Keep metrics from 0 to 1; rescale others by ``scale``, or leave them out with a remark. NaN and
    infinite scores become missing, with a remark."""
    values: defaultdict[str, list[float]] = defaultdict(list)
    unusable: Counter[str] = Counter()
    for answer in result.answers:
        for metric, value in answer.scores.items():
            if value is not None and math.isfinite(value):
                values[metric].append(value)
            elif value is not None:
                unusable[metric] += 1
    dropped = (f"{metric}: {pluralize(count, 'score')} NaN or infinite" for metric, count in unusable.items())
    result = result._replace(remarks=(*result.remarks, *dropped))
    beyond = {name for name, numbers in values.items() if min(numbers) < 0 or max(numbers) > 1}
    for name in sorted(beyond):
        reach = f"{name} of {result.task} ranges from {min(values[name]):g} to {max(values[name]):g}"
        if scale is None and not values.keys() - beyond:
            raise UsageError(f"{reach}; give the worst and the best possible score, such as --scale 1,5")
        if scale is not None and (min(values[name]) < min(scale) or max(values[name]) > max(scale)):
            raise UsageError(f"{reach}, beyond --scale {scale.worst:g},{scale.best:g}")
    if beyond and scale is None:
        left_out = f"left out, as --scale was not given: {join_names(sorted(beyond), _MOST_NAMED)}"
        result = result._replace(remarks=(*result.remarks, left_out))

    def rescale_if_finite_and_beyond(name: str, value: float | None) -> float | None:
        if value is None or not math.isfinite(value):
            return None
        return scale.to_share(value) if scale is not None and name in beyond else value

    answers = [
        answer._replace(
            scores={
                name: rescale_if_finite_and_beyond(name, value)
                for name, value in answer.scores.items()
                if scale is not None or name not in beyond
            }
        )
        for answer in result.answers
    ]
    return result._replace(answers=answers)


def _write_task(folder: Path, result: ForeignResult, answers: Sequence[ForeignAnswer]) -> None:
    """Write the answers, scores and summary (see `TaskSummary`) of one sample of a task."""
    recipe = digest(result.tool, result.model, result.settings)
    with_text = any(answer.answer is not None or answer.error for answer in answers)
    if with_text:
        write_lines(folder / RESPONSES, (_make_answer_record(answer, result, recipe) for answer in answers))
    write_lines(folder / SCORES, ({"id": answer.item, "scores": answer.scores} for answer in answers))
    names = list(dict.fromkeys(name for answer in answers for name in answer.scores))
    by_metric = {name: [answer.scores.get(name) for answer in answers] for name in names}
    unscored = [answer for answer in answers if all(value is None for value in answer.scores.values())]
    failed = Counter("failed" if answer.error else "unscored" for answer in unscored)
    judges = list(dict.fromkeys(result.judges.values()))
    judge = {"model": ", ".join(judges), "recipe": digest(*judges, result.settings)} if judges else None
    summary = {
        "task": result.task,
        "model": result.model,
        "metrics": {
            name: mean_metric([value for value in values if value is not None], "share")
            for name, values in by_metric.items()
        },
        "n_expected": len(answers),
        "n_scored": len(answers) - len(unscored),
        "n_failed": failed,
        "counted": "prompts",
        "comparable": True,
        "compared_with": "",
        "remarks": (*result.remarks, *_describe_mean_mismatches(result)),
        "complete": not failed,
        "missing": failed,
        "judge": judge,
        "imported": {"from": result.tool, "judges": result.judges, "reported": result.reported},
        "coeval_version": __version__,
    }
    write_json_atomic(folder / SUMMARY, summary)


def _make_answer_record(answer: ForeignAnswer, result: ForeignResult, recipe: str) -> dict[str, Any]:
    """Return an answer as a line of ``responses.jsonl``."""
    failed = answer.answer is None
    record = Answer(
        id=answer.item,
        prompt=answer.prompt,
        response=answer.answer,
        model=result.model,
        recipe=recipe,
        input_hash=digest("user", text) if (text := answer.matched_by or answer.prompt) else "",
        usage=answer.usage,
        latency_s=answer.latency_s,
        status="failed" if failed else "ok",
        error=Failure(result.tool, answer.error or "the file holds no answer") if failed else None,
    )
    return msgspec.to_builtins(record)  # type: ignore[no-any-return]


def _describe_mean_mismatches(result: ForeignResult) -> list[str]:
    """Say for each metric if its mean over items differs from the other tool's."""
    differences = []
    for name, reported in result.reported.items():
        by_item: defaultdict[str, list[float]] = defaultdict(list)
        for answer in result.answers:
            if (value := answer.scores.get(name)) is not None:
                by_item[answer.item].append(value)
        if not by_item:
            continue
        mean = math.fsum(math.fsum(values) / len(values) for values in by_item.values()) / len(by_item)
        if not math.isclose(mean, reported, rel_tol=1e-9, abs_tol=1e-9):
            differences.append(
                f"{result.tool} reports {name} {reported:.4f}; the items' scores have the mean {mean:.4f}"
            )
    return differences
