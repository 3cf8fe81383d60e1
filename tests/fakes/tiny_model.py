"""A language model of two layers with random weights and one token per byte, made on the spot."""

from __future__ import annotations

from pathlib import Path

import pytest

CHAT = (
    "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def tiny_model(
    folder: Path, *, chat_template: str | None = CHAT, context: int = 4096, hidden_size: int = 32
) -> Path:
    """Save a model and its tokenizer into ``folder``; skips the test where the libraries are missing."""
    pytest.importorskip("torch", reason="torch is not installed: pip install '.[local]'")
    pytest.importorskip("transformers", reason="transformers is not installed: pip install '.[local]'")
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    symbols = ["<s>", "</s>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    spelling = Tokenizer(models.BPE(vocab={symbol: place for place, symbol in enumerate(symbols)}, merges=[]))
    spelling.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    spelling.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=spelling, bos_token="<s>", eos_token="</s>")
    tokenizer.chat_template = chat_template
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(symbols),
        hidden_size=hidden_size,
        intermediate_size=2 * hidden_size,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=context,
        bos_token_id=0,
        eos_token_id=1,
    )
    model = LlamaForCausalLM(config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
