"""A run in a notebook, with a real Jupyter kernel: it can be watched, stopped, and gone on with."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from jupyter_client.manager import AsyncKernelManager, start_new_async_kernel
from nbclient import NotebookClient
from pipeline.experiments import Host, Lab, model, over_http, served, task

PATIENCE_S = 60
"""How long anything of a kernel may take before it counts as hanging."""


@pytest.fixture
async def host() -> AsyncIterator[Host]:
    models = [model("tea", "teacher", latency_s=0.3), model("ann", "student", "judge", latency_s=0.3)]
    async with served(models) as host:
        yield host


@pytest.fixture
def lab(tmp_path: Path, host: Host) -> Lab:
    """Minutes of work: 1,200 calls, four at a time, 0.3 s each."""
    models = [model("tea", "teacher", max_concurrency=4), model("ann", "student", "judge")]
    lab = Lab(tmp_path, [over_http(entry, host) for entry in models], [task(total=400)])
    lab.settings["probe_mode"] = "disable"
    return lab


class Notebook:
    """A kernel, and cells to run in it."""

    def __init__(self, manager: AsyncKernelManager, client: Any) -> None:
        self._manager, self._client = manager, client

    async def run(self, cell: str) -> tuple[str, str]:
        """The cell's status (ok, error) and what it printed, or its error's name."""
        printed: list[str] = []

        def keep(message: dict[str, Any]) -> None:
            if message["msg_type"] == "stream":
                printed.append(message["content"]["text"])

        reply = await self._client.execute_interactive(cell, output_hook=keep, timeout=PATIENCE_S)
        content = reply["content"]
        return content["status"], content["ename"] if content["status"] == "error" else "".join(printed)

    async def stop(self) -> None:
        await self._manager.interrupt_kernel()


@pytest.fixture
async def notebook(tmp_path: Path) -> AsyncIterator[Notebook]:
    manager, client = await start_new_async_kernel(cwd=str(tmp_path))
    try:
        notebook = Notebook(manager, client)
        await notebook.run("import coeval")
        yield notebook
    finally:
        client.stop_channels()
        await manager.shutdown_kernel(now=True)


async def requested(host: Host, number: int) -> None:
    end = asyncio.get_running_loop().time() + PATIENCE_S
    while len(host.bodies) < number:
        assert asyncio.get_running_loop().time() < end
        await asyncio.sleep(0.02)


@pytest.mark.system
@pytest.mark.parametrize(
    "before", ["", "import asyncio; await asyncio.sleep(0)\n"], ids=["plain", "awaiting"]
)
async def test_stop_drains_and_leaves_a_usable_run(
    notebook: Notebook, lab: Lab, host: Host, before: str
) -> None:
    cell = asyncio.create_task(notebook.run(f"{before}run = coeval.run({str(lab.file)!r})"))
    await requested(host, 20)
    await notebook.stop()
    status, _ = await cell
    at_the_end = len(host.bodies)
    assert at_the_end < 200, "it went on asking"
    assert status == "ok"
    _, shown = await notebook.run(
        "print(run.exit_code, run.summary.interrupted, len(run.records('data_generation')))"
    )
    assert shown == f"130 True {lab.counts()[0]}\n"
    assert lab.counts()[0] > 0
    assert lab.meta()["status"] == "interrupted"
    assert len(host.bodies) == at_the_end, "it went on asking in the background"


@pytest.mark.process
async def test_a_second_stop_ends_at_once(notebook: Notebook, lab: Lab, host: Host) -> None:
    cell = asyncio.create_task(notebook.run(f"coeval.run({str(lab.file)!r})"))
    await requested(host, 5)
    await notebook.stop()
    await asyncio.sleep(0.1)
    await notebook.stop()
    assert await cell == ("error", "KeyboardInterrupt")
    assert lab.meta()["status"] == "interrupted"


@pytest.mark.system
async def test_an_awaited_run_is_cancelled_by_stop(notebook: Notebook, lab: Lab, host: Host) -> None:
    cell = asyncio.create_task(notebook.run(f"run = await coeval.arun({str(lab.file)!r})"))
    await requested(host, 20)
    await notebook.stop()
    assert (await cell)[0] == "error"
    assert lab.meta()["status"] == "interrupted"
    assert await notebook.run(f"print(coeval.open_run({str(lab.path)!r}))") == (
        "ok",
        f"Run({str(lab.path)!r})\n",
    )


def outputs(folder: Path, *cells: str) -> list[list[dict[str, Any]]]:
    """What each cell of a notebook shows when it is executed from the first to the last."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    client = NotebookClient(notebook, timeout=PATIENCE_S, resources={"metadata": {"path": str(folder)}})
    return [cell["outputs"] for cell in client.execute()["cells"]]


@pytest.mark.system
def test_one_display_follows_the_run(tmp_path: Path) -> None:
    lab = Lab(tmp_path, [model("tea", "teacher"), model("ann", "student", "judge", latency_s=0.2)])
    _, shown, again, quiet = outputs(
        tmp_path,
        "import coeval",
        f"run = coeval.run({str(lab.file)!r})",
        f"run = await coeval.arun({str(lab.file)!r}, overwrite=True)",
        f"run = coeval.run({str(lab.file)!r}, overwrite=True, progress=False)",
    )
    for cell in (shown, again):
        [output] = cell
        assert output["output_type"] == "display_data"
        html, text = output["data"]["text/html"], output["data"]["text/plain"]
        assert html.count("<progress") == 3
        assert re.search(r'evaluation</td><td><progress value="3" max="3">', html)
        assert "evaluation: 3/3 records" in text
    assert quiet == []
