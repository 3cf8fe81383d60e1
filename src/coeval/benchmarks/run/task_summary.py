"""``summary.json`` and ``scores.jsonl``: what a task came to, with all it takes to judge the figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from coeval import __version__
from coeval.benchmarks.base import Metric, Scored
from coeval.benchmarks.run.comparable import count_dropped, reasons
from coeval.benchmarks.run.eval_spec import AssetUsed, Evaluation
from coeval.benchmarks.run.given_responses import GivenCounts
from coeval.benchmarks.run.task_run import Job
from coeval.core.records import Kept
from coeval.store.jsonl import write_bytes_atomic, write_json_atomic
from coeval.store.rundir import now


class Asked(msgspec.Struct, frozen=True):
    """A model in one role: what it was sent, and what that took; ``calls`` counts askings.

    ``dropped`` counts the good records that were made without a sampling parameter, by its name, since
    the host refused it; ``sampling`` holds what was sent for all of them.
    """

    model: str
    sampling: dict[str, Any]
    recipe: str
    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: float | None
    dropped: dict[str, int] = {}
    is_tested_model: bool | None = None


class Truncated(msgspec.Struct, frozen=True):
    """Answers cut off by the limit on tokens, of so many good ones."""

    n: int
    answers: int
    share: float | None


class Empty(msgspec.Struct, frozen=True):
    """Answers without any text, of so many good ones; ``truncated`` of them were cut off by the limit on
    tokens. They count like all others."""

    n: int
    answers: int
    share: float | None
    truncated: int


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """A task's ``summary.json``.

    ``counted`` is the unit of ``n_expected``, ``n_scored`` and ``n_failed``; the ``n`` of a metric counts
    prompts. ``complete`` says that nothing is owed any more; ``missing`` counts records without a value by
    reason. ``given`` is there where the responses come from a file. ``comparable`` is false where
    ``reasons`` say why the figures cannot be held against those that ``compared_with`` names; ``remarks``
    say what else to know of them.
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
    given: GivenCounts | None
    inference: Asked | None
    judge: Asked | None
    seed: int
    run: int | None
    truncated: Truncated
    empty: Empty
    tables: dict[str, Any]
    assets: dict[str, AssetUsed]
    coeval_version: str
    written_at: str


def summarise(
    job: Job, scored: Scored | None, evaluation: Evaluation, assets: Mapping[str, AssetUsed]
) -> Summary:
    """The task's summary; ``scored`` is None where its answers are still to be judged."""
    missing = job.missing()
    answers = job.recorded_answers()
    cut, empty = job.cut_off(), job.empty_answers()
    why = reasons(job, scored, assets, cut)
    return Summary(
        task=job.task,
        model=next((record.model for record in answers), job.benchmark.settings.model),
        metrics=scored.metrics if scored is not None else {},
        n_expected=scored.n_expected if scored is not None else len(job.items),
        n_scored=scored.n_scored if scored is not None else 0,
        n_failed=scored.n_failed if scored is not None else {},
        counted=job.benchmark.counted if scored is not None else "prompts",
        comparable=not why,
        compared_with=job.benchmark.compared_with,
        reasons=why,
        remarks=scored.remarks if scored is not None else (),
        complete=not missing and scored is not None,
        missing=missing,
        given=job.given,
        inference=_inference(job),
        judge=_judge(job),
        seed=evaluation.seed,
        run=job.run,
        truncated=Truncated(cut.cut, cut.answers, _share(cut.cut, cut.answers)),
        empty=Empty(empty.empty, empty.answers, _share(empty.empty, empty.answers), empty.truncated),
        tables=scored.tables if scored is not None else {},
        assets=dict(assets),
        coeval_version=__version__,
        written_at=now(),
    )


def _share(count: int, of: int) -> float | None:
    return count / of if of else None


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
    records = job.recorded_answers()
    if not records:
        return None
    good = [record for record in records if record.status == "ok"]
    last = (good or records)[-1]
    asked = job.tested.sampling if job.tested is not None else {}
    return _asked(last.model, asked if last.sampling is None else last.sampling, last.recipe, records)


def _judge(job: Job) -> Asked | None:
    judge, settings = job.judge, job.benchmark.settings.judge
    if judge is None or settings is None:
        return None
    asked = _asked(judge.model, judge.sampling, judge.recipe, job.recorded_judgments())
    return msgspec.structs.replace(asked, is_tested_model=settings.is_tested_model)


def _asked(model: str, sampling: dict[str, Any], recipe: str, records: Sequence[Kept]) -> Asked:
    calls = used = made = 0
    cost: float | None = 0.0
    for record in records:
        calls += record.attempts
        if record.usage is not None:
            used += record.usage.input_tokens
            made += record.usage.output_tokens
            known = cost is not None and record.usage.cost_usd is not None
            cost = (cost or 0.0) + (record.usage.cost_usd or 0.0) if known else None
    dropped = count_dropped(records)
    sent = {name: value for name, value in sampling.items() if name not in dropped}
    return Asked(model, sent, recipe, calls, used, made, cost if calls else None, dict(dropped))
