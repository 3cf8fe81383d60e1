"""Outcome of an evaluation; ``summary.json`` and ``scores.jsonl``: a task's figures, and all that is needed
to judge them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from coeval import __version__
from coeval.analysis.doubtful_answers import CutOffAnswers, ServedModel, find_stand_ins_and_mixtures
from coeval.analysis.run_results import ModelCost, read_model_costs
from coeval.benchmarks.assets.library import AssetOrigin, AssetUsed
from coeval.benchmarks.benchmark import Metric, Scored
from coeval.benchmarks.run.eval_estimate import refuse_too_dear_unless_begun
from coeval.benchmarks.run.eval_spec import EvalSpec
from coeval.benchmarks.run.runner import (
    EndOfAsking,
    Prepared,
    error_file,
    lock_folders_and_merge_shards,
    usage_file,
)
from coeval.benchmarks.run.task_folder import SuppliedCounts
from coeval.benchmarks.run.task_run import RecordCounts, TaskRun
from coeval.core.errors import GAPS, INTERRUPTED
from coeval.core.records import Kept, Usage, is_good
from coeval.core.text import pluralize
from coeval.engine.model_work import Recipe
from coeval.engine.session import write_log
from coeval.models.batch.job_list import PendingJob
from coeval.store.jsonl import write_json_atomic, write_lines
from coeval.store.rundir import utc_now

# --- Reasons why figures are not comparable with published ones

OF_INFERENCE = "only responses were requested (--inference-only); judge them with --judge-only"


def list_incomparable_reasons(
    task_run: TaskRun, scored: Scored | None, assets: Mapping[str, AssetUsed], cut: CutOffAnswers
) -> tuple[str, ...]:
    """List why figures are not comparable, as clauses: common reasons, then the benchmark's own."""
    if scored is None:
        first = [task_run.problem or OF_INFERENCE]
    else:
        first = [f"not measured: {why}"] if (why := task_run.describe_failures_of_most_records()) else []
    common = (*_data_reasons(task_run, assets), *_judge_reasons(task_run), *_record_reasons(task_run, cut))
    return (*first, *common, *(scored.reasons if scored is not None else ()))


def count_dropped_by_parameter(records: Iterable[Kept]) -> Counter[str]:
    """Count good records by the sampling parameter that the host refused."""
    return Counter(name for record in records if is_good(record) for name in record.dropped)


def _data_reasons(task_run: TaskRun, assets: Mapping[str, AssetUsed]) -> Iterator[str]:
    if len(task_run.items) < task_run.n_prompts:
        yield f"only the first {len(task_run.items):,} of {task_run.n_prompts:,} prompts (--max-examples)"
    for name, used in assets.items():
        if used.origin is not AssetOrigin.OFFICIAL:
            what = "your own copy" if used.origin is AssetOrigin.GIVEN else "not the file that is published"
            yield f"{name} is {what}: {Path(used.path).name} (sha256 {used.sha256[:12]})"


def _judge_reasons(task_run: TaskRun) -> Iterator[str]:
    benchmark, judge, settings = task_run.benchmark, task_run.judge, task_run.benchmark.settings.judge
    if judge is None or settings is None:
        return
    if settings.is_tested_model:
        yield "the tested model judged itself; name another judge with --judge-model"
    elif benchmark.official_judge and judge.model != benchmark.official_judge:
        yield f"judged by {judge.model}; published numbers are by {benchmark.official_judge}"
    sampling, official = judge.sampling.to_dict(), benchmark.judge_sampling().to_dict()
    if sampling != official:
        names = sorted(n for n in {*sampling, *official} if sampling.get(n) != official.get(n))
        yield f"the judge's sampling is not the official one: {', '.join(names)}"


def _record_reasons(task_run: TaskRun, cut: CutOffAnswers) -> Iterator[str]:
    if cut.are_too_many:
        yield cut.reason
    records_by_kind: dict[str, Sequence[Kept]] = {
        "answers": task_run.recorded_answers(),
        "judgments": task_run.recorded_judgments(),
    }
    for kind, records in records_by_kind.items():
        good = sum(map(is_good, records))
        for name, count in sorted(count_dropped_by_parameter(records).items()):
            if name != "seed":  # no benchmark prescribes one
                yield f"the host refused {name}: {count:,} of {good:,} {kind} were made without it"
    yield from (served.came_from_clause for served in _find_stand_ins_and_mixtures(task_run) if served.others)
    if missing := task_run.count_missing_by_reason():
        counts = ", ".join(f"{count} {reason}" for reason, count in missing.items())
        yield f"records without a value: {counts}"


