"""Why a task's figures cannot be held against published ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import assert_never

from coeval.analysis.cut_off import CutOff
from coeval.benchmarks.assets.library import Origin
from coeval.benchmarks.base import Answer, Judgment, Scored
from coeval.benchmarks.run.eval_spec import AssetUsed
from coeval.benchmarks.run.task_run import Job
from coeval.core.records import Kept

__all__ = ["OF_INFERENCE", "count_dropped", "reasons"]

OF_INFERENCE = "only responses were asked for (--inference-only); judge them with --judge-only"


def reasons(job: Job, scored: Scored | None, assets: Mapping[str, AssetUsed], cut: CutOff) -> tuple[str, ...]:
    """Sentences without an end, for a list; none where the figures can be compared.

    First what every task has in common, then what the benchmark has to say of its own.
    """
    found = [] if scored is not None else [job.problem or OF_INFERENCE]
    found += [*_of_data(job, assets), *_of_judge(job), *_of_records(job, cut)]
    return (*found, *(scored.reasons if scored is not None else ()))


def count_dropped(records: Iterable[Kept]) -> Counter[str]:
    """By sampling parameter that the host refused: how many of the good records were made without it."""
    return Counter(name for record in records if record.status == "ok" for name in record.dropped)


def _of_data(job: Job, assets: Mapping[str, AssetUsed]) -> Iterator[str]:
    if len(job.items) < job.n_prompts:
        yield f"only the first {len(job.items):,} of {job.n_prompts:,} prompts (--max-examples)"
    for name, used in assets.items():
        match used.origin:
            case Origin.GIVEN:
                yield f"{name} is a copy of your own: {used.path}"
            case Origin.UNVERIFIED:
                yield f"{name} is not the file that is published, or changed while it was read: {used.path}"
            case Origin.OFFICIAL:
                pass
            case _:
                assert_never(used.origin)


def _of_judge(job: Job) -> Iterator[str]:
    benchmark, judge, settings = job.benchmark, job.judge, job.benchmark.settings.judge
    if judge is None or settings is None:
        return
    if settings.is_tested_model:
        yield "the tested model judged itself; name a judge with --judge-model"
    elif benchmark.official_judge and judge.model != benchmark.official_judge:
        yield f"judged by {judge.model}; published numbers are by {benchmark.official_judge}"
    if judge.sampling != (official := benchmark.judge_sampling()):
        names = sorted(n for n in {*judge.sampling, *official} if judge.sampling.get(n) != official.get(n))
        yield f"the judge's sampling is not the official one: {', '.join(names)}"


def _of_records(job: Job, cut: CutOff) -> Iterator[str]:
    if cut.too_many:
        yield cut.reason
    for what, records in (("answers", job.recorded_answers()), ("judgments", job.recorded_judgments())):
        yield from _refused(what, records)
    if missing := job.missing():
        shown = ", ".join(f"{count} {reason}" for reason, count in missing.items())
        yield f"records without a value: {shown}"


def _refused(what: str, records: Sequence[Answer] | Sequence[Judgment]) -> Iterator[str]:
    good = sum(record.status == "ok" for record in records)
    for name, count in sorted(count_dropped(records).items()):
        yield f"the host refused {name}: {count:,} of {good:,} {what} were made without it"
