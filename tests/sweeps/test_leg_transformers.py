"""A leg over `transformers serve`: a server that is not ours, a model that is none, on the CPU."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest
from fakes.tiny_model import tiny_model
from legs import LegProcess, a_leg, answers, gone

from coeval.sweeps.leg_files import write_leg
from coeval.sweeps.server_command import PRESETS, ServerCommand

pytestmark = pytest.mark.slow


def test_a_checkpoint_is_answered_by_transformers_serve(tmp_path: Path) -> None:
    pytest.importorskip("uvicorn", reason="uvicorn is not installed: pip install 'coeval[local]'")
    command = Path(sys.executable).with_name("transformers")
    if not command.is_file():
        pytest.skip("there is no command `transformers`: pip install 'coeval[local]'")
    checkpoint = str(tiny_model(tmp_path / "step_10"))
    template = PRESETS["transformers"].replace("transformers", str(command), 1) + " --device cpu"
    leg = a_leg(tmp_path, template, prompts=4, checkpoint=checkpoint, environment={"HF_HUB_OFFLINE": "1"})
    name = checkpoint if ServerCommand(template).serves_path else "tiny"
    tested = msgspec.structs.replace(leg.evaluation.tested, model=name)  # type: ignore[type-var]
    write_leg(msgspec.structs.replace(leg, evaluation=msgspec.structs.replace(leg.evaluation, tested=tested)))
    process = LegProcess(leg)
    record = process.record()
    result = process.result()
    assert (result.end, result.problem) == ("done", "")
    assert [task.answers for task in result.tasks] == [4]
    assert {line["model"] for line in answers(leg)} == {"/ckpt/step_10@10"}
    assert result.output_tokens == sum(line["usage"]["output_tokens"] for line in answers(leg)) > 0
    assert gone(record)
