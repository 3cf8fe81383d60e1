"""Names of models, items and folders as people read them: short, and fitted to their place.

People tell models apart by a word or two: who serves it, how it was tuned and when are said only where
they are the difference. One map is made of all names that stand together, so that a name is the same
everywhere, whatever their order.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import msgspec

from coeval.core.plain import JOINERS, escape_line

# Who serves a model, as prefixes with a colon name them. A word that is none of these is the model's own, as
# in "mistral:7b" and "human:ann".
_HOSTS = (
    "anthropic|aws|azure|bedrock|cohere|deepseek|fireworks|google|groq|hf|huggingface|litellm|mistralai|ollama"
    "|openai|openrouter|perplexity|replicate|together|vertex|vertex_ai|vllm|xai"
)
# Makers as Amazon Bedrock names them ("us.anthropic.claude-…"). A name with a point is not cut at any other
# word: "gpt-3.5" has no maker.
_MAKERS = "ai21|amazon|anthropic|cohere|deepseek|luma|meta|mistral|openai|qwen|stability|twelvelabs|writer"
_PREFIX = re.compile(
    rf"(?:{_HOSTS}):(?=[a-z])|(?:[a-z]{{2,6}}(?:-gov)?\.)?(?:{_MAKERS})\.(?=[a-z])", re.IGNORECASE
)
_PARENT = re.compile(r"[^/]*/+(?=[^/])")
_DATE = (
    r"[-_@]20[12]\d-?[01]\d-?[0-3]\d(?!\d)"  # 2024-08-06, 20240620
    r"|[-_][01]\d-20[12]\d(?!\d)"  # 08-2024
    # 0613, 2407: only after a size, a version or "Instruct", since "step-1200" is no date
    r"|(?:(?<=\d)|(?<=\d[a-z])|(?<=instruct)|(?<=turbo))[-_](?:(?:0[1-9]|1[0-2])[0-3]\d|2[0-9](?:0[1-9]|1[0-2]))(?![\w.])"
)
_TUNED = r"[-_ ](?:instruct|chat|it|hf)(?![a-z0-9])|(?:(?<=instruct)|(?<=chat))[-_](?:turbo|lite)(?![a-z0-9])"
_EDITION = r"[-_]v\d+:\d+$|[-:]latest$"  # Bedrock's and Ollama's
_EXTRA = re.compile(f"{_DATE}|{_TUNED}|{_EDITION}", re.IGNORECASE)
_DATED = re.compile(_DATE, re.IGNORECASE)
_NAMELESS = "(no name)"


class _NameParts(NamedTuple):
    """A name in pieces: who it is from, the nearest last, then its words and those that may be dropped."""

    parents: tuple[str, ...]
    words: tuple[tuple[str, bool], ...]

    def text(self, depth: int = 0, extras: Collection[str] = ()) -> str:
        """Write the name with its ``depth`` nearest parents, and the droppable words among ``extras``."""
        parents = "".join(self.parents[len(self.parents) - depth :])
        return parents + "".join(word for word, extra in self.words if not extra or word.casefold() in extras)

    @property
    def extras(self) -> set[str]:
        return {word.casefold() for word, extra in self.words if extra}


def short_names(names: Iterable[str], labels: Mapping[str, str] | None = None) -> dict[str, str]:
    """Make a short label for each model's name; no two are alike, and their order does not matter.

    The vendor's prefix, ``-Instruct`` and the like, and dates are dropped; names that would look alike keep
    what tells them apart. ``labels``: by name, one that the user chose, which wins; its variants
    (``name@variant``) follow.
    """
    chosen = {
        name: escape_line(label) for name, label in (labels or {}).items() if escape_line(label).strip()
    }
    unique_names = list(dict.fromkeys(names))
    bases = sorted({_without_variant(name) for name in unique_names if name not in chosen} - chosen.keys())
    # Neither a chosen label nor the name that it stands for is another model's label.
    taken = {_comparison_key(text) for name, label in chosen.items() for text in (escape_line(name), label)}
    labels_by_base = {**_shorten_bases(bases, taken), **chosen}
    label_by_name: dict[str, str] = {}
    for name in sorted(unique_names):
        base = _without_variant(name)
        variant = "" if name in chosen else escape_line(name[len(base) :])
        label_by_name[name] = labels_by_base[name if name in chosen else base] + variant
    label_by_name = _number_duplicates(label_by_name)
    return {name: label_by_name[name] for name in unique_names}


def _without_variant(name: str) -> str:
    """Strip the variant off a name; a date after ``@`` is part of the model's name."""
    base, at, variant = name.partition("@")
    return name if not base or _DATED.fullmatch(f"{at}{variant}") else base


