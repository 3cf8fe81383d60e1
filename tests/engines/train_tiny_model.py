"""``python train_tiny_model.py OUT TEXT…``: a training run of a tiny chat model, for engines without a GPU.

Run by the Python that has vLLM (torch, transformers, tokenizers); it imports nothing of ours. OUT gets
``global_step_N/`` for each saved step, a whole checkpoint each (0.9 M parameters, 3.7 MB), and ``adapter/``,
a LoRA adapter of the last one. The texts, some hundred kilobytes, are what it learns from.
"""

from __future__ import annotations

import itertools
import json
import random
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

# Enough for a model that ends its turns at the last step, and does not at the first.
SAVED_AT = (0, 20, 40, 80, 160)
_BATCH, _LENGTH = 4, 128
_START, _END = "<|im_start|>", "<|im_end|>"
_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tokenizer_of(texts: list[str]) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE of 2,048 tokens, with a ChatML template."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=2048,
        special_tokens=["<|endoftext|>", _START, _END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    made.train_from_iterator(texts, trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, eos_token=_END, pad_token="<|endoftext|>")
    tokenizer.chat_template = _TEMPLATE
    return tokenizer


def turns_of(texts: list[str], tokenizer: PreTrainedTokenizerFast) -> torch.Tensor:
    """One long row of tokens: each line of the texts as the short answer to the line before it."""
    lines = [line.strip() for text in texts for line in text.splitlines() if len(line.split()) > 3]
    pairs = itertools.pairwise(lines)
    chats = (f"{_START}user\n{a[:160]}{_END}\n{_START}assistant\n{b[:120]}{_END}\n" for a, b in pairs)
    return torch.tensor(tokenizer.encode("".join(chats)))


def train(out: Path, texts: list[str]) -> None:
    """Train, and save the model at each of ``SAVED_AT``."""
    torch.manual_seed(0)
    random.seed(0)
    tokenizer = tokenizer_of(texts)
    tokens = turns_of(texts, tokenizer)
    config = Qwen3Config(
        vocab_size=2048,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.convert_tokens_to_ids(_END),
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
    )
    model = Qwen3ForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(SAVED_AT[-1] + 1):
        if step in SAVED_AT:
            folder = out / f"global_step_{step}"
            model.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
        starts = [random.randrange(len(tokens) - _LENGTH) for _ in range(_BATCH)]
        batch = torch.stack([tokens[start : start + _LENGTH] for start in starts])
        loss = model(input_ids=batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    write_adapter(out / "adapter", out / f"global_step_{SAVED_AT[-1]}", config)


def write_adapter(folder: Path, base: Path, config: Qwen3Config) -> None:
    """Write a LoRA adapter of rank 4 on the queries, by hand: peft is not needed to serve one."""
    folder.mkdir(parents=True)
    rank, width = 4, config.num_attention_heads * config.head_dim
    tensors = {}
    for layer in range(config.num_hidden_layers):
        name = f"base_model.model.model.layers.{layer}.self_attn.q_proj"
        tensors[f"{name}.lora_A.weight"] = torch.randn(rank, config.hidden_size) * 0.1
        tensors[f"{name}.lora_B.weight"] = torch.randn(width, rank) * 0.1
    save_file(tensors, str(folder / "adapter_model.safetensors"))
    about = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": str(base),
        "r": rank,
        "lora_alpha": 8,
        "target_modules": ["q_proj"],
        "bias": "none",
    }
    (folder / "adapter_config.json").write_text(json.dumps(about))


if __name__ == "__main__":
    train(Path(sys.argv[1]), [Path(path).read_text() for path in sys.argv[2:]])
