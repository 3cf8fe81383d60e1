"""`kill -9` of a real run at fifty seeded moments: nothing lost, nothing made twice, nothing changed."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path

import pytest
from cli.warm_process import WarmProcess
from flaky_host import PHASE_OF, Host, hosted
from small_runs import PHASES, content, experiment, folder_of, good_lines

from coeval.store.rundir import RunDir

KILLS = 25
"""In each of two runs: with phases that overlap, and with barriers between them."""
TOTAL = 60
CALLS = TOTAL * (1 + 2 + 4)
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
        moment = asyncio.ensure_future(self.host.arrived(len(self.host.asked) + requests))
        end = asyncio.ensure_future(process.ended())
        await asyncio.wait((moment, end), timeout=instant_s, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.sleep(self.draw.uniform(0, LATENCY_S))  # so that answers are under way too
        assert process.returncode is None, f"the run ended by itself: {await output(process)}"
        process.kill()
        await output(process)
        moment.cancel()
        self.kills += 1
        self.phases[PHASE_OF[self.host.asked[-1].model] if self.host.asked else "before"] += 1

    async def kill(self) -> None:
        """At a moment drawn from what is left of the run; each fifth time, while it starts."""
        left = CALLS - self.made
        most = max(1, 3 * left // (2 * (KILLS + 1 - self.kills)))
        if self.kills % 5 == 2:
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
        assert 0 <= len(self.host.asked) - self.made <= IN_FLIGHT * self.kills


async def output(process: WarmProcess) -> str:
    return (await process.output()).out


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "flags"), [(1, ()), (2, ("--phase-barriers",))])
async def test_fifty_kills_change_nothing(tmp_path: Path, seed: int, flags: tuple[str, ...]) -> None:
    for name in ("undisturbed", "killed"):
        (tmp_path / name).mkdir()
    async with hosted(latency_s=LATENCY_S) as host:
        undisturbed = experiment(tmp_path / "undisturbed", host.url, total=TOTAL)
        process = WarmProcess("run", "--config", undisturbed, err_to_out=True)
        shown = await output(process)
        assert process.returncode == 0, shown
        assert len(host.asked) == CALLS
        host.asked.clear()

        killed = Killed(experiment(tmp_path / "killed", host.url, total=TOTAL), host, seed, *flags)
        while killed.kills < KILLS:
            await killed.kill()
            killed.check()
        process = killed.start()
        shown = await output(process)
        assert process.returncode == 0, shown
    assert set(killed.phases) >= set(PHASES), killed.phases
    assert set(good_lines(killed.folder).values()) == {1}
    assert content(killed.folder) == content(folder_of(undisturbed))
    assert len(host.asked) - CALLS <= IN_FLIGHT * KILLS
