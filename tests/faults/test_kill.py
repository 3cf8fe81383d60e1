"""`kill -9` of a real run at seeded moments: nothing lost, nothing made twice, nothing changed."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from cli.eval_process import surroundings
from cli.warm_process import WarmProcess
from fakes.anthropic_batches import BatchServer
from fakes.flaky_host import PHASE_OF, Host, hosted
from fakes.moments import forks
from fakes.threaded import in_a_thread
from pipeline.batched_lab import (
    ENVIRONMENT,
    FILES,
    GEMINI,
    TOTAL,
    AnyHost,
    Provider,
    jobs_of,
    lab_at,
    sent,
    serving,
)
from small_runs import PHASES, content, experiment, folder_of, good_lines

from coeval.store.rundir import RunDir

KILLS = 12
"""In each of two runs: with phases that overlap, and with barriers between them."""
ITEMS = 60
CALLS = ITEMS * (1 + 2 + 4)
IN_FLIGHT = 8
LATENCY_S = 0.003
LONG_S = 60.0


class Killed:
    """A run that is killed again and again, and what was on disk each time."""

    def __init__(self, file: Path, host: Host, seed: int, *flags: str) -> None:
        self.file = file
        self.host = host
        self.flags = flags
        self.draw = random.Random(seed)
        self.phases: Counter[str] = Counter()
        self.kills = 0
        self.whole: dict[Path, bytes] = {}
        self.made = 0

    @property
    def folder(self) -> RunDir:
        return folder_of(self.file)

    def start(self) -> WarmProcess:
        going_on = ["--continue"] if self.folder.meta.exists() else []
        return WarmProcess("run", "--config", self.file, *going_on, *self.flags, err_to_out=True)

    async def start_and_kill(self, requests: int, instant_s: float) -> None:
        """Kill once so many more requests have come in or, for a start, so much time has passed."""
        process = self.start()
        last = len(self.host.requested) + requests
        moment = asyncio.ensure_future(self.host.arrived(last))
        end = asyncio.ensure_future(process.ended())
        await asyncio.wait((moment, end), timeout=instant_s, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.sleep(self.draw.uniform(0, LATENCY_S))  # so that answers are under way too
        assert process.returncode is None, f"the run ended by itself: {await output(process)}"
        process.kill()
        await output(process)
        moment.cancel()
        self.kills += 1
        if last <= len(self.host.requested):
            self.phases[PHASE_OF[self.host.requested[last - 1].model]] += 1

    async def kill(self) -> None:
        """At the first request, which is a teacher's; then at moments drawn from what is left of the run, and
        each fifth time while it starts."""
        left = CALLS - self.made
        most = max(1, 3 * left // (2 * (KILLS + 1 - self.kills)))
        if not self.kills:
            await self.start_and_kill(1, LONG_S)
        elif self.kills % 5 == 2:
            await self.start_and_kill(min(most, 3), self.draw.uniform(0, 0.6))
        else:
            await self.start_and_kill(self.draw.randint(1, most), LONG_S)

    def check(self) -> None:
        """What was whole on disk is there byte for byte; no more calls were lost than were in flight."""
        for path, before in self.whole.items():
            assert path.read_bytes().startswith(before), path
        self.made = 0
        for phase in PHASES:
            for path in self.folder.files(phase):
                lines = path.read_bytes()
                self.whole[path] = lines[: lines.rfind(b"\n") + 1]
                self.made += 0 if ".exact_match." in path.name else lines.count(b"\n")
        assert 0 <= len(self.host.requested) - self.made <= IN_FLIGHT * self.kills


async def output(process: WarmProcess) -> str:
    return (await process.output()).out


@pytest.mark.process
@pytest.mark.parametrize(("seed", "flags"), [(1, ()), (2, ("--phase-barriers",))])
async def test_kills_change_nothing(tmp_path: Path, seed: int, flags: tuple[str, ...]) -> None:
    for name in ("undisturbed", "killed"):
        (tmp_path / name).mkdir()
    async with hosted(latency_s=LATENCY_S) as host:
        undisturbed = experiment(tmp_path / "undisturbed", host.url, total=ITEMS)
        process = WarmProcess("run", "--config", undisturbed, err_to_out=True)
        shown = await output(process)
        assert process.returncode == 0, shown
        assert len(host.requested) == CALLS
        host.requested.clear()

        killed = Killed(experiment(tmp_path / "killed", host.url, total=ITEMS), host, seed, *flags)
        while killed.kills < KILLS:
            await killed.kill()
            killed.check()
        process = killed.start()
        shown = await output(process)
        assert process.returncode == 0, shown
    assert set(killed.phases) >= set(PHASES), killed.phases
    assert set(good_lines(killed.folder).values()) == {1}
    assert content(killed.folder) == content(folder_of(undisturbed))
    assert len(host.requested) - CALLS <= IN_FLIGHT * KILLS


# `kill -9` at what a provider sees of a batch job, at each interface: each request is sent and booked once.
# What differs between interfaces is how a job is found whose id was not stored: by a tag, or, at Anthropic,
# by custom ids that are told at its end only.

LONG = 60
"""Looks at a list: more than a host is asked that fails."""

MOMENTS = {
    "as the job arrives": ("create", False),
    "as the job is made": ("create", True),
    "as it is looked at": ("get", True),
    "as results are asked for": ("download", False),
    "as results have gone out": ("download", True),
}


KILLED = [
    pytest.param(place, MOMENTS[moment], id=f"{place}-{moment}")
    for place in (*FILES, GEMINI)
    for moment in MOMENTS
    if place is not GEMINI or MOMENTS[moment][0] != "download"  # its results come with the state
]


def _start_in(folder: Path, *words: object) -> WarmProcess:
    return WarmProcess(*words, cwd=folder, env={**surroundings(folder), **ENVIRONMENT}, err_to_out=True)


async def _said(process: WarmProcess) -> str:
    return (await process.output()).out


async def _killed_at(host: AnyHost, folder: Path, moment: tuple[str, bool], file: Path) -> None:
    """Run until the provider gets to this moment for the first time; what it answers reaches nobody."""
    reached = asyncio.Event()
    process = _start_in(folder, "run", "--config", file)

    async def watch(kind: str, done: bool) -> None:
        if (kind, done) == moment and not reached.is_set():
            process.kill()
            reached.set()
            await process.ended()

    host.watch = watch
    said = await _said(process)
    host.watch = None
    assert reached.is_set(), f"the run ended by itself: {said}"


def _usage(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "usage.json").read_text())["models"]
    return found


def _paid(usage: dict[str, Any]) -> dict[str, Any]:
    counts = ("requests", "input_tokens", "output_tokens", "jobs")
    return {
        name: {"usd": round(usage[name]["cost_usd"], 12), **{count: usage[name][count] for count in counts}}
        for name in ("student", "judge")
    }


def _evaluations(folder: Path) -> list[dict[str, Any]]:
    lines = [
        line
        for path in (folder / "phase5_evaluations").glob("*.jsonl")
        for line in path.read_text().splitlines()
    ]
    return [json.loads(line) for line in lines]


def _check_records(folder: Path) -> None:
    """All that was to be judged is, once; what that took is booked once; nothing waits any more."""
    evaluations = _evaluations(folder)
    assert len({record["id"] for record in evaluations}) == len(evaluations) == TOTAL
    assert all(record["scores"] == {"plot": "High", "style": "Low"} for record in evaluations)
    judge = _usage(folder)["judge"]
    assert (judge["requests"], judge["jobs"]) == (TOTAL, {})
    for count in ("input_tokens", "output_tokens"):
        assert judge[count] == sum(record["usage"][count] for record in evaluations)
    assert not (folder / "pending_batches.json").exists()


@pytest.mark.process
@pytest.mark.parametrize(("place", "moment"), KILLED)
async def test_a_kill_neither_loses_nor_repeats(
    place: Provider, moment: tuple[str, bool], tmp_path: Path
) -> None:
    async with serving(place) as host:
        exp = lab_at(place, host, tmp_path, "student", "judge")
        await _killed_at(host, tmp_path, moment, exp.file)
        again = _start_in(tmp_path, "run", "--config", exp.file, "--continue")
        said = await _said(again)
        assert again.returncode == 0, said
        requests = sent(host)
    assert len(requests) == 2 * TOTAL
    assert set(requests.values()) == {1}
    _check_records(exp.path)


@pytest.mark.system
@pytest.mark.parametrize(("place", "kills"), [(FILES[0], 16), (FILES[2], 6), (FILES[3], 6)], ids=str)
def test_kills_at_any_moment_on_disk(place: Provider, kills: int, tmp_path: Path) -> None:
    """Of a run whose student and judge both go by batches."""
    draw = random.Random(place.interface)
    with in_a_thread(serving(place)) as host, forks(**ENVIRONMENT) as commands:
        exp = lab_at(place, host, tmp_path, "student", "judge")
        folder, file = exp.path, exp.file
        whole = commands.run("coeval", "run", "--config", file, below=folder)
        assert whole.code == 0, whole.said
        expected = _usage(folder)
        jobs: Counter[int] = Counter()
        for moment in sorted(draw.sample(range(1, whole.moments + 1), kills)):
            for there in (host.batches,) if isinstance(host, BatchServer) else (host.jobs, host.endings):
                there.clear()
            shutil.rmtree(folder)
            killed = commands.run("coeval", "run", "--config", file, below=folder, at=moment)
            jobs[len(jobs_of(host))] += 1
            if killed.code == 0:
                continue  # the last moments differ from run to run
            goes_on = ["--continue"] if (folder / "meta.json").exists() else []
            ended = commands.run("coeval", "run", "--config", file, *goes_on, below=folder)
            assert ended.code == 0, f"moment {moment}: {killed.said}\n{ended.said}"
            requests = sent(host)
            assert (len(requests), set(requests.values())) == (2 * TOTAL, {1}), f"moment {moment}"
            _check_records(folder)
            assert _paid(_usage(folder)) == _paid(expected), f"moment {moment}"
        assert place.interface != "openai" or {0, 1, 2} <= set(jobs), jobs


@pytest.mark.process
async def test_a_batch_that_may_be_ours_is_waited_for(tmp_path: Path) -> None:
    """At Anthropic: killed as the job was made, which goes on for long; nothing is sent meanwhile."""
    place = next(place for place in FILES if place.interface == "anthropic")
    async with serving(place) as host:
        host.polls = None
        exp = lab_at(place, host, tmp_path, "student", "judge", batch_poll_s=[0.01, 0.02])
        await _killed_at(host, tmp_path, ("create", True), exp.file)
        again = _start_in(tmp_path, "run", "--config", exp.file, "--continue")
        while len(host.lists) < LONG:
            await asyncio.sleep(0.02)
            assert again.poll() is None
        assert len(host.creations) == 1
        host.polls = 1
        host.end("msgbatch_00001")
        said = await _said(again)
        assert again.returncode == 0, said
        assert [len(job) for job in jobs_of(host)] == [TOTAL, TOTAL]
