"""What is public has an example in its docstring, and the examples run."""

from __future__ import annotations

import asyncio
import doctest
import inspect
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import chdir
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

import coeval
from coeval.sweeps.server_process import find_free_port

ROOT = Path(__file__).parent.parent
PUBLIC = {name: getattr(coeval, name) for name in coeval.__all__ if name[:2] != "__"}
EXAMPLES = {
    name: doctest.DocTestParser().get_examples(inspect.getdoc(public) or "")
    for name, public in PUBLIC.items()
}
NEEDS = {"log_results": "mlflow", "sweep_callback": "transformers"}


class Place(NamedTuple):
    folder: Path
    address: str


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A folder with the runs, sweeps and checkpoints of the examples, and simulated models."""
    folder = tmp_path_factory.mktemp("examples")
    shutil.copytree(ROOT / "examples", folder / "examples")
    for step in (10, 20, 30):
        (folder / f"checkpoints/step_{step}").mkdir(parents=True)
        for name in ("config.json", "model.safetensors"):
            (folder / f"checkpoints/step_{step}" / name).write_text("{}", encoding="utf-8")
    port = find_free_port("127.0.0.1")
    served = ["tiny:skill=0.5", "step_10:skill=0.3", "step_20:skill=0.8", "judge"]
    models = [word for model in served for word in ("--model", model)]
    simulate = [sys.executable, "-m", "coeval", "simulate", "--port", str(port), *models]
    with subprocess.Popen(simulate, stdout=subprocess.PIPE, text=True, cwd=folder) as server:
        assert server.stdout is not None
        server.stdout.readline()
        with chdir(folder):
            coeval.run("examples/quickstart.yaml")
            for name in ("run_a", "run_b"):
                code = EXAMPLES["sweep"][0].source.replace("run_a", name)
                exec(code.replace("localhost:8000", f"127.0.0.1:{port}"), {"coeval": coeval})  # noqa: S102  ours
        yield Place(folder, f"127.0.0.1:{port}")
        server.terminate()


def test_every_public_function_has_an_example() -> None:
    functions = [name for name, public in PUBLIC.items() if inspect.isfunction(public)]
    assert len(functions) == 14
    assert [name for name in functions if not EXAMPLES[name]] == []


@pytest.mark.system
@pytest.mark.parametrize("name", [name for name, examples in EXAMPLES.items() if examples])
def test_the_examples_run(name: str, place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    needed = NEEDS.get(name)
    if needed and find_spec(needed) is None:
        pytest.skip(f"needs {needed}")
    names = {"asyncio": asyncio, "coeval": coeval, "Path": Path}
    doc = (inspect.getdoc(PUBLIC[name]) or "").replace("localhost:8000", place.address)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    with chdir(place.folder):
        runner.run(doctest.DocTestParser().get_doctest(doc, names, name, None, None))
    assert runner.failures == 0, capsys.readouterr().out
