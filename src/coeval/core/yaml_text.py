"""How YAML of others is read."""

from __future__ import annotations

from ruamel.yaml import YAML

__all__ = ["yaml_reader"]


def yaml_reader() -> YAML:
    """A reader that makes plain data only, and keeps to itself that an anchor is set twice, as YAML allows:
    its warning would quote lines of the file, and one of them may hold a key."""
    reader = YAML(typ="safe", pure=True)
    reader.composer.warn_double_anchors = False
    return reader
