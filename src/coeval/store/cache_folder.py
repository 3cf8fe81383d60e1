"""Where what is fetched lies: ``~/.cache/coeval``, or the folder that ``COEVAL_CACHE`` names; and how names
of others become names of files."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

_QUOTED = re.compile(rb"[^a-z0-9_.-]|^\.")
_LONGEST_NAME, _HEAD = 200, 120
"""A file system takes 255, and whatever writes a file may append to its name."""


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    return Path(environment.get("COEVAL_CACHE") or "~/.cache/coeval").expanduser()


def file_name_of(text: str) -> str:
    """The name of a file or folder that stands for one text alone, also where case makes no difference: all
    but ``a-z 0-9 _ . -`` is percent-quoted, and of a long one the end is a hash."""
    quoted = _QUOTED.sub(
        lambda found: b"%%%02x" % ord(found[0]), text.encode("utf-8", "surrogatepass")
    ).decode()
    if len(quoted) > _LONGEST_NAME:
        return f"{quoted[:_HEAD]}%~{sha256(quoted.encode()).hexdigest()}"  # nothing that is quoted has %~
    return quoted or "%"
