from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from coeval.core.errors import ConfigError
from coeval.pipeline.config.load_file import read_config

VALID = """\
models:
  - name: large
    interface: openai
    roles: [teacher, student]
    parameters: {model: gpt-4o, temperature: 0.7}
  - name: small
    interface: openai
    roles: [judge]
tasks:
  - name: news
    description: Summarise.
    target_attributes:
      length: [short, long]
      tone: [plain]
    sampling: {target: [1, 2], total: 5}
    rubric:
      clarity: It is clear.
experiment:
  id: exp-1
  storage_folder: runs
"""

Check = Callable[[str], list[str]]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory of the experiment."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def valid() -> str:
    return VALID


@pytest.fixture
def check(folder: Path) -> Check:
    """The problems of a text as an experiment file, each as it is printed."""

    def problems(text: str) -> list[str]:
        (folder / "e.yaml").write_text(text, encoding="utf-8")
        try:
            read_config("e.yaml")
        except ConfigError as error:
            return error.problems
        return []

    return problems