def _find_stand_ins_and_mixtures(task_run: TaskRun) -> Iterator[ServedModel]:
    """Find cases where other models, or several, answered in place of the tested model or the judge."""
    answers = [("student", answer.model, answer) for answer in task_run.recorded_answers()]
    judgments = [("judge", judgment.judge, judgment) for judgment in task_run.recorded_judgments()]
    rows = [
        (role, task_run.task, name, record.served_by, record.served_as, 1)
        for role, name, record in (*answers, *judgments)
        if is_good(record)
    ]
    requested = {role.name: (role.name, role.model) for role in (task_run.tested, task_run.judge) if role}
    return find_stand_ins_and_mixtures(rows, requested)


class Requested(msgspec.Struct, frozen=True):
    """A model in one role: what was sent, and its usage; ``calls`` counts requests. ``recipe`` is the hash of
    its settings, and ``parts`` their values, where known. ``dropped`` counts good records by a sampling
    parameter that the host refused; ``sampling`` was sent for all of them."""

    model: str
    sampling: dict[str, Any]
    recipe: str
    parts: dict[str, str]
    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: float | None
    dropped: dict[str, int] = {}
    is_tested_model: bool | None = None


class Truncated(msgspec.Struct, frozen=True):
    """Number of answers cut off, of all good ones; ``by_window`` by their server's window, not max_tokens."""

    n: int
    answers: int
    share: float | None
    by_window: int


class Empty(msgspec.Struct, frozen=True):
    """Number of empty answers, of all good ones; ``truncated`` of them by max_tokens. They are scored too."""

    n: int
    answers: int
    share: float | None
    truncated: int


class TaskSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A task's ``summary.json``.

    ``counted`` is the unit of ``n_expected``, ``n_scored`` and ``n_failed``; the ``n`` of a metric counts
    prompts. ``complete``: nothing is missing; ``missing`` counts records without a value by reason. ``given``
    exists where responses come from a file. ``comparable`` is false where ``reasons`` say why the figures
    cannot be compared with those that ``compared_with`` names; ``remarks`` are other notes. With
    ``not_measured``, the failures that left no score, every figure is null.
    """

    task: str
    model: str
    metrics: dict[str, Metric]
    n_expected: int
    n_scored: int
    n_failed: dict[str, int]
    counted: str
    comparable: bool
    compared_with: str
    reasons: tuple[str, ...]
    remarks: tuple[str, ...]
    complete: bool
    missing: dict[str, int]
    not_measured: str
    given: SuppliedCounts | None
    inference: Requested | None
    judge: Requested | None
    seed: int | None
    run: int | None
    truncated: Truncated
    empty: Empty
    tables: dict[str, Any]
    assets: dict[str, AssetUsed]
    coeval_version: str
    written_at: str

    @property
    def requestable_missing(self) -> Counter[str]:
        """Count, by reason, what the same command will request: all but the responses that a file lacks."""
        without_response = self.given.missing if self.given is not None else 0
        return Counter(self.missing) - Counter(missing=without_response)

    @property
    def gap(self) -> str | None:
        """Return what is missing and how that counts, in words; None if nothing is."""
        if not self.missing:
            return None
        if self.not_measured:
            return f"not measured: {self.not_measured}"
        counts = [f"{count:,} {reason}" for reason, count in self.requestable_missing.items()]
        if self.given is not None and self.given.missing:
            counts.insert(0, f"{self.given.missing:,} missing (add the responses to the file)")
        counted = "counted as not followed" if self.task in ("ifeval", "ifbench") else "without a value"
        return f"{counted}: {', '.join(counts)}"


def make_summary(
    task_run: TaskRun, scored: Scored | None, evaluation: EvalSpec, assets: Mapping[str, AssetUsed]
) -> TaskSummary:
    """Make the task's summary; ``scored`` is None while answers are still to be judged."""
    missing = task_run.count_missing_by_reason()
    answers = task_run.recorded_answers()
    cut, empty = task_run.count_cut_off(), task_run.count_empty()
    why = list_incomparable_reasons(task_run, scored, assets, cut)
    return TaskSummary(
        task=task_run.task,
        model=next((record.model for record in answers), task_run.benchmark.settings.model),
        metrics=scored.metrics if scored is not None else {},
        n_expected=scored.n_expected if scored is not None else len(task_run.items),
        n_scored=scored.n_scored if scored is not None else 0,
        n_failed=scored.n_failed if scored is not None else {},
        counted=task_run.benchmark.counted if scored is not None else "prompts",
        comparable=not why,
        compared_with=task_run.benchmark.compared_with,
        reasons=why,
        remarks=scored.remarks if scored is not None else (),
        complete=not missing and scored is not None,
        missing=missing,
        not_measured=task_run.describe_failures_of_most_records() if scored is not None else "",
        given=task_run.given,
        inference=_inference_usage(task_run),
        judge=_judge_usage(task_run),
        seed=evaluation.seed,
        run=task_run.run,
        truncated=Truncated(cut.cut, cut.answers, _share(cut.cut, cut.answers), cut.by_window),
        empty=Empty(empty.empty, empty.answers, _share(empty.empty, empty.answers), empty.truncated),
        tables=scored.tables if scored is not None else {},
        assets=dict(assets),
        coeval_version=__version__,
        written_at=utc_now(),
    )


