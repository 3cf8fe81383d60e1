"""Names of models as people read them: short in texts and tables, the full ones beside them and in a key."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar, cast

import msgspec

from coeval.core.plain import plain, short_names

_Found = TypeVar("_Found")

# A word alone ("large") is also a word of sentences: as a model's name it is replaced where it stands alone.
_DISTINCTIVE = re.compile(r"[^a-zA-Z]")
# A name within a longer one (`gpt-4o` in `gpt-4o-mini`, in a path, in an id) is not that model's.
_BEFORE, _AFTER = r"(?<![\w/@-])(?<!\w[.:])", r"(?![\w/@-]|[.:]\w)"


class ShownNames:
    """Short names by full ones, and how they take their places in texts.

    ``short`` may hold names that are as short as they can be; ``key`` has those alone that differ. ``alone``
    are shown short where a text is nothing else, as ids of items in tables; by names as texts have them.
    """

    def __init__(self, short: Mapping[str, str], alone: Mapping[str, str] | None = None) -> None:
        self.alone = {plain(name): label for name, label in (alone or {}).items()}
        self.key = {name: label for name, label in short.items() if plain(name) != label}
        replaced = {**self.alone, **{plain(name): label for name, label in self.key.items()}}
        self._whole = {name: (label, name) for name, label in replaced.items()}
        # Those that stay are looked for too: of a name within another the longer one is meant.
        known = sorted({*map(plain, short)}, key=lambda name: (-len(name), name))
        words = "|".join(re.escape(name) for name in known if _DISTINCTIVE.search(name))
        self._found = re.compile(f"{_BEFORE}(?:{words}){_AFTER}") if words and self.key else None

    @classmethod
    def of(cls, names: Iterable[str], labels: Mapping[str, str] | None = None) -> ShownNames:
        """Shorten names that stand together; ``labels`` as in `short_names`."""
        return cls(short_names(names, labels=labels))

    def pieces(self, text: str) -> Iterator[tuple[str, str]]:
        """Cut a text at its names: what is shown, and the full name where that is a short one."""
        if text in self._whole:
            yield self._whole[text]
            return
        end = 0
        for found in self._found.finditer(text) if self._found is not None else ():
            if (named := self._whole.get(found.group())) is not None:
                yield text[end : found.start()], ""
                yield named
                end = found.end()
        yield text[end:], ""

    def text(self, text: str) -> str:
        """The same with short names."""
        return "".join(piece for piece, _ in self.pieces(text))

    def full(self, text: str) -> str:
        """The text itself where it holds a name that is shown short, for a tooltip; else nothing."""
        return text if any(name for _, name in self.pieces(text)) else ""

    def renamed(self, found: _Found) -> _Found:
        """Copy a record, or plain data, with short names in all its texts, keys included."""
        return cast("_Found", self._renamed(found)) if self.key else found

    def _renamed(self, found: Any) -> Any:
        match found:
            case str():
                return self.text(found)
            case msgspec.Struct():
                fields = {name: self._renamed(getattr(found, name)) for name in found.__struct_fields__}
                return msgspec.structs.replace(found, **fields)
            case dict():
                changed = copy.copy(found)  # with what a kind of dict knows beside its entries
                changed.clear()
                changed.update((self._renamed(key), self._renamed(value)) for key, value in found.items())
                return changed
            case list() | tuple() | frozenset():
                parts = [self._renamed(part) for part in found]
                return found._make(parts) if hasattr(found, "_make") else type(found)(parts)
            case _:
                return found
