"""The tokenizer of a local model, where its folder has one: how many tokens its prompts really take."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from coeval.core.errors import StoreError
from coeval.store.jsonl import read_json

__all__ = ["local_tokenizer"]


def local_tokenizer(model: str) -> Callable[[str], int] | None:
    """Counts the tokens of a text as ``tokenizer.json`` in the folder ``model`` has it; None where
    there is none, or the library `tokenizers`, which comes with transformers, is not installed."""
    file = Path(model) / "tokenizer.json"
    try:
        if "model" not in read_json(file, dict[str, Any]):
            return None
        import tokenizers
    except (FileNotFoundError, NotADirectoryError, StoreError, ImportError):
        return None
    tokenizer = tokenizers.Tokenizer.from_file(str(file))
    return lambda text: len(tokenizer.encode(text).ids)