def _share(count: int, total: int) -> float | None:
    return count / total if total else None


def write_scores_and_summary(task_run: TaskRun, scored: Scored | None, summary: TaskSummary) -> None:
    """Write ``scores.jsonl`` (a line per item, with its judgments) and ``summary.json``, each atomically."""
    if scored is not None:
        judgments: dict[str, list[dict[str, Any]]] = {}
        for key in task_run.needed:
            if (record := task_run.judgments.get(key)) is not None:
                row = {"id": key, "judge": record.judge, "value": record.value, "raw": record.raw}
                if record.error is not None:
                    row["error"] = msgspec.to_builtins(record.error)
                judgments.setdefault(record.item, []).append(row)
        lines = []
        for item in task_run.items:
            line: dict[str, Any] = {"id": item.id, "scores": scored.items.get(item.id, {})}
            if weights := scored.weights.get(item.id):
                line["weights"] = weights
            if task_run.judge is not None:
                line["judgments"] = judgments.get(item.id, [])
            lines.append(line)
        write_lines(task_run.folder.scores, lines)
    write_json_atomic(task_run.folder.summary, summary)


def _inference_usage(task_run: TaskRun) -> Requested | None:
    records = task_run.recorded_answers()
    if not records:
        return None
    good = [record for record in records if is_good(record)]
    last = (good or records)[-1]
    requested = task_run.tested.sampling.to_dict() if task_run.tested is not None else {}
    if task_run.tested is not None and task_run.tested.recipe.hash == last.recipe:
        made = task_run.tested.recipe
    else:
        made = Recipe(last.recipe, task_run.folder.read_recipe_parts_from_summary(last.recipe))
    return _sum_usage(last.model, requested if last.sampling is None else last.sampling, made, records)


def _judge_usage(task_run: TaskRun) -> Requested | None:
    judge, settings = task_run.judge, task_run.benchmark.settings.judge
    if judge is None or settings is None:
        return None
    requested = _sum_usage(judge.model, judge.sampling.to_dict(), judge.recipe, task_run.recorded_judgments())
    return msgspec.structs.replace(requested, is_tested_model=settings.is_tested_model)


def _sum_usage(model: str, sampling: dict[str, Any], recipe: Recipe, records: Sequence[Kept]) -> Requested:
    calls = sum(record.attempts for record in records)
    usages = (record.usage for record in records if record.usage is not None)
    used = sum(usages, start=Usage(cost_usd=0.0))
    dropped = count_dropped_by_parameter(records)
    sent = {name: value for name, value in sampling.items() if name not in dropped}
    cost_usd = used.cost_usd if calls else None
    return Requested(
        model, sent, *recipe, calls, used.input_tokens, used.output_tokens, cost_usd, dict(dropped)
    )


