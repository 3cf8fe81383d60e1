"""What batch jobs cost: a judge by batches, asked about answers that stand on disk."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from perf.measure import ROOT, Cost, coeval, experiment, run, serving
from perf.scenarios import GO_ON, RUN, Figures, renumbered, requested_at

_COPIED = 1_000
LARGE, SMALL = 200_000, 20_000


def batched_200_thousand(folder: Path) -> Figures:
    """200,000 judgments by batch jobs, from the start of the run to its table, beside 20,000."""
    costs, reported = {}, {}
    for items in (SMALL, LARGE):
        below = folder / str(items)
        below.mkdir()
        costs[items], reported[items] = _judged(below, items)
    few, many = costs[SMALL], costs[LARGE]
    us = (many.cpu_s - few.cpu_s) / (LARGE - SMALL) * 1e6
    grown = (many.rss_mb - few.rss_mb) / (LARGE - SMALL) * 1e6
    return Figures(
        many.rss_mb / few.rss_mb,
        f"{reported[LARGE]} in {many.wall_s:.0f} s and {many.cpu_s:.0f} s of CPU, peak {many.rss_mb:.0f} MB; "
        f"{reported[SMALL]}: {few.wall_s:.0f} s, {few.cpu_s:.0f} s, {few.rss_mb:.0f} MB; "
        f"each further request: {us:.0f} µs of CPU, {grown:.0f} bytes",
    )


def _judged(folder: Path, items: int) -> tuple[Cost, str]:
    """What it costs to judge the answers of a run by batches, and the jobs that it took."""
    models: dict[str, Any]
    with serving(0.0) as url:
        models = {"teacher": requested_at(url, ["teacher"]), "student": requested_at(url, ["student"])}
        judge = {"judge": requested_at(url, ["judge"])}
        (folder / "e.yaml").write_text(experiment("batched", models | judge, 1, _COPIED))
        run(coeval(*RUN, "--probe", "disable"), folder)
    for path in folder.glob("runs/batched/phase5*/*.jsonl"):
        path.unlink()
    for path in folder.glob("runs/batched/phase[34]*/*.jsonl"):
        lines = path.read_bytes()
        with path.open("ab") as file:
            for first in range(_COPIED, items, _COPIED):
                file.write(renumbered(lines, first))
    (folder / "uploads").mkdir()
    with _batching(folder) as (url, reported):
        batched = {
            "interface": "openai",
            "roles": ["judge"],
            "batch_enabled": True,
            "access_key": "sk-none-of-yours",
            "parameters": {"base_url": url, "model": "gpt-4o-mini"},
        }
        poll = {"batch_poll_s": [0.5, 2.0]}
        (folder / "e.yaml").write_text(experiment("batched", models | {"judge": batched}, 1, items, **poll))
        cost = run(coeval(*GO_ON, "--keep-changed"), folder)
    return cost, reported[0]


@contextmanager
def _batching(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """The host of batch jobs in a process of its own; what it says at its end comes into the list."""
    process = subprocess.Popen(
        [sys.executable, "-m", "perf.batch_server", str(folder / "uploads")],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=dict(os.environ),
    )
    said: list[str] = []
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip(), said
    finally:
        _, errors = process.communicate(timeout=30)
        said.append(errors.strip())
