"""The scenarios that ``make perf`` measures. Each is a whole process, from start to exit."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from perf.dialects import costs
from perf.measure import Cost, coeval, experiment, run, serving

RUN = ("run", "--config", "e.yaml", "--overwrite")
GO_ON = ("run", "--config", "e.yaml", "--continue", "--probe", "disable")


class Figures(NamedTuple):
    """``overhead``: how many times the ideal (or the bare loop, or the smaller case) it took."""

    overhead: float
    reported: str


def requested_at(url: str, roles: list[str], **parameters: Any) -> dict[str, object]:
    """A model of the experiment, asked at the cheap server."""
    return {"interface": "vllm", "roles": roles, "parameters": {"base_url": url, "model": "m", **parameters}}


def help_page(folder: Path) -> Figures:
    """``coeval --help`` beside a Python that does nothing."""
    pairs = [(run(coeval("--help"), folder), run([sys.executable, "-c", "pass"], folder)) for _ in range(11)]
    ours, empty = (median(cost.wall_s for cost in costs) for costs in zip(*pairs, strict=True))
    return Figures(ours / empty, f"{ours:.3f} s warm (an empty Python: {empty:.3f} s)")


_MISTAKES = {
    "unknown keys": "models:\n" + "- name: m\n  interfase: openai\n  roles: [studnet]\n" * 21_000,
    "60,000 models": "models:\n" + "".join(f"- {{name: m{n}}}\n" for n in range(60_000)),
    "values": f"experiment: {{id: [{'1,' * 480_000}]}}\n",
}


def mistakes(folder: Path) -> Figures:
    """Files of a megabyte that are wrong throughout, beside ``coeval --help``."""
    least = median(run(coeval("--help"), folder).wall_s for _ in range(5))
    took = {}
    for name, text in _MISTAKES.items():
        (folder / "e.yaml").write_text(text)
        costs = [run(coeval("run", "--config", "e.yaml", "--dry-run"), folder, codes=(1,)) for _ in range(3)]
        took[name] = _median(costs).wall_s
    reported = ", ".join(f"{name} in {wall_s:.1f} s" for name, wall_s in took.items())
    return Figures(max(took.values()) / least, f"a megabyte of mistakes: {reported}")


def small(folder: Path) -> Figures:
    """300 calls of 50 ms: one task, one teacher, student and judge, 100 items."""
    with serving(0.05) as url:
        models = {name: requested_at(url, [name]) for name in ("teacher", "student", "judge")}
        (folder / "e.yaml").write_text(experiment("small", models, 1, 100))
        cost = _median([run(coeval(*RUN), folder) for _ in range(4)][1:])
    # A probe; then 16, 32 and 52 items at once, each answered and judged one round trip later.
    ideal = 0.05 * (1 + 3 + 2)
    return Figures(cost.wall_s / ideal, f"300 calls of 50 ms in {cost.wall_s:.2f} s, ideal {ideal:.2f} s")


def medium(folder: Path) -> Figures:
    """5,200 calls of 50 ms: 4 tasks × 5 teachers × 5 students × 4 judges × 10 items."""
    with serving(0.05) as url:
        everything = ["teacher", "student", "judge"]
        models = {f"m{n}": requested_at(url, everything if n else everything[:2]) for n in range(5)}
        (folder / "e.yaml").write_text(experiment("medium", models, 4, 10))
        cost = _median([run(coeval(*RUN), folder) for _ in range(4)][1:])
        idle = _idle(folder, url)
    ideal = 5_200 / 256 * 0.05
    cpu_ms = (cost.cpu_s - idle.cpu_s) / 5_200 * 1e3
    reported = (
        f"5,200 calls of 50 ms in {cost.wall_s:.2f} s, ideal {ideal:.2f} s; {cpu_ms:.3f} ms of CPU a call"
    )
    return Figures(cost.wall_s / ideal, f"{reported} beyond start-up")


def overlap(folder: Path) -> Figures:
    """80 items through teacher, student and judge on three endpoints of 1 s, 8 in flight each."""
    with serving(1.0) as a, serving(1.0) as b, serving(1.0) as c:
        models = {
            name: requested_at(url, [name], max_concurrency=8)
            for name, url in (("teacher", a), ("student", b), ("judge", c))
        }
        (folder / "e.yaml").write_text(experiment("overlap", models, 1, 80))
        cost = run(coeval(*RUN, "--probe", "disable"), folder)
    slowest = 80 / 8 * 1.0
    return Figures(
        cost.wall_s / slowest, f"80 items in {cost.wall_s:.2f} s, the slowest stage alone {slowest:.0f} s"
    )


def throughput(folder: Path, in_flight: int, items: int) -> Figures:
    """One teacher, 20 students, one judge on one host of 20 ms, in three pairs with a bare loop."""
    calls = items * 41
    with serving(0.02) as url:
        models = {
            "teacher": requested_at(url, ["teacher"], max_concurrency=in_flight),
            **{f"s{n}": requested_at(url, ["student"], max_concurrency=in_flight) for n in range(20)},
            "judge": requested_at(url, ["judge"], max_concurrency=in_flight),
        }
        (folder / "e.yaml").write_text(experiment("throughput", models, 1, items))
        bare = [sys.executable, "-m", "perf.bare", url, str(calls), str(in_flight)]
        pairs = [(run(bare, folder), run(coeval(*RUN, "--probe", "disable"), folder)) for _ in range(3)]
    least, ours = (_median(list(costs)) for costs in zip(*pairs, strict=True))
    share = median(bare_cost.wall_s / our_cost.wall_s for bare_cost, our_cost in pairs)
    reported = (
        f"{calls:,} calls at {calls / ours.wall_s:,.0f}/s, {share:.0%} of a bare aiohttp loop's "
        f"{calls / least.wall_s:,.0f}/s; {ours.cpu_s / calls * 1e3:.3f} ms of CPU a call "
        f"(bare: {least.cpu_s / calls * 1e3:.3f})"
    )
    return Figures(1 / share, reported)


def ifeval_files(folder: Path, prompts: int) -> tuple[list[str], list[str]]:
    """Prompts of our own for IFEval and what its verifiers read, so that nothing is fetched: the program
    ``eval-framework``, and the options that name the prompts."""
    lines = [
        {
            "key": number,
            "prompt": f"Question {number}: why do trees grow tall? Use no commas.",
            "instruction_id_list": ["punctuation:no_comma"],
            "kwargs": [{}],
        }
        for number in range(prompts)
    ]
    (folder / "prompts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    language = folder / "nltk_data" / "tokenizers" / "punkt_tab" / "english"  # empty, so none is fetched
    language.mkdir(parents=True)
    for name in ("abbrev_types.txt", "collocations.tab", "ortho_context.tab", "sent_starters.txt"):
        (language / name).touch()
    program = ["env", f"NLTK_DATA={folder / 'nltk_data'}", sys.executable, "-m", "coeval.cli.eval_framework"]
    return program, ["--tasks", "ifeval", "--ifeval-input", "prompts.jsonl"]


def checkpoint(folder: Path) -> Figures:
    """``eval-framework`` on 1,610 prompts of 200 ms with 256 in flight, scoring included."""
    program, how = ifeval_files(folder, 1_610)
    how += ["--model", "m", "--num-threads", "256"]
    with serving(0.2) as url:
        costs = [
            run([*program, *how, "--base-url", url, "--output-dir", f"out-{number}"], folder)
            for number in range(4)
        ]
    cost = _median(costs[1:])
    ideal = 1_610 / 256 * 0.2
    reported = f"1,610 calls of 200 ms in {cost.wall_s:.2f} s with start-up and scores, ideal {ideal:.2f} s"
    return Figures(cost.wall_s / ideal, reported)


def dialects(_: Path) -> Figures:
    """What each dialect takes of the CPU for a call, beside OpenAI's chat completions."""
    took = costs()
    usual = took["openai"].whole_us
    reported = ", ".join(
        f"{name} {cost.encode_us:.1f} + {cost.decode_us:.1f} µs ({cost.whole_us / usual:.2f})"
        for name, cost in took.items()
    )
    return Figures(max(cost.whole_us for cost in took.values()) / usual, f"encode + decode: {reported}")


