"""A training run of transformers, on a CPU, whose callback submits what it saves to a sweep that watches."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cli.warm_process import WarmProcess
from sweeping import Sweeping

import coeval
from coeval.core.errors import UsageError
from coeval.sweeps.checkpoints import submissions
from coeval.sweeps.sweep import queue_of

needs_transformers = pytest.mark.skipif(
    find_spec("torch") is None or find_spec("accelerate") is None,
    reason="needs torch and transformers: make local",
)


def trainer_of(folder: Path, callback: Any, save_steps: int) -> Any:
    """A Llama of random weights, two layers deep, that learns to count."""
    import torch
    import transformers

    config = transformers.LlamaConfig(
        vocab_size=32,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
    )
    tokens = [(torch.arange(8) + start) % 32 for start in range(32)]
    return transformers.Trainer(
        model=transformers.LlamaForCausalLM(config),
        args=transformers.TrainingArguments(
            output_dir=str(folder),
            max_steps=4 * save_steps,
            save_steps=save_steps,
            per_device_train_batch_size=4,
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
        ),
        train_dataset=[{"input_ids": each, "labels": each} for each in tokens],
        callbacks=[callback],
    )


@needs_transformers
@pytest.mark.system
async def test_curves_appear_while_it_trains(tmp_path: Path) -> None:
    sweeping = Sweeping(tmp_path)
    words = sweeping.flags("--watch", "--watch-interval", "0.3", "--no-plot", "--until-step", "80")
    at = words.index("--checkpoints")
    process = WarmProcess(*words[:at], *words[at + 2 :], cwd=tmp_path, env=sweeping.environment())
    import transformers

    scored_before_its_end: list[int] = []

    class WaitsForTheFirst(transformers.TrainerCallback):  # type: ignore[misc]  # untyped
        """Training goes on until the first checkpoint is scored: a real one takes that long."""

        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            while state.global_step == 60 and not sweeping.concluded() and process.poll() is None:
                os.sched_yield()
            scored_before_its_end[:] = [step for step, _, _ in sweeping.concluded()]

    trainer = trainer_of(tmp_path / "run_a", coeval.sweep_callback(sweeping.out), 20)
    trainer.add_callback(WaitsForTheFirst())
    await asyncio.to_thread(trainer.train)
    ended = await process.output()
    assert process.wait() == 0, ended
    assert 20 in scored_before_its_end
    assert [step for step, _, run in sweeping.concluded() if run == 0] == [20, 40, 60, 80]
    [model] = {line["model"] for line in sweeping.answers(40, "ifeval")}
    assert model.startswith(f"{tmp_path}/run_a/checkpoint-40@40#")


@needs_transformers
@pytest.mark.system
def test_the_callback_never_ends_the_training(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    callback = coeval.sweep_callback(tmp_path / "out")
    args, state = SimpleNamespace(output_dir=str(tmp_path)), SimpleNamespace(global_step=3)
    state.is_world_process_zero = True
    with caplog.at_level(logging.WARNING):
        callback.on_train_begin(args, state, None)
        callback.on_save(args, state, None)
    assert "no sweep runs in" in caplog.text
    assert "step 3 was not submitted" in caplog.text
    (tmp_path / "checkpoint-3").mkdir()
    (tmp_path / "checkpoint-3" / "config.json").write_text("{}")
    state.is_world_process_zero = False
    callback.on_save(args, state, None)
    assert not submissions(queue_of(tmp_path / "out")), "one rank submits"
    state.is_world_process_zero = True
    callback.on_save(args, state, None)
    assert list(submissions(queue_of(tmp_path / "out"))) == [3]


def test_without_transformers_the_way_to_install_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(UsageError, match=r'pip install "coeval\[huggingface\]"'):
        coeval.sweep_callback(tmp_path)
