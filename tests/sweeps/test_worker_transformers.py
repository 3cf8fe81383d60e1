"""A worker over `transformers serve`: a server that is not ours, a model that is none, on the CPU."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest
from fakes.tiny_model import tiny_model
from workers import WorkerProcess, a_worker, answers, gone

from coeval.sweeps.server_command import PRESETS, ServerCommand
from coeval.sweeps.worker_files import write_worker

pytestmark = pytest.mark.slow


def test_a_checkpoint_is_answered_by_transformers_serve(tmp_path: Path) -> None:
    pytest.importorskip("uvicorn", reason="uvicorn is not installed: pip install 'coeval[local]'")
    command = Path(sys.executable).with_name("transformers")
    if not command.is_file():
        pytest.skip("there is no command `transformers`: pip install 'coeval[local]'")
    checkpoint = str(tiny_model(tmp_path / "step_10"))
    template = PRESETS["transformers"].replace("transformers", str(command), 1) + " --device cpu"
    worker = a_worker(
        tmp_path, template, prompts=4, checkpoint=checkpoint, environment={"HF_HUB_OFFLINE": "1"}
    )
    name = checkpoint if ServerCommand(template).serves_path else "tiny"
    tested = msgspec.structs.replace(worker.evaluation.tested, model=name)  # type: ignore[type-var]
    write_worker(
        msgspec.structs.replace(worker, evaluation=msgspec.structs.replace(worker.evaluation, tested=tested))
    )
    process = WorkerProcess(worker)
    record = process.record()
    result = process.result()
    assert (result.end, result.problem) == ("done", "")
    assert [task.answers for task in result.tasks] == [4]
    assert {line["model"] for line in answers(worker)} == {"/ckpt/step_10@10"}
    assert result.output_tokens == sum(line["usage"]["output_tokens"] for line in answers(worker)) > 0
    assert gone(record)
