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
from coeval.sweeps.checkpoints import read_submissions
from coeval.sweeps.sweep import queue_folder

needs_transformers = pytest.mark.skipif(
    find_spec("torch") is None or find_spec("accelerate") is None,
    reason="needs torch and transformers: make local",
)
needs_trl = pytest.mark.skipif(find_spec("trl") is None, reason="needs TRL: pip install trl")
of_trl = pytest.mark.filterwarnings("ignore::FutureWarning:transformers", "ignore:.*fork:DeprecationWarning")
"""Its settings bear names of transformers' next-to-last version."""


def trainer_of(kind: str, folder: Path, callback: Any, save_steps: int) -> Any:
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
    lines = [[(start + n) % 32 for n in range(8)] for start in range(32)]
    settings = {
        "output_dir": str(folder),
        "max_steps": 4 * save_steps,
        "save_steps": save_steps,
        "per_device_train_batch_size": 4,
        "report_to": [],
        "disable_tqdm": True,
        "use_cpu": True,
    }
    model = transformers.LlamaForCausalLM(config)
    if kind == "transformers":
        rows = [{"input_ids": torch.tensor(line), "labels": torch.tensor(line)} for line in lines]
        arguments = transformers.TrainingArguments(**settings)
        return transformers.Trainer(model, arguments, train_dataset=rows, callbacks=[callback])
    import datasets
    import tokenizers
    import trl

    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({str(n): n for n in range(32)}, unk_token="0"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, unk_token="0", pad_token="0", eos_token="1"
    )
    return trl.SFTTrainer(
        model,
        args=trl.SFTConfig(**settings, bf16=False),
        train_dataset=datasets.Dataset.from_list([{"text": " ".join(map(str, line))} for line in lines]),
        processing_class=tokenizer,
        callbacks=[callback],
    )


@needs_transformers
@pytest.mark.system
@pytest.mark.parametrize("kind", ["transformers", pytest.param("trl", marks=(needs_trl, of_trl))])
async def test_curves_appear_while_it_trains(tmp_path: Path, kind: str) -> None:
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

    trainer = trainer_of(kind, tmp_path / "run_a", coeval.sweep_callback(sweeping.out), 20)
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
    assert not read_submissions(queue_folder(tmp_path / "out")), "one rank submits"
    state.is_world_process_zero = True
    callback.on_save(args, state, None)
    assert list(read_submissions(queue_folder(tmp_path / "out"))) == [3]


def test_without_transformers_the_way_to_install_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(UsageError, match=r"pip install .*'transformers>="):
        coeval.sweep_callback(tmp_path)
