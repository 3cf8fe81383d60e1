"""Answers that are cut off, empty, another model's or copies: how many, and what follows for scores."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from coeval.core.text import join_names, pluralize

# --- Answers cut off by max_tokens

# The share of cut answers above which a score is no longer that of the model.
TOO_MANY = 0.01
ANSWER_LIMIT = "max_tokens (of your own code: max_answer_bytes)"
_ABOVE = "more than 1%"


class CutOffAnswers(NamedTuple):
    """How many answers of a student, or to a task, are cut off, ``by_window`` of them by the server's window;
    ``answers`` counts the good ones."""

    name: str
    cut: int
    answers: int
    by_window: int = 0

    @property
    def are_too_many(self) -> bool:
        return self.cut > TOO_MANY * self.answers

    @property
    def reason(self) -> str:
        """Say why scores cannot be compared with published ones, if too many answers are cut off."""
        return f"{cut_off_cause([self])}: {self.cut:,} of {self.answers:,} answers ({_ABOVE})"


def cut_off_cause(counts: Iterable[CutOffAnswers]) -> str:
    return _pick_limit_texts(
        counts, "cut off at max_tokens", "cut off by the server's window or own limit", " or "
    )


def _pick_limit_texts(counts: Iterable[CutOffAnswers], at_limit: str, at_window: str, joiner: str) -> str:
    causes = {(count.cut > count.by_window, count.by_window > 0) for count in counts if count.cut}
    parts = (at_limit, any(limit for limit, _ in causes)), (at_window, any(window for _, window in causes))
    return joiner.join(part for part, applies in parts if applies)


def limit_to_raise_text(counts: Iterable[CutOffAnswers]) -> str:
    """Name the limit to raise."""
    return _pick_limit_texts(
        counts, f"raise {ANSWER_LIMIT}", "raise the server's --max-model-len, where it is yours,", " and "
    )


def cut_off_sentence(counts: Sequence[CutOffAnswers], preposition: str) -> str | None:
    """Say how many answers ``of`` each student, or ``to`` each task, are cut off; None where none is."""
    cut = sorted((count for count in counts if count.cut), key=lambda count: -count.cut)
    if not cut:
        return None
    parts = [f"{count.cut:,} of {count.answers:,} answers {preposition} {count.name}" for count in cut]
    return f"{cut_off_cause(cut).capitalize()}: {join_names(parts)}."


def too_many_cut_off_warning(counts: Sequence[CutOffAnswers]) -> str | None:
    """Warn where more than 1 % of answers are cut off; None where fewer are."""
    many = [count for count in counts if count.are_too_many]
    if not many:
        return None
    remedy = limit_to_raise_text(many)
    return (
        f"{_ABOVE.capitalize()} of the answers cut off: {join_names(count.name for count in many)}. "
        f"{remedy[0].upper()}{remedy[1:]} before trusting these scores."
    )


# --- Empty answers

_CUT_OFF = "reasoning that used all of max_tokens (raise it)"
_FILTERED = "a filter of the host, or a chat template that does not fit the model"
_EMPTY_IN_FILE = "they are empty in the file of responses"


class EmptyAnswers(NamedTuple):
    """How many answers of a student, or to a task, are empty, ``truncated`` of them cut off; ``answers``
    counts the good ones; ``given``: they come from a file, not from a model."""

    name: str
    empty: int
    truncated: int
    answers: int
    given: bool = False


def empty_answers_sentence(counts: Sequence[EmptyAnswers], preposition: str) -> str | None:
    """Say how many answers ``of`` each student, or ``to`` each task, are empty, and why; None if none is."""
    empty = sorted((count for count in counts if count.empty), key=lambda count: -count.empty)
    if not empty:
        return None
    parts = [f"{count.empty:,} of {count.answers:,} answers {preposition} {count.name}" for count in empty]
    return f"Empty, and counted like all others: {join_names(parts)}. {_empty_answer_causes(empty)}."


def _empty_answer_causes(empty_counts: Sequence[EmptyAnswers]) -> str:
    requested = [count for count in empty_counts if not count.given]
    cut = sum(count.truncated for count in requested)
    ended = sum(count.empty for count in requested) - cut
    causes = [cause for cause, number in ((_CUT_OFF, cut), (_FILTERED, ended)) if number]
    if len(causes) == 2:
        causes = [f"of the {cut:,} that were cut off, {_CUT_OFF}", f"of the other {ended:,}, {_FILTERED}"]
    if len(requested) < len(empty_counts):
        causes.append(_EMPTY_IN_FILE)
    return f"Likely cause{'s' if len(causes) > 1 else ''}: {'; '.join(causes)}"


# --- Whose answers a model's are: a gateway or host may answer with another model than the requested one

# Of a name's words, those that say which edition it is: dates, builds, "v1", words for moving ones.
_EDITION = re.compile(r"\d{2,}|0|v\d|latest|preview|exp|experimental|beta|stable")
_MOVING = frozenset({"latest", "0"})
# What servers of a single model document as its name.
_ANY_MODEL = frozenset({"tgi", "default", "local", "local-model"})
# Who serves or made it: up to the last slash, Bedrock's "us.anthropic.", Hugging Face's ":novita",
# OpenRouter's ":free" and " (DeepInfra)".
_AROUND = re.compile(r"^.*/(?=.)|^(?:[a-z]+(?:-gov)?\.)+(?=[a-z])|:[a-z][a-z-]*$| \(.*\)$")
_MOST_NAMED = 3


def is_same_model(requested: str, reported: str) -> bool:
    """Check whether a reply's name means the requested model: itself, with or without its provider, or an
    edition where the requested name leaves that open ("gpt-4o" for "openai/gpt-4o-2024-08-06")."""
    if requested == reported or requested.lower() in _ANY_MODEL:
        return True
    requested_words, reported_words = _count_model_name_words(requested), _count_model_name_words(reported)
    missing, extra = requested_words - reported_words, reported_words - requested_words
    if missing.keys() > _MOVING or not requested_words & reported_words:
        return False
    if missing.keys() <= _MOVING:  # "gemini-flash-latest" is "gemini-2.5-flash-preview-09-2025" today
        moves = "latest" in requested_words
        return all(_EDITION.fullmatch(word) or (moves and word.isdigit()) for word in extra)
    return not extra and all(map(_EDITION.fullmatch, missing))


def _count_model_name_words(name: str) -> Counter[str]:
    bare = name.lower().rstrip("/")
    while (shorter := _AROUND.sub("", bare)) != bare:
        bare = shorter
    return Counter(word for word in re.split(r"[^a-z0-9]+", bare) if word)


class ServedModel(msgspec.Struct, frozen=True):
    """The models behind a student's answers, or a judge's judgments, of a task (None: of all). ``total``
    counts the good ones; ``others`` those of models other than the requested one; ``several`` those of
    each model that a host serves under one name, if there are several: by model, most first."""

    role: Literal["student", "judge"]
    model: str
    task: str | None
    total: int
    others: dict[str, int] = {}
    several: dict[str, int] = {}

    @property
    def came_from_clause(self) -> str:
        """Return ``6 of 6 answers came from ok``."""
        count, models = sum(self.others.values()), _format_model_counts(self.others)
        return f"{count:,} of {self.total:,} {self._record_noun} came from {models}"

    @property
    def note(self) -> str:
        if self.others:
            return Incomparable(self.model, OTHER_MODELS, self.came_from_clause).sentence
        return (
            f"the {self._record_noun} of {self.model} come from several models or providers behind one name: "
            f"{_format_model_counts(self.several)}"
        )

    @property
    def warning(self) -> str:
        """Return the note as a warning; '' for a mixture."""
        if not self.others:
            return ""
        return f"{self.model}: {self.came_from_clause}, not from the requested model (docs/gateways.md)"

    @property
    def _record_noun(self) -> str:
        return "answers" if self.role == "student" else "judgments"


def mark_stand_in_students(served: Iterable[ServedModel], labels: Mapping[str, str]) -> dict[str, str]:
    """Mark the labels of students (see `short_names`) whose answers came from another model."""
    marked = dict(labels)
    for served_model in served:
        if served_model.others and served_model.role == "student":
            mark = f" (from {join_names(served_model.others, 1)})"
            marked[served_model.model] = (
                labels.get(served_model.model, served_model.model).removesuffix(mark) + mark
            )
    return marked


def _format_model_counts(models: Mapping[str, int]) -> str:
    named = [f"{name} ({count:,})" if len(models) > 1 else name for name, count in models.items()]
    return join_names(named, _MOST_NAMED)


def find_stand_ins_and_mixtures(
    rows: Iterable[tuple[Any, ...]], requested: Mapping[str, Sequence[str]], *, by_task: bool = False
) -> Iterator[ServedModel]:
    """Sum rows of role, task, model, the model that replies name, `Kept.served_as` and the number of records.
    ``requested``: the names of each model; default: its own. Yield only models that others answered for."""
    groups: dict[tuple[Any, ...], tuple[Counter[str], Counter[str]]] = {}
    for role, task, model, reported, served_as, count in rows:
        key = (role, model, task if by_task else None)
        counts_by_model, others = groups.setdefault(key, (Counter(), Counter()))
        names = requested.get(model, (model,))
        counts_by_model[reported or names[0]] += count
        if reported and served_as != "alias" and not any(is_same_model(name, reported) for name in names):
            others[reported] += count
    for key, (counts_by_model, others) in groups.items():
        several = {} if others or len(counts_by_model) == 1 else dict(counts_by_model.most_common())
        if others or several:
            yield ServedModel(*key, counts_by_model.total(), dict(others.most_common()), several)


# --- Benchmark figures that are not comparable with published ones: which, why, and what would change that

_NOT_COMPARABLE = re.compile(r"(.+) is not comparable with (.+?): (.+)", re.DOTALL)
_REMEDIES = (
    (r"\(--max-examples\)", "without --max-examples"),
    (r"published numbers are by ([^\s,;]+)(?=;|$)", r"--judge-model \1"),
    (r"name a judge with (--judge-model)", r"\1"),
    (r"([^\s/;]+)\S* is not the file that is published", r"coeval datasets fetch \1"),
    (r"NLTK data is not there", "coeval datasets fetch nltk"),
    (r"\bcame from\b", "the gateway's fallbacks turned off, or `base_model` set to that name"),
    (r"cut off at max_tokens", "a larger --max-tokens"),
    (r"cut off by the server's window", "a larger --max-model-len"),
    (r"records without a value", "the same command again"),
)


OTHER_MODELS = "other models"


class Incomparable(NamedTuple):
    """Figures of a task that are not comparable with published ones, or others ``with_what``, and why; with
    `OTHER_MODELS`, ``task`` is a model."""

    task: str
    with_what: str
    why: str

    @classmethod
    def parse_note(cls, note: str) -> Incomparable | None:
        """Parse a sentence; None where it says something else."""
        match = _NOT_COMPARABLE.fullmatch(note)
        return None if match is None else cls(*match.groups())

    @property
    def sentence(self) -> str:
        return f"{self.task} is not comparable with {self.with_what}: {self.why}"

    @property
    def remedy(self) -> str:
        """Return the options or commands that would make the figures comparable, if any."""
        remedies = (
            match.expand(way) for says, way in _REMEDIES if (match := re.search(says, self.why)) is not None
        )
        return ", ".join(dict.fromkeys(remedies))

    @property
    def why_without_folders(self) -> str:
        """Return the reason without the folders of files."""
        return re.sub(r"(?<=: )/[^;]*/", "", self.why)


# --- Samples of an answer that are copies of each other: from a cache, or a host that repeats itself

# Of fewer items, short answers may be the same by chance; a host that heeds the temperature repeats itself
# in all samples of so many items only where an item has one right answer.
FEWEST, NEARLY_ALL = 5, 0.95
# So much more of its items than of any other student's: at the same settings neither chance nor short answers
# make that of several items.
_FAR_MORE = 0.5

# An id that stands for several texts, or items, is none.
_COPIED = """
CREATE OR REPLACE TABLE copied AS
WITH sound AS (
    SELECT student, reply_id FROM response WHERE NOT failed AND reply_id <> ''
    GROUP BY ALL HAVING count(DISTINCT said) = 1 AND count(DISTINCT datapoint) = 1
)
SELECT key, student FROM response JOIN sound USING (student, reply_id) WHERE NOT failed
QUALIFY row_number() OVER (PARTITION BY student, reply_id ORDER BY sample) > 1
"""
_COUNTED = "SELECT student::VARCHAR AS name, count(DISTINCT key) FROM copied GROUP BY ALL ORDER BY name"
_REPEATED = """
SELECT student::VARCHAR AS name, count(*) FILTER (texts = 1), count(*) FILTER (texts < answers),
       count(*) AS items
