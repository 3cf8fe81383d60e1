"""Why a task's figures cannot be held against published ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import assert_never

from coeval.analysis.cut_off import CutOffAnswers
from coeval.benchmarks.assets.library import AssetOrigin
from coeval.benchmarks.benchmark import Answer, Judgment, Scored
from coeval.benchmarks.run.eval_spec import AssetUsed
from coeval.benchmarks.run.task_run import TaskRun
from coeval.core.good import is_good
from coeval.core.records import Kept

__all__ = ["OF_INFERENCE", "count_dropped", "reasons"]

OF_INFERENCE = "only responses were asked for (--inference-only); judge them with --judge-only"


def reasons(
    task_run: TaskRun, scored: Scored | None, assets: Mapping[str, AssetUsed], cut: CutOffAnswers
) -> tuple[str, ...]:
    """Sentences without an end, for a list; none where the figures can be compared.

    First what every task has in common, then what the benchmark has to say of its own.
    """
    found = [] if scored is not None else [task_run.problem or OF_INFERENCE]
    found += [*_of_data(task_run, assets), *_of_judge(task_run), *_of_records(task_run, cut)]
    return (*found, *(scored.reasons if scored is not None else ()))


def count_dropped(records: Iterable[Kept]) -> Counter[str]:
    """By sampling parameter that the host refused: how many of the good records were made without it."""
    return Counter(name for record in records if is_good(record) for name in record.dropped)


def _of_data(task_run: TaskRun, assets: Mapping[str, AssetUsed]) -> Iterator[str]:
    if len(task_run.items) < task_run.n_prompts:
        yield f"only the first {len(task_run.items):,} of {task_run.n_prompts:,} prompts (--max-examples)"
    for name, used in assets.items():
        match used.origin:
            case AssetOrigin.GIVEN:
                yield f"{name} is a copy of your own: {used.path}"
            case AssetOrigin.UNVERIFIED:
                yield f"{name} is not the file that is published, or changed while it was read: {used.path}"
            case AssetOrigin.OFFICIAL:
                pass
            case _:
                assert_never(used.origin)


def _of_judge(task_run: TaskRun) -> Iterator[str]:
    benchmark, judge, settings = task_run.benchmark, task_run.judge, task_run.benchmark.settings.judge
    if judge is None or settings is None:
        return
    if settings.is_tested_model:
        yield "the tested model judged itself; name a judge with --judge-model"
    elif benchmark.official_judge and judge.model != benchmark.official_judge:
        yield f"judged by {judge.model}; published numbers are by {benchmark.official_judge}"
    sampling, official = judge.sampling.named(), benchmark.judge_sampling().named()
    if sampling != official:
        names = sorted(n for n in {*sampling, *official} if sampling.get(n) != official.get(n))
        yield f"the judge's sampling is not the official one: {', '.join(names)}"


def _of_records(task_run: TaskRun, cut: CutOffAnswers) -> Iterator[str]:
    if cut.too_many:
        yield cut.reason
    for what, records in (
        ("answers", task_run.recorded_answers()),
        ("judgments", task_run.recorded_judgments()),
    ):
        yield from _refused(what, records)
    if missing := task_run.missing():
        shown = ", ".join(f"{count} {reason}" for reason, count in missing.items())
        yield f"records without a value: {shown}"


def _refused(what: str, records: Sequence[Answer] | Sequence[Judgment]) -> Iterator[str]:
    good = sum(map(is_good, records))
    for name, count in sorted(count_dropped(records).items()):
        yield f"the host refused {name}: {count:,} of {good:,} {what} were made without it"