def memory(folder: Path) -> Figures:
    """Peak memory at 100,000 items beside that at 1,000, on simulated models."""
    costs = {}
    for items in (1_000, 100_000):
        models = {n: {"interface": "simulated", "roles": [n]} for n in ("teacher", "student", "judge")}
        (folder / "e.yaml").write_text(experiment("memory", models, 1, items))
        costs[items] = run(coeval(*RUN), folder)
    few, many = costs[1_000].rss_mb, costs[100_000].rss_mb
    return Figures(many / few, f"{many:.0f} MB at 100,000 items, {few:.0f} MB at 1,000: {many - few:+.0f} MB")


def resume_million(folder: Path) -> Figures:
    """A run with a million records goes on: the time until its first call, and its peak memory."""
    _write_million(folder)
    seconds, cost = sorted(_goes_on(folder, _MILLION + 20 * start) for start in range(1, 4))[1]
    reported = f"first call of a run with 1,000,000 records after {seconds:.1f} s (peak {cost.rss_mb:.0f} MB)"
    return Figures(seconds / _reading_s(folder), reported)


def _goes_on(folder: Path, items: int) -> tuple[float, Cost]:
    """Seconds until the first call of a start that makes these items, and what the whole of it takes."""
    reported = folder / "first.txt"
    with serving(0.005, tell_first=reported) as url:
        _write_experiment(folder, url, items)
        began = time.time()
        cost = run(coeval(*GO_ON), folder)
    return float(reported.read_text()) - began, cost