def _shorten_bases(names: Sequence[str], taken: Collection[str]) -> dict[str, str]:
    """Make short labels of names, sorted alphabetically; no label is one of ``taken``."""
    parts = {name: _split_name(escape_line(name)) for name in names}
    families: dict[str, list[str]] = {}
    for name in names:
        families.setdefault(_comparison_key(parts[name].text()), []).append(name)
    labels: dict[str, str] = {}
    for family in families.values():
        labels |= zip(family, _family_labels([parts[name] for name in family], taken), strict=True)
    whole = {_comparison_key(escape_line(name)): name for name in names}
    while alike := _find_ambiguous(labels, whole):
        labels |= {name: escape_line(name) for name in alike}
    return labels


def _find_ambiguous(labels: Mapping[str, str], whole: Mapping[str, str]) -> list[str]:
    """List the names whose short label looks like another's label or whole name."""
    bearers: dict[str, set[str]] = {}
    looks = [*((_comparison_key(label), name) for name, label in labels.items()), *whole.items()]
    for look, name in looks:
        bearers.setdefault(look, set()).add(name)
    return [
        name
        for name, label in labels.items()
        if label != escape_line(name) and len(bearers[_comparison_key(label)]) > 1
    ]


def _family_labels(family: Sequence[_NameParts], taken: Collection[str]) -> list[str]:
    """Make the shortest labels of names that differ in extras only, at first with unshared extras."""
    extras = [parts.extras for parts in family]
    own = extras[0].union(*extras) - extras[0].intersection(*extras)
    for depth in range(max(len(parts.parents) for parts in family) + 1):
        labels = [parts.text(depth, own) for parts in family]
        looks = {_comparison_key(label) for label in labels}
        if len(looks) == len(labels) and not looks & set(taken):
            return labels
    return [parts.text(len(parts.parents), parts.extras) for parts in family]


def _split_name(name: str) -> _NameParts:
    """Split a name into parents, words and droppable words."""
    parents = _PARENT.findall(name)
    rest = name[sum(map(len, parents)) :]
    if prefix := _PREFIX.match(rest):
        parents.append(prefix.group())
        rest = rest[prefix.end() :]
    words: list[tuple[str, bool]] = []
    end = 0
    for extra_match in _EXTRA.finditer(rest, 1):
        words += [(rest[end : extra_match.start()], False), (extra_match.group(), True)]
        end = extra_match.end()
    words.append((rest[end:], False))
    if not any(character.isdigit() for word, extra in words if not extra for character in word):
        words = [(word, extra and bool(_DATED.fullmatch(word))) for word, extra in words]  # "deepseek-chat"
    return _NameParts(tuple(parents), tuple(words))


def _comparison_key(label: str) -> str:
    """Return what readers tell labels apart by: letters alone, case-folded."""
    return label.translate(_UNJOINED).strip().casefold()


def _number_duplicates(labels: Mapping[str, str]) -> dict[str, str]:
    """Number labels that look alike still, of names that do so too; none is empty."""
    apart: dict[str, str] = {}
    seen: set[str] = set()
    for name in sorted(labels, key=lambda name_key: (labels[name_key] != name_key, name_key)):
        label = labels[name] if _comparison_key(labels[name]) else _NAMELESS
        number, numbered = 1, label
        while numbered.strip().translate(_UNJOINED) in seen:
            number += 1
            numbered = f"{label} ({number})"
        seen.add(numbered.strip().translate(_UNJOINED))
        apart[name] = numbered
    return apart


_UNJOINED = dict.fromkeys(map(ord, JOINERS))


def short_paths(paths: Iterable[str | Path]) -> dict[str, str]:
    """Name each folder by the shortest end of its path that no other one has, as ``runs/a`` and ``old/a``."""
    absolute = {str(path): Path(path).absolute() for path in paths}
    tails = {str(path): escape_line(_unique_tail(path, absolute.values())) for path in absolute.values()}
    apart = _number_duplicates(tails)
    return {name: apart[str(path)] for name, path in absolute.items()}


def _unique_tail(path: Path, others: Iterable[Path]) -> str:
    """Return the shortest end of a path that no other has; without one, the path without its root."""
    parts, elsewhere = path.parts, [other.parts for other in others if other != path]
    for length in range(1, len(parts)):
        if all(other[-length:] != parts[-length:] for other in elsewhere):
            return "/".join(parts[-length:])
    return "/".join(parts[1:]) or parts[0]


# --- Texts that are no longer than their place