# --- Outcome of an evaluation: scored tasks, or their progress


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """A task's summary, the problem that prevented one, or the progress of an interrupted evaluation."""

    label: str
    folder: Path
    summary: TaskSummary | None
    problem: str | None = None
    left_at: RecordCounts | None = None

    @property
    def gap(self) -> str | None:
        if self.problem is not None:
            return self.problem
        if (counts := self.left_at) is not None:
            answers = f"{counts.answers:,} of {counts.prompts:,} answers"
            judgments = f" and {counts.judgments:,} of {counts.judgments_needed:,} judgments"
            return f"stopped: {answers}{judgments if counts.judgments_needed else ''} are there"
        return self.summary.gap if self.summary is not None else None


@dataclass(slots=True)
class Outcome:
    """Outcome of an evaluation; ``stopped`` and ``interrupted`` as in `EndOfAsking`. Without tasks it was
    interrupted before the first request. ``errors`` is the file of failures, if any; ``costs`` the cost of
    the folder's models so far; ``batches`` the jobs still running."""

    tasks: list[TaskOutcome] = field(default_factory=list)
    stopped: Mapping[str, str] = field(default_factory=dict)
    interrupted: bool = False
    errors: Path | None = None
    costs: Sequence[ModelCost] = ()
    batches: Sequence[PendingJob] = ()

    @property
    def gaps(self) -> tuple[str, ...]:
        """List what is missing, task by task; models that were given up, and batch jobs still at work."""
        lacking = (f"{task.label}: {gap}" for task in self.tasks if (gap := task.gap) is not None)
        jobs = [f"{pluralize(len(self.batches), 'batch job')} at work"] if self.batches else []
        return (*lacking, *self.stopped.values(), *jobs)

    @property
    def exit_code(self) -> int:
        """Return 0 if complete, 3 with gaps or a failed task, 130 if interrupted."""
        if self.interrupted:
            return INTERRUPTED
        gaps = (task.problem or (task.summary is not None and task.summary.missing) for task in self.tasks)
        return GAPS if any(gaps) or self.batches else 0


@contextmanager
def lock_affordable_output_folder(prepared: Prepared, log_level: str = "INFO") -> Iterator[None]:
    """Create the output folder, write its log and lock its tasks; a new folder that stays empty is removed.
    Raises UsageError: another process is at work in it, or even the least cost exceeds the budget."""
    output = prepared.evaluation.output
    made = [path for path in (output, *output.parents) if not path.exists()]
    output.mkdir(parents=True, exist_ok=True)
    try:
        with write_log(output / "run.log", log_level), lock_folders_and_merge_shards(prepared):
            refuse_too_dear_unless_begun(prepared)
            yield
    finally:
        with suppress(OSError):
            for path in made:
                path.rmdir()


def conclude(prepared: Prepared, ended: EndOfAsking) -> Outcome:
    """Score complete tasks, write their files, and count what the others miss; the folders are locked by
    `lock_folders_and_merge_shards`. Raises StoreError: a file cannot be written; what was recorded
    stays."""
    errors = error_file(prepared.evaluation)
    costs = read_model_costs(usage_file(prepared.evaluation))
    outcome = Outcome(
        [], ended.stopped, ended.interrupted, errors if errors.exists() else None, costs, ended.batches
    )
    for task_run in prepared.task_runs if ended.begun else ():
        whole = not ended.interrupted or task_run.is_every_record_good_or_failed()
        outcome.tasks.append(
            _score_and_write(task_run, prepared)
            if whole
            else TaskOutcome(task_run.label, task_run.folder.path, None, left_at=task_run.count_good())
        )
    return outcome


def _score_and_write(task_run: TaskRun, prepared: Prepared) -> TaskOutcome:
    evaluation = prepared.evaluation
    waits = evaluation.mode == "inference" and task_run.benchmark.is_judged
    scored = None if waits else task_run.score_and_write_extra()
    if scored is None and not waits:
        return TaskOutcome(task_run.label, task_run.folder.path, None, task_run.problem)
    summary = make_summary(task_run, scored, evaluation, prepared.assets[task_run.task])
    write_scores_and_summary(task_run, scored, summary)
    return TaskOutcome(task_run.label, task_run.folder.path, summary)
