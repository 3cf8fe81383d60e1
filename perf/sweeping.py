"""What a sweep costs: planning a thousand checkpoints, and how well its slots are used.

``python -m perf.sweeping FOLDER`` makes a sweep of a thousand checkpoints that is done.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path

from coeval.models.keys import Keys
from coeval.sweeps.job_plan import job_plan
from coeval.sweeps.job_table import JobTable
from coeval.sweeps.sweep_choice import requested_for
from coeval.sweeps.sweep_settings import SweepSettings
from perf.measure import coeval, run
from perf.scenarios import Figures

CHECKPOINTS = 1_000
PLANNED_S = 2.0
_JUDGE, _JUDGE_URL = "j", "http://127.0.0.1:9/v1"
_WORKER_PROMPTS, _LATENCY_S, _THREADS = 80, 1.0, 2


def plan_thousand_checkpoints(folder: Path) -> Figures:
    """`coeval sweep --dry-run` of a thousand checkpoints × six tasks × the usual samples, all done."""
    run([sys.executable, "-m", "perf.sweeping", str(folder)], folder)
    flags = ("--judge-model", _JUDGE, "--judge-base-url", _JUDGE_URL)
    words = ("sweep", "--checkpoints", "ckpts", "--out", "out", "--gpus", "0", "--dry-run", *flags)
    cost = run(coeval(*words), folder)
    reported = (folder / "output.txt").read_text()
    if "nothing missing" not in reported:
        raise RuntimeError(reported)
    return Figures(
        cost.wall_s / PLANNED_S,
        f"{CHECKPOINTS:,} checkpoints, {30 * CHECKPOINTS:,} jobs: {cost.wall_s:.2f} s, "
        f"peak {cost.rss_mb:.0f} MB (asked: {PLANNED_S:.0f} s)",
    )


def sweep_slots(folder: Path) -> Figures:
    """8 checkpoints of equal length on 4 slots, beside 2 on one: what the slots lose."""
    prompts = [
        {"key": n, "prompt": f"Say {n}.", "instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]}
        for n in range(_WORKER_PROMPTS)
    ]
    (folder / "prompts.jsonl").write_text("".join(f"{json.dumps(prompt)}\n" for prompt in prompts))
    for step in range(1, 9):
        _checkpoint(folder / "ckpts" / f"global_step_{step}" / "actor_hf")
    model = f"{{name}}:skill=0.5,latency_s={_LATENCY_S}"
    serve = f"{shlex.quote(sys.executable)} -m coeval simulate --port {{port}} --model {model}"
    common = ("--tasks", "ifeval", "--n-samples", "ifeval=1", "--num-threads", str(_THREADS), "--no-plot")
    words = ("sweep", "--checkpoints", "ckpts", "--server-command", serve, "--gpus", "", *common)
    own = ("--task-option", "ifeval-input=prompts.jsonl")
    two = run(coeval(*words, *own, "--out", "two", "--slots", "1", "--steps", "1,2"), folder)
    eight = run(coeval(*words, *own, "--out", "eight", "--slots", "4"), folder)
    ideal = 2 * _WORKER_PROMPTS * _LATENCY_S / _THREADS
    return Figures(
        eight.wall_s / two.wall_s,
        f"8 checkpoints on 4 slots {eight.wall_s:.1f} s, 2 on one {two.wall_s:.1f} s, "
        f"of which asking is {ideal:.0f} s",
    )


def _checkpoint(place: Path) -> None:
    place.mkdir(parents=True)
    (place / "config.json").write_text("{}")
    (place / "model.safetensors").write_text("weights")


def main() -> None:
    folder = Path(sys.argv[1])
    settings = SweepSettings(
        out=Path("out"), checkpoints="ckpts", judge_model=_JUDGE, judge_base_url=_JUDGE_URL
    )
    os.chdir(folder)
    for step in range(CHECKPOINTS):
        _checkpoint(Path("ckpts") / f"global_step_{step}" / "actor_hf")
    requested = requested_for(settings, Keys.load(None, env={}, cwd=folder, home=folder))
    table = JobTable(requested.sweep.out, job_plan(requested.sweep))
    for checkpoint in requested.places.found():
        for task in table.plan.tasks:
            for sample in range(task.samples):
                place = requested.sweep.out / checkpoint.name / f"run_{sample}" / task.label
                place.mkdir(parents=True)
                for name in ("responses.jsonl", "summary.json"):
                    (place / name).touch()
                table.note_answered(checkpoint, task, sample, 0, 0)
                table.note_concluded(checkpoint, task, sample, 0, 0)
    table.close()


if __name__ == "__main__":
    main()