def fit_names(names: Iterable[str], longest: int) -> dict[str, str]:
    """Cut each text to at most ``longest`` (10 or more) characters; no two are alike.

    A text that fits only goes through `escape_line`. A longer one loses its middle: names begin with their
    maker and end with a size, a date or a number. Two that would look alike keep the part that differs, or
    get a number.
    """
    wanted = list(dict.fromkeys(names))
    text_by_name = {name: escape_line(name) for name in sorted(wanted)}
    groups: dict[str, list[str]] = {}
    for name, text in sorted(text_by_name.items(), key=lambda name_and_text: len(name_and_text[1]) > longest):
        groups.setdefault(_without_middle(text, longest, longest // 2), []).append(name)
    labels: dict[str, str] = {}
    for group in groups.values():
        texts = [text_by_name[name] for name in group]
        labels |= zip(group, _shorten_distinctly(texts, longest, labels.values()), strict=True)
    return {name: labels[name] for name in wanted}


def _shorten_distinctly(texts: Sequence[str], longest: int, taken: Collection[str]) -> list[str]:
    """Shorten all in the same way, the first that leaves no two alike."""
    for cut in _iterate_cuts(longest, max(map(len, texts))):
        shortened = [cut(text) for text in texts]
        if len({*shortened, *taken}) == len(shortened) + len(taken):
            return shortened
    shortened = []
    for text in texts:
        number, label = 1, _without_middle(text, longest, longest // 2)
        while label in shortened or label in taken:
            number += 1
            room = longest - len(f" ({number})")
            label = f"{_without_middle(text, room, room // 2)} ({number})"
        shortened.append(label)
    return shortened


def _iterate_cuts(longest: int, length: int) -> Iterator[Callable[[str], str]]:
    """Yield ways to shorten a text: its middle removed, then another piece of it kept between its ends."""
    half = longest // 2
    for head in sorted(range(3, longest - 3), key=lambda head: abs(head - half)):
        yield partial(_without_middle, longest=longest, head=head)
    end = longest // 4
    for first in range(end, length, longest // 4):
        yield partial(_keep_ends_and_piece, longest=longest, first=first)


def _without_middle(text: str, longest: int, head: int) -> str:
    return text if len(text) <= longest else f"{text[:head]}…{text[head + 1 - longest :]}"


def _keep_ends_and_piece(text: str, longest: int, first: int) -> str:
    if len(text) <= longest:
        return text
    end = longest // 4
    return f"{text[:end]}…{text[first : first + longest - 2 * end - 2]}…{text[-end:]}"


# --- Short names in texts and tables, the full ones beside them and in a key

_RecordT = TypeVar("_RecordT")

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
        self.alone = {escape_line(name): label for name, label in (alone or {}).items()}
        self.key = {name: label for name, label in short.items() if escape_line(name) != label}
        replaced = {**self.alone, **{escape_line(name): label for name, label in self.key.items()}}
        self._whole = {name: (label, name) for name, label in replaced.items()}
        # Those that stay are looked for too: of a name within another the longer one is meant.
        names_by_length = sorted({*map(escape_line, short)}, key=lambda name: (-len(name), name))
        words = "|".join(re.escape(name) for name in names_by_length if _DISTINCTIVE.search(name))
        self._pattern = re.compile(f"{_BEFORE}(?:{words}){_AFTER}") if words and self.key else None

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
        for match in self._pattern.finditer(text) if self._pattern is not None else ():
            if (named := self._whole.get(match.group())) is not None:
                yield text[end : match.start()], ""
                yield named
                end = match.end()
        yield text[end:], ""

    def text(self, text: str) -> str:
        """Replace the full names in a text by short ones."""
        return "".join(piece for piece, _ in self.pieces(text))

    def full(self, text: str) -> str:
        """Return the text itself if it holds a name that is shown short, for a tooltip; else ""."""
        return text if any(name for _, name in self.pieces(text)) else ""

    def shorten_in(self, record: _RecordT) -> _RecordT:
        """Copy a record, or plain data, with short names in all its texts, keys included."""
        return cast("_RecordT", self._shorten(record)) if self.key else record

    def _shorten(self, record: Any) -> Any:
        """Shorten the names in one value, recursively."""
        match record:
            case str():
                return self.text(record)
            case msgspec.Struct():
                fields = {name: self._shorten(getattr(record, name)) for name in record.__struct_fields__}
                return msgspec.structs.replace(record, **fields)
            case dict():
                changed = copy.copy(record)  # with what a kind of dict knows beside its entries
                changed.clear()
                changed.update((self._shorten(key), self._shorten(value)) for key, value in record.items())
                return changed
            case list() | tuple() | frozenset():
                parts = [self._shorten(part) for part in record]
                return record._make(parts) if hasattr(record, "_make") else type(record)(parts)
            case _:
                return record
