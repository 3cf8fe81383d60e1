"""Multiple choice: lettered lines below a prompt, and which letter is right.

Data sets keep the choices in one of three shapes: a list of texts (MMLU, HellaSwag), a mapping from label to
text (MedQA), or a mapping of two lists, ``{"text": [...], "label": [...]}`` (ARC). Which one is right they
say by its label, by its place from 0 on, by its letter or by its text.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from coeval.tables.field_path import FieldPath, Misfit, Row, as_text, kind_of_value

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


class ChoiceList(NamedTuple):
    """The texts of the choices; ``labels`` are the data set's own names of them, if it has some."""

    texts: list[str]
    labels: list[str]

    @property
    def lines(self) -> str:
        return "\n".join(f"{letter}. {text}" for letter, text in zip(_LETTERS, self.texts, strict=False))

    def right(self, value: Any, named: str) -> int:
        """The place of the one that a value of the column ``named`` means.

        Raises
        ------
        Misfit
            it means none of them, or may mean two.
        """
        if isinstance(value, int) and not isinstance(value, bool) and not self.labels:
            if 0 <= value < len(self.texts):
                return value
            raise Misfit(f"its `{named}` is {value}, and the choices are 0 to {len(self.texts) - 1}")
        said = as_text(value, named).strip()
        found = {place for place in self._places(said) if place < len(self.texts)}
        if len(found) == 1:
            return found.pop()
        wrong = "may mean more than one" if found else "names none"
        raise Misfit(f"its `{named}` ({said[:40]}) {wrong} of the choices")

    def _places(self, said: str) -> list[int]:
        if said in self.labels:
            return [self.labels.index(said)]
        places = [place for place, text in enumerate(self.texts) if text.strip() == said]
        if not self.labels and said.isdecimal():
            places.append(int(said))
        if not places and len(said) == 1 and said in _LETTERS:
            places.append(_LETTERS.index(said))
        return places


def letter(place: int) -> str:
    return _LETTERS[place]


def choices_of(path: FieldPath, row: Row) -> ChoiceList:
    """
    Raises
    ------
    Misfit
        the value is in none of the shapes, or holds fewer than two choices or more than letters.
    """
    value = path.value(row)
    match value:
        case {"text": list(texts), "label": list(labels)}:
            found = ChoiceList(_texts(texts, path), _texts(labels, path))
        case dict():
            found = ChoiceList(_texts(list(value.values()), path), [str(key) for key in value])
        case list() | tuple():
            found = ChoiceList(_texts(list(value), path), [])
        case _:
            raise Misfit(f"its `{path.text}` is {kind_of_value(value)}, and no list of choices")
    if not 2 <= len(found.texts) <= len(_LETTERS) or len(found.labels) not in (0, len(found.texts)):
        raise Misfit(
            f"its `{path.text}` holds {len(found.texts)} choices; 2 to {len(_LETTERS)} can be lettered"
        )
    return found


def _texts(values: list[Any], path: FieldPath) -> list[str]:
    return [as_text(value, path.text) for value in values]
