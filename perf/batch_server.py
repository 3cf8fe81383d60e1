"""A host of batch jobs that costs little: requests go to disk, results are made as they are downloaded.

Run as its own process: ``python -m perf.batch_server FOLDER`` prints its base URL and serves until its
standard input closes; then it prints its jobs and their requests to standard error. A job has ended when it
is looked at for the second time, and every verdict is the same.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import uvloop
from aiohttp import BodyPartReader, web

_LOOKS = 2
_CHUNK = 1 << 20
_ID = len('{"custom_id":"')
_VERDICT = r"{\"quality\": \"High\", \"style\": \"Medium\"}"
_BODY = (
    '{"id":"c-1","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":'
    f'{{"role":"assistant","content":"{_VERDICT}"}},"finish_reason":"stop"}}],'
    '"usage":{"prompt_tokens":100,"completion_tokens":80,"total_tokens":180}}'
).encode()


class BatchServer:
    """``folder`` takes the files that are uploaded."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lines: dict[str, int] = {}
        self._looks: Counter[str] = Counter()
        self._numbers = count()

    def app(self) -> web.Application:
        app = web.Application(client_max_size=1 << 30)
        app.router.add_post("/v1/files", self._upload)
        app.router.add_get("/v1/files/{id}/content", self._results)
        app.router.add_post("/v1/batches", self._create)
        app.router.add_get("/v1/batches/{id}", self._look)
        return app

    def reported(self) -> str:
        return f"{len(self._lines)} jobs of {sum(self._lines.values())} requests"

    async def _upload(self, request: web.Request) -> web.Response:
        name = f"file-{next(self._numbers)}"
        async for part in await request.multipart():
            if isinstance(part, BodyPartReader) and part.name == "file":
                lines = 0
                with (self._folder / name).open("wb") as file:
                    while piece := await part.read_chunk(_CHUNK):
                        lines += piece.count(b"\n")
                        file.write(piece)
                self._lines[name] = lines
        return web.json_response({"id": name, "object": "file", "filename": "requests.jsonl"})

    async def _create(self, request: web.Request) -> web.Response:
        body = await request.json()
        return web.json_response(self._reported(body["input_file_id"], "validating"))

    async def _look(self, request: web.Request) -> web.Response:
        name = request.match_info["id"]
        self._looks[name] += 1
        return web.json_response(
            self._reported(name, "completed" if self._looks[name] >= _LOOKS else "in_progress")
        )

    def _reported(self, name: str, status: str) -> dict[str, object]:
        counts = {"total": self._lines[name], "completed": self._lines[name], "failed": 0}
        return {
            "id": name,
            "object": "batch",
            "status": status,
            "output_file_id": name if status == "completed" else None,
            "request_counts": counts,
        }

    async def _results(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for piece in self._made(self._folder / request.match_info["id"]):
            await response.write(piece)
        return response

    def _made(self, path: Path) -> Iterator[bytes]:
        made: list[bytes] = []
        with path.open("rb") as file:
            for line in file:
                key = line[_ID : _ID + 32]
                made.append(
                    b'{"id":"r","custom_id":"%b","response":{"status_code":200,"request_id":"q","body":%b},'
                    b'"error":null}\n' % (key, _BODY)
                )
                if len(made) == 1_000:
                    yield b"".join(made)
                    made.clear()
        yield b"".join(made)


async def serve(folder: Path) -> None:
    server = BatchServer(folder)
    runner = web.AppRunner(server.app(), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}/v1", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    print(server.reported(), file=sys.stderr)
    await runner.cleanup()


if __name__ == "__main__":
    uvloop.run(serve(Path(sys.argv[1])))
