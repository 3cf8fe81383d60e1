"""The command that goes on with a run."""

from __future__ import annotations

from shlex import quote

from coeval.core.errors import ConfigError, StoreError
from coeval.core.secrets.shown_url import HIDDEN
from coeval.pipeline.config.load_file import load_config
from coeval.pipeline.start.checks import run_folder
from coeval.store.rundir import RunDir

__all__ = ["continue_command"]

_BY_FILE = "coeval run --config FILE --continue (FILE: the experiment file that the run was started with)"


def continue_command(folder: RunDir) -> str:
    """By the configuration that the run keeps; by the file that it came of, where that copy is not usable,
    names another folder from here, or lacks the credentials that were taken out of it."""
    try:
        config = load_config(folder.config)
        whole = HIDDEN.encode() not in folder.config.read_bytes()
    except (ConfigError, StoreError, OSError):
        return _BY_FILE
    if not whole or run_folder(config).path.resolve() != folder.path.resolve():
        return _BY_FILE
    return f"coeval run --config {quote(str(folder.config))} --continue"