FROM (
    SELECT r.student, r.datapoint, count(DISTINCT r.said) AS texts, count(*) AS answers
    FROM response r JOIN planned d ON r.datapoint = d.key WHERE NOT r.failed AND NOT d.failed
    GROUP BY ALL HAVING answers > 1
)
GROUP BY ALL HAVING items >= ? ORDER BY name
"""


class SampleCopies:
    """Removes copies from the table of answers, by the ids of replies, and reports what else repeats."""

    def __init__(self, rows: Callable[[str, Sequence[object]], list[tuple[Any, ...]]]) -> None:
        self._rows = rows
        rows(_COPIED, ())
        self.by_student: dict[str, int] = dict(rows(_COUNTED, ()))
        if self.by_student:
            rows("DELETE FROM response WHERE key IN (SELECT key FROM copied)", ())

    def notes(self, *, has_samples: bool) -> Iterator[str]:
        """Yield a sentence on each student with copies, or (if ``has_samples``) with answers that repeat
        themselves."""
        for student, copies in self.by_student.items():
            yield (
                f"not counted as samples: {pluralize(copies, 'answer')} of {student} from a cache, by the "
                "ids of their replies; turn caching off at the gateway"
            )
        repeats = self._rows(_REPEATED, [FEWEST]) if has_samples else []
        shares = {student: repeated / items for student, _, repeated, items in repeats}
        for student, alike, repeated, items in repeats:
            others = max((share for name, share in shares.items() if name != student), default=1.0)
            if alike >= NEARLY_ALL * items:
                yield (
                    f"the samples of {student} do not differ ({alike:,} of {pluralize(items, 'item')}): "
                    "its host may ignore the temperature, or the temperature is 0; more samples "
                    "add nothing"
                )
            elif shares[student] - others > _FAR_MORE:
                yield (
                    f"samples of {student} repeat each other in {repeated:,} of {pluralize(items, 'item')}, "
                    "far more often than those of other students: if a gateway's cache returns copies, "
                    "turn it off"
                )
