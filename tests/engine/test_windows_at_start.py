"""Windows are asked for before a start: of all models at once, of each only once."""

from __future__ import annotations

import asyncio

from coeval.core.errors import ConnectionFailed
from coeval.core.model import Model, ModelSpec
from coeval.core.records import Completion, Request, SamplingParameters
from coeval.engine.probing import _find_too_long_answers
from coeval.engine.terms import RequestedUnder


class Slow(Model):
    """Takes no connection until all are tried; ``window`` None: takes none at all."""

    interface = "vllm"

    def __init__(self, name: str, window: int | None, together: asyncio.Barrier) -> None:
        self.name = name
        self._window = window
        self._together = together
        self.reached = 0

    async def check_connection(self) -> None:
        self.reached += 1
        await self._together.wait()
        if self._window is None:
            raise ConnectionFailed("refused")

    async def context_window(self) -> int | None:
        return self._window

    async def complete(self, request: Request) -> Completion:
        raise AssertionError(request)


async def test_all_windows_are_asked_for_together_and_each_once() -> None:
    together = asyncio.Barrier(3)
    windows = {"small": 64, "large": 4096, "dead": None}
    models = {name: Slow(name, window, together) for name, window in windows.items()}
    requested = [
        RequestedUnder(
            ModelSpec(name=name, interface="vllm", model=name), SamplingParameters(max_tokens=100), judge
        )
        for name in (*models, "unopened")
        for judge in (False, True)
    ]
    async with asyncio.timeout(5):
        [said] = await _find_too_long_answers(models, requested)
    assert said.startswith("small: an answer may have 100 tokens")
    assert "--max-model-len" not in said, "whose server it is, nobody here can say"
    assert [model.reached for model in models.values()] == [1, 1, 1]
