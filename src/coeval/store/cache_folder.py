"""Where what is fetched lies: ``~/.cache/coeval``, or the folder that ``COEVAL_CACHE`` names."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    return Path(environment.get("COEVAL_CACHE") or "~/.cache/coeval").expanduser()
