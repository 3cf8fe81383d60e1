"""Hosts in trouble, in virtual time: what our limits and retries make of them, beside the least possible.

The real `Http` and `Limiter` ask a host that exists on the event loop only, whose clock jumps. So hours
take seconds, and the same seed gives the same figures.

    python -m perf.trouble                      every trouble
    python -m perf.trouble burst storm          some of them
    python -m perf.trouble --spread 0 --seed 2  answers that all take equally long; another seed

Ends with 1 when one breaks what is promised of it; `docs/evidence/performance.md` has the table.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from coeval.core.errors import ModelError
from coeval.models.pacing.limits import EndpointLimits, Limiter
from coeval.models.transport.body import Lost, NoConnection
from coeval.models.transport.call import Call
from coeval.models.transport.connection import HttpReply
from coeval.models.transport.endpoint import Endpoint
from coeval.models.transport.http import Http, SharedHosts
from coeval.models.transport.pool import RequestRoute
from perf.virtual import in_virtual_time, now

CEILING = 256
REFUSAL_S = 0.05


class Treatment(NamedTuple):
    """What a host does with a request: a status, after so many seconds. 0: it resets the connection, −1: it
    refuses one, −2: it never answers."""

    status: int
    seconds: float = REFUSAL_S


RESET, REFUSE, IGNORE = (Treatment(status) for status in (0, -1, -2))


class Host:
    """What `models.wire.Wire` is to `Http`, with a host behind it."""

    def __init__(self, trouble: Trouble, spread: float, rng: random.Random) -> None:
        self.rng = rng
        self.serving = 0
        self.refusals = 0
        self._trouble = trouble
        self._spread = spread

    async def send(self, route: RequestRoute, body: bytes | None, timeout_s: float) -> HttpReply:
        status, seconds = self._trouble.treat(self, now())
        if status != 200:
            self.refusals += 1
            return await self._refuse(status, timeout_s)
        self.serving += 1
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.sleep(seconds * self.rng.uniform(1 - self._spread, 1 + self._spread))
        finally:
            self.serving -= 1
        return HttpReply(200, {}, b"")

    async def _refuse(self, status: int, timeout_s: float) -> HttpReply:
        if status == IGNORE.status:
            await asyncio.sleep(timeout_s)
            raise TimeoutError
        await asyncio.sleep(REFUSAL_S * self.rng.uniform(0.5, 1.5))
        if status == RESET.status:
            raise Lost(begun=False)
        if status == REFUSE.status:
            raise NoConnection(ConnectionRefusedError())
        return HttpReply(status, {}, b"")

    async def aclose(self) -> None:
        pass


Treat = Callable[[Host, float], Treatment]


@dataclass(frozen=True)
class Trouble:
    """A host, and what is asked of it.

    Attributes
    ----------
    told:
        what is wrong with it.
    treat:
        what it does with a request, at a time in seconds.
    ideal_s:
        what a client would take that knows everything beforehand.
    refusals_before:
        429s, resets and time-outs with the limits that halved at every refusal and grew by one per round
        trip; None where that version gave requests up instead.
    at_most:
        how many times the ideal it may take.
    failed:
        calls that may be given up.
    """

    reported: str
    calls: int
    treat: Treat
    ideal_s: float
    refusals_before: int | None
    start: int = 16
    timeout_s: float = 600.0
    at_most: float = 1.5
    failed: int = 0

    def broken(self, outcome: Outcome) -> list[str]:
        """What an outcome breaks of the promise, in words."""
        wrong = []
        if outcome.took_s > self.at_most * self.ideal_s:
            wrong.append(f"{outcome.took_s:,.0f} s is more than {self.at_most} × {self.ideal_s:,.0f} s")
        if self.refusals_before is not None and outcome.refusals > 2 * self.refusals_before:
            wrong.append(f"{outcome.refusals:,} refusals are more than 2 × {self.refusals_before:,}")
        if outcome.failed > self.failed:
            wrong.append(f"{outcome.failed:,} calls failed, not {self.failed:,} at most")
        return wrong


class Outcome(NamedTuple):
    """In virtual seconds; ``failed``: calls given up."""

    took_s: float
    refusals: int
    failed: int


def between(begin_s: float, end_s: float, instead: Treatment, answer_s: float) -> Treat:
    def treat(_: Host, at: float) -> Treatment:
        return instead if begin_s <= at < end_s else Treatment(200, answer_s)

    return treat


def at_once(most: int, instead: Treatment, answer_s: float) -> Treat:
    def treat(host: Host, _: float) -> Treatment:
        return instead if host.serving >= most else Treatment(200, answer_s)

    return treat


def slower_beyond(most: int, answer_s: float, power: float = 1.0) -> Treat:
    """It gives at most so many answers in ``answer_s``; beyond, with a ``power`` above 1, fewer and fewer."""

    def treat(host: Host, _: float) -> Treatment:
        return Treatment(200, answer_s * max(1.0, (host.serving + 1) / most) ** power)

    return treat


def at_random(share: float, instead: Treatment, answer_s: float) -> Treat:
    def treat(host: Host, _: float) -> Treatment:
        return instead if host.rng.random() < share else Treatment(200, answer_s)

    return treat


TOO_MANY = Treatment(429)
TROUBLES = {
    "burst": Trouble(
        "0.2 s of 429 while 128 answers of 10 s are due",
        10_000,
        between(30.0, 30.2, TOO_MANY, 10),
        10_000 / CEILING * 10 + 0.2,
        4,
    ),
    "storm": Trouble(
        "10 s of 429, answers of 1 s", 20_000, between(20, 30, TOO_MANY, 1), 20_000 / CEILING + 10, 281
    ),
    "storm-long": Trouble(
        "10 s of 429, answers of 10 s", 10_000, between(60, 70, TOO_MANY, 10), 10_000 / CEILING * 10 + 10, 24
    ),
    "cap": Trouble("64 at once, 429 for the rest", 10_000, at_once(64, TOO_MANY, 1), 10_000 / 64, 13),
    "cap-full": Trouble(
        "the same, all 256 sent at once", 10_000, at_once(64, TOO_MANY, 1), 10_000 / 64, 263, start=CEILING
    ),
    "slow-down": Trouble("64 answers a second and no more", 10_000, slower_beyond(64, 1), 10_000 / 64, 0),
    "slow-down-steep": Trouble(
        "64 a second, with 128 in flight 32", 10_000, slower_beyond(64, 1, 2.0), 10_000 / 64, 0
    ),
    "outage-429": Trouble(
        "50 s of 429, answers of 1 s", 20_000, between(20, 70, TOO_MANY, 1), 20_000 / CEILING + 50, 1_098
    ),
    "outage-silent": Trouble(
        "50 s without answers, timeout_s: 20",
        20_000,
        between(20, 70, IGNORE, 1),
        20_000 / CEILING + 50,
        448,
        timeout_s=20,
        failed=CEILING,
    ),
    "outage-away": Trouble(
        "50 s of refused connections; known after 30 s",
        6_000,
        between(12, 62, REFUSE, 1),
        12 + 30,
        28_640,
        failed=4_000,
    ),
    "connections": Trouble(
        "8 connections, the rest reset, answers of 1 s", 2_000, at_once(8, RESET, 1), 2_000 / 8, None
    ),
    "connections-long": Trouble(
        "8 connections, the rest reset, answers of 60 s", 500, at_once(8, RESET, 60), 500 / 8 * 60, None
    ),
    "random": Trouble(
        "1 % of 429 at random", 20_000, at_random(0.01, TOO_MANY, 1), 20_000 / CEILING, 214, at_most=5
    ),
}


async def ask_all(trouble: Trouble, *, spread: float, seed: int) -> Outcome:
    """Ask for everything at once, as a run does, and wait until nothing is left."""
    rng = random.Random(seed)
    host = Host(trouble, spread, rng)
    http = Http(clock=now, rng=rng, hosts=SharedHosts(host))
    limiter = Limiter(EndpointLimits(CEILING, trouble.start), clock=now)
    endpoint = Endpoint("http://host.invalid/v1", None, limiter)
    call = Call(
        decode=lambda reply, redactor: reply.body,
        explain=lambda reply, redactor: None,
        timeout_s=trouble.timeout_s,
        priority=0,
        permit=lambda: None,
    )
    asking = (http.post(endpoint, "/chat/completions", b"{}", call) for _ in range(trouble.calls))
    results = await asyncio.gather(*asking, return_exceptions=True)
    failures = [result for result in results if isinstance(result, BaseException)]
    for failure in failures:
        if not isinstance(failure, ModelError):
            raise failure
    return Outcome(now(), host.refusals, len(failures))


def measure(trouble: Trouble, *, spread: float = 0.05, seed: int = 1) -> Outcome:
    """``spread``: answers take so much longer or shorter than they should, at most."""
    return in_virtual_time(ask_all(trouble, spread=spread, seed=seed))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="TROUBLE", help=f"any of {', '.join(TROUBLES)}")
    parser.add_argument("--spread", type=float, default=0.05, help="of answer times (default 0.05)")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - TROUBLES.keys():
        parser.error(f"no trouble {', '.join(sorted(unknown))}; there are {', '.join(TROUBLES)}")
    broken = []
    for name in arguments.names or TROUBLES:
        trouble = TROUBLES[name]
        outcome = measure(trouble, spread=arguments.spread, seed=arguments.seed)
        print(
            f"{name:17} {trouble.reported:50} ideal {trouble.ideal_s:6,.0f} s, took "
            f"{outcome.took_s:6,.0f} s: × {outcome.took_s / trouble.ideal_s:.2f}; "
            f"{outcome.refusals:,} refused, {outcome.failed:,} of {trouble.calls:,} calls failed",
            flush=True,
        )
        broken += [f"{name}: {what}" for what in trouble.broken(outcome)]
    for line in broken:
        print(line, file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