def settled_million(folder: Path) -> Figures:
    """A run with a million records that owes nothing is told to go on: to its end, table included."""
    _write_million(folder)
    return _looked(folder, "--continue of 1,000,000 records that owes nothing", GO_ON)


def status_million(folder: Path) -> Figures:
    """``coeval status`` of a run with a million records."""
    _write_million(folder)
    run(coeval(*GO_ON), folder)
    return _looked(folder, "status of 1,000,000 records", ("status", "--run", "runs/million"))


def _looked(folder: Path, what: str, command: Sequence[str]) -> Figures:
    """The median of three."""
    cost = _median([run(coeval(*command), folder) for _ in range(3)])
    reported = f"{what} in {cost.wall_s:.1f} s (peak {cost.rss_mb:.0f} MB)"
    return Figures(cost.wall_s / _reading_s(folder), reported)


_COPIED = 1_000
_MILLION = 77 * _COPIED
"""Items, each with four answers and eight judgments: 1,001,000 records."""
_NUMBER = re.compile(rb"(?<=task-1__teacher__)\d{5}")


def _write_million(folder: Path) -> None:
    """A finished run of a million records: one of a thousand items, its lines written 77 times over."""
    with serving(0.005) as url:
        _write_experiment(folder, url, _COPIED)
        run(coeval(*RUN, "--probe", "disable"), folder)
        _write_experiment(folder, url, _MILLION)
    for path in folder.glob("runs/million/phase[345]*/*.jsonl"):
        lines = path.read_bytes()
        with path.open("ab") as file:
            for first in range(_COPIED, _MILLION, _COPIED):
                file.write(renumbered(lines, first))


def renumbered(lines: bytes, first: int) -> bytes:
    return _NUMBER.sub(lambda found: b"%05d" % (int(found[0]) + first), lines)


def _write_experiment(folder: Path, url: str, items: int) -> None:
    models: dict[str, Any] = {"teacher": requested_at(url, ["teacher"])}
    models |= {f"s{n}": requested_at(url, ["student"]) for n in range(4)}
    models |= {f"j{n}": requested_at(url, ["judge"]) for n in range(2)}
    (folder / "e.yaml").write_text(experiment("million", models, 1, items))


def _reading_s(folder: Path) -> float:
    """Seconds to read and decode every record once: the least a resumption can do."""
    program = (
        "import glob, msgspec, time; began = time.perf_counter(); decode = msgspec.json.Decoder().decode\n"
        "for path in glob.glob('runs/*/phase*/*.jsonl'):\n"
        "    for line in open(path, 'rb'): decode(line)\n"
    )
    return run([sys.executable, "-c", program], folder).wall_s


def _idle(folder: Path, url: str) -> Cost:
    """A run with next to no calls: start-up and the result table."""
    models = {name: requested_at(url, [name]) for name in ("teacher", "student", "judge")}
    (folder / "e.yaml").write_text(experiment("idle", models, 1, 1))
    return _median([run(coeval(*RUN), folder) for _ in range(3)])


def _median(costs: list[Cost]) -> Cost:
    return sorted(costs, key=lambda cost: cost.wall_s)[len(costs) // 2]
