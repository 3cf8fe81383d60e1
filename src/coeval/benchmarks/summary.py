"""``summary.json`` and ``scores.jsonl``: what a task came to, with all it takes to judge the figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from coeval import __version__
from coeval.benchmarks.asked import AssetUsed, Evaluation
from coeval.benchmarks.base import Metric, Scored
from coeval.benchmarks.given import GivenCounts
from coeval.benchmarks.job import Job
from coeval.core.records import Kept
from coeval.store.jsonl import write_bytes_atomic, write_json_atomic
from coeval.store.rundir import now

OF_INFERENCE = "only responses were asked for (--inference-only); judge them with --judge-only"


class Asked(msgspec.Struct, frozen=True):
    """A model in one role: what it was asked with, and what that took; ``calls`` counts askings."""

    model: str
    sampling: dict[str, Any]
    recipe: str
    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: float | None
    is_tested_model: bool | None = None


class Truncated(msgspec.Struct, frozen=True):
    """Answers cut off by the limit on tokens; ``share`` is of the good ones."""

    n: int
    share: float | None


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """A task's ``summary.json``.

    ``complete`` says that nothing is owed any more; ``missing`` counts records without a value by
    reason. ``given`` is there where the responses come from a file. ``comparable`` is false where
    ``reasons`` say why the figures are not those of the published setup.
    """

    task: str
    model: str
    metrics: dict[str, Metric]
    n_expected: int
    n_scored: int
    n_failed: dict[str, int]
    comparable: bool
    reasons: tuple[str, ...]
    complete: bool
    missing: dict[str, int]
    given: GivenCounts | None
    inference: Asked | None
    judge: Asked | None
    seed: int
    run: int | None
    truncated: Truncated
    tables: dict[str, Any]
    assets: dict[str, AssetUsed]
    coeval_version: str
    written_at: str


def summarise(
    job: Job, scored: Scored | None, evaluation: Evaluation, assets: Mapping[str, AssetUsed]
) -> Summary:
    """The task's summary; ``scored`` is None where its answers are still to be judged."""
    missing = job.missing()
    reasons = _reasons(job, scored, assets)
    answers = [record for item in job.items if (record := job.answers.get(item.id)) is not None]
    good = [record for record in answers if record.status == "ok"]
    cut = sum(record.truncated for record in good)
    return Summary(
        task=job.task,
        model=next((record.model for record in answers), job.benchmark.settings.model),
        metrics=scored.metrics if scored is not None else {},
        n_expected=scored.n_expected if scored is not None else len(job.items),
        n_scored=scored.n_scored if scored is not None else 0,
        n_failed=scored.n_failed if scored is not None else {},
        comparable=not reasons,
        reasons=reasons,
        complete=not missing and scored is not None,
        missing=missing,
        given=job.given,
        inference=_inference(job),
        judge=_judge(job),
        seed=evaluation.seed,
        run=job.run,
        truncated=Truncated(cut, cut / len(good) if good else None),
        tables=scored.tables if scored is not None else {},
        assets=dict(assets),
        coeval_version=__version__,
        written_at=now(),
    )


def write(job: Job, scored: Scored | None, summary: Summary) -> None:
    """``scores.jsonl`` (one line per item, with its judgments) and ``summary.json``, each replaced whole."""
    if scored is not None:
        judgments: dict[str, list[dict[str, Any]]] = {}
        for key in job.wanted:
            if (record := job.judgments.get(key)) is not None:
                shown = {"id": key, "judge": record.judge, "value": record.value, "raw": record.raw}
                if record.error is not None:
                    shown["error"] = msgspec.to_builtins(record.error)
                judgments.setdefault(record.item, []).append(shown)
        lines = bytearray()
        for item in job.items:
            line: dict[str, Any] = {"id": item.id, "scores": scored.items.get(item.id, {})}
            if job.judge is not None:
                line["judgments"] = judgments.get(item.id, [])
            lines += msgspec.json.encode(line) + b"\n"
        write_bytes_atomic(job.folder.scores, bytes(lines))
    write_json_atomic(job.folder.summary, summary)


def _inference(job: Job) -> Asked | None:
    records = [record for item in job.items if (record := job.answers.get(item.id)) is not None]
    if not records:
        return None
    last = records[-1]
    return _asked(last.model, last.sampling or {}, last.recipe, records)


def _judge(job: Job) -> Asked | None:
    judge, settings = job.judge, job.benchmark.settings.judge
    if judge is None or settings is None:
        return None
    records = [record for key in job.wanted if (record := job.judgments.get(key)) is not None]
    asked = _asked(judge.model, judge.sampling, judge.recipe, records)
    return msgspec.structs.replace(asked, is_tested_model=settings.is_tested_model)


def _asked(model: str, sampling: dict[str, Any], recipe: str, records: Iterable[Kept]) -> Asked:
    calls = used = made = 0
    cost: float | None = 0.0
    for record in records:
        calls += record.attempts
        if record.usage is not None:
            used += record.usage.input_tokens
            made += record.usage.output_tokens
            known = cost is not None and record.usage.cost_usd is not None
            cost = (cost or 0.0) + (record.usage.cost_usd or 0.0) if known else None
    return Asked(model, sampling, recipe, calls, used, made, cost if calls else None)


def _reasons(job: Job, scored: Scored | None, assets: Mapping[str, AssetUsed]) -> tuple[str, ...]:
    """Why the figures are not the published ones: what every task has in common, then its own."""
    reasons = [] if scored is not None else [job.problem or OF_INFERENCE]
    benchmark, judge = job.benchmark, job.judge
    settings = benchmark.settings.judge
    if len(job.items) < job.n_prompts:
        reasons.append(f"only the first {len(job.items):,} of {job.n_prompts:,} prompts (--max-examples)")
    reasons += [
        f"{name} is a copy of your own: {used.path}" for name, used in assets.items() if not used.official
    ]
    if judge is not None and settings is not None:
        if settings.is_tested_model:
            reasons.append("the tested model judged itself; name a judge with --judge-model")
        elif benchmark.official_judge and judge.model != benchmark.official_judge:
            reasons.append(f"judged by {judge.model}; published numbers are by {benchmark.official_judge}")
        if judge.sampling != (official := benchmark.judge_sampling()):
            names = sorted(
                n for n in {*judge.sampling, *official} if judge.sampling.get(n) != official.get(n)
            )
            reasons.append(f"the judge's sampling is not the official one: {', '.join(names)}")
    if missing := job.missing():
        shown = ", ".join(f"{count} {reason}" for reason, count in missing.items())
        reasons.append(f"records without a value: {shown}")
    return tuple(reasons) + (scored.reasons if scored is not None else ())
