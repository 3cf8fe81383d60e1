"""A Ray cluster of this machine with four logical GPUs, and one that can be dead."""

from __future__ import annotations

import asyncio
import os
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, Self

import pytest


@pytest.fixture(scope="module")
def ray_cluster() -> Iterator[Any]:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Ray's own
        import ray

        ray.init(
            num_cpus=2, num_gpus=4, include_dashboard=False, log_to_driver=False, configure_logging=False
        )
        yield ray
        ray.shutdown()


class RayError(Exception):
    """Ray's own base, and below it what a dead cluster raises."""


class RaySystemError(RayError):
    pass


class ActorDiedError(RayError):
    pass


class DyingCluster:
    """Ray as it is when a cluster dies: handing in raises ``refuses``, or its tasks never end, and only the
    ports of its head and of this machine's node say so."""

    exceptions = SimpleNamespace(RayError=RayError)

    def __init__(self, refuses: Exception | None = None) -> None:
        self.refuses = refuses
        self.tasks: list[Future[int]] = []
        self.cancelled = self.left = 0
        self.ports: dict[str, asyncio.Server] = {}

    async def __aenter__(self) -> Self:
        for name in ("head", "node"):
            self.ports[name] = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        for name in self.ports:
            await self.end(name)

    def port(self, name: str) -> int:
        number: int = self.ports[name].sockets[0].getsockname()[1]
        return number

    async def end(self, name: str) -> None:
        self.ports[name].close()
        await self.ports[name].wait_closed()

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(gcs_address=f"127.0.0.1:{self.port('head')}", get_node_id=lambda: "own")

    def nodes(self) -> list[dict[str, Any]]:
        own = {"NodeID": "own", "NodeManagerAddress": "127.0.0.1", "NodeManagerPort": self.port("node")}
        return [{**own, "NodeID": "other", "NodeManagerPort": 9}, own]

    def remote(self, **_: Any) -> Callable[[Any], Any]:
        return lambda _: SimpleNamespace(remote=self._hand_in)

    def _hand_in(self, *_: Any) -> Any:
        if self.refuses is not None:
            raise self.refuses
        self.tasks.append(Future())
        return SimpleNamespace(future=lambda: self.tasks[-1])

    def cancel(self, _: Any, *, force: bool = False) -> None:
        self.cancelled += 1

    def shutdown(self) -> None:
        self.left += 1
