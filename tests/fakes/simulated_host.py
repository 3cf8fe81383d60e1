"""Simulated models behind HTTP, in a thread of their own: who asks them has the test's thread to itself."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

from aiohttp.test_utils import TestServer

from coeval.simulation.server import make_app
from coeval.simulation.simulated_model import SimulatedModel
from coeval.simulation.traits import parse_model_option


@contextmanager
def simulated_host(*models: str) -> Iterator[str]:
    """The base URL of a server of ``models``, each as ``coeval simulate --model`` takes it."""
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever)
    thread.start()
    served = [SimulatedModel(parse_model_option(text, {})) for text in models]
    server = TestServer(make_app(served))
    asyncio.run_coroutine_threadsafe(server.start_server(), loop).result(10)
    yield f"http://127.0.0.1:{server.port}/v1"
    asyncio.run_coroutine_threadsafe(server.close(), loop).result(10)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
    loop.close()
