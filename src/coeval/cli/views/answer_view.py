"""Items with their answers and judgments, for reading. Texts are those of models: shown, never obeyed."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from coeval.analysis.doubtful_answers import CutOffAnswers, cut_off_cause
from coeval.analysis.planned_names import Planned, level_name
from coeval.cli.views.results_view import json_text
from coeval.core.errors import Undecodable
from coeval.core.figures import format_points
from coeval.core.foreign import decode
from coeval.core.model import WINDOW
from coeval.core.plain import escape_line, escape_lines
from coeval.core.records import (
    Datapoint,
    Evaluation,
    Kept,
    Level,
    Preference,
    Response,
    Winner,
    is_good,
    keep_valid_values,
)

if TYPE_CHECKING:  # the analysis loads numpy and duckdb
    from coeval.analysis.judged_answers import JudgedAnswer

# Characters of a text that are shown unless all are asked for.
_LONG = 3_000
# Of scales from 0 to 1 the upper quarter is shown as High is, the lower one as Low.
_GOOD = 0.75
_VERDICT: dict[Winner, tuple[str, str]] = {
    "first": ("better than", "green"),
    "tie": ("as good as", "yellow"),
    "second": ("worse than", "red"),
}
_STYLE: dict[Level, str] = {"High": "green", "Medium": "yellow", "Low": "red"}


def answer_lines(found: tuple[JudgedAnswer, ...]) -> Iterator[str]:
    """One JSON line for each answer, with the whole records."""
    for judged in found:
        yield json_text(
            {
                "item": judged.item,
                "answer": judged.answer,
                "judgments": judged.judgments,
                "score": judged.score,
                "disagreement": judged.disagreement,
                **({"comparisons": judged.comparisons} if judged.comparisons else {}),
            }
        )


class AnswerView:
    """Prints answers on a console, folded between words on a terminal and in one piece elsewhere.

    ``whole``: long texts too. ``planned`` knows the scales of factors.
    """

    def __init__(self, console: Console, *, whole: bool, planned: Planned | None = None) -> None:
        self._console = console
        self._whole = whole
        self._planned = planned

    def show(self, found: tuple[JudgedAnswer, ...]) -> None:
        """Print the answers; an item stands once above those to it that follow one another."""
        for place, (_, answers) in enumerate(groupby(found, key=lambda judged: judged.item.id)):
            for number, judged in enumerate(answers):
                if not number:
                    self._item(judged.item, apart=bool(place))
                self._answer(judged)

    def _item(self, item: Datapoint, *, apart: bool) -> None:
        if apart:
            self._console.print()
        self._line(Text(escape_line(item.id), style="bold"))
        for name, values in (
            ("attributes", item.sampled_target_attributes),
            ("nuance", item.sampled_nuanced_attributes),
        ):
            if values:
                pairs = ", ".join(f"{attribute}={value}" for attribute, value in values.items())
                self._line(Text(escape_line(f"{name}: {pairs}"), style="dim"))
        self._failure(item)
        if item.source:
            self._line(Text(escape_line(f"source: {item.source}"), style="dim"))
        self._texts("prompt", item.prompt)
        self._texts("reference", item.reference_response)
        self._texts("evidence", "\n".join(item.evidence) or None)

    def _answer(self, judged: JudgedAnswer) -> None:
        answer = judged.answer
        if answer is None:
            self._line(Text("not answered", style="yellow"))
            return
        self._console.print()
        sample = f" (sample {answer.sample + 1})" if answer.sample else ""
        name = escape_line(f"answer of {answer.student_model_id}{sample}")
        self._line(Text(name, style="bold") + _figures(judged, answer))
        self._line(Text(escape_line(answer.id), style="dim"))
        self._failure(answer)
        self._texts("reasoning", answer.reasoning)
        if answer.response == "":
            self._line(Text("(empty)", style="yellow"), 2)
        elif answer.response is not None:
            self._text(answer.response)
        for judgment in judged.judgments:
            self._judgment(judgment)
        for compared in judged.comparisons:
            self._comparison(compared)

    def _judgment(self, judgment: Evaluation) -> None:
        head = Text(escape_line(f"{judgment.judge_model_id}: "), style="cyan")
        self._line(head + Text(", ").join(_scores(judgment, self._planned)))
        self._failure(judgment)
        for factor, reason in (judgment.reasons or {}).items():
            self._text(f"{factor}: {reason}", style="dim")
        if judgment.raw and not _is_read(judgment):
            self._text(judgment.raw, style="dim")

    def _comparison(self, compared: Preference) -> None:
        """With another answer, which was shown after this one."""
        head = Text(escape_line(f"{compared.judge_model_id}: "), style="cyan")
        if compared.winner is not None:
            words, style = _VERDICT[compared.winner]
            head += Text(words, style=style) + Text(escape_line(f" {compared.second_model_id}"))
        self._line(head)
        self._failure(compared)
        if compared.reason:
            self._text(compared.reason, style="dim")

    def _failure(self, record: Kept) -> None:
        if not is_good(record):
            reason = f" ({record.error.kind}): {record.error.message}" if record.error is not None else ""
            self._line(Text(escape_line(f"failed{reason}"), style="red"), 2)

    def _texts(self, name: str, text: str | None) -> None:
        if text is not None:
            self._line(Text(f"{name}:"))
            self._text(text)

    def _text(self, text: str, style: str = "") -> None:
        shown = text if self._whole or len(text) <= _LONG else text[:_LONG]
        for line in escape_lines(shown).split("\n"):
            self._line(Text(line.rstrip(), style=style), 2)
        if left := len(text) - len(shown):
            self._line(Text(f"… {left:,} more characters (--full shows them)", style="yellow"), 2)

    def _line(self, line: Text, indent: int = 0) -> None:
        """One line, or on a terminal as many as it takes, each of them indented."""
        blanks = " " * indent
        line.rstrip()
        if not self._console.file.isatty():
            self._console.print(Text(blanks) + line, soft_wrap=True)
            return
        for part in line.wrap(self._console, max(1, self._console.width - indent)) or [Text()]:
            self._console.print(Text(blanks) + part, soft_wrap=True)


def _figures(judged: JudgedAnswer, answer: Response) -> Text:
    parts = [] if judged.score is None else [f"score {format_points(judged.score)}"]
    if judged.disagreement is not None:
        parts.append(f"disagreement {format_points(judged.disagreement)}")
    if answer.truncated:
        by_window = int(answer.finish_reason == WINDOW)
        parts.append(cut_off_cause([CutOffAnswers("", 1, 1, by_window)]))
    return Text(f"  {', '.join(parts)}" if parts else "")


def _is_read(judgment: Evaluation) -> bool:
    """Whether what the judge said is its scores and reasons and nothing else."""
    try:
        said = decode(judgment.raw or "")
    except Undecodable:
        return False
    scored = judgment.scores.keys() | (judgment.values or {}).keys()
    return isinstance(said, dict) and said.keys() == scored


def _scores(judgment: Evaluation, planned: Planned | None) -> Iterator[Text]:
    for factor, level in judgment.scores.items():
        yield Text(escape_line(f"{factor} ")) + Text(escape_line(level), style=_STYLE.get(level, "red"))
    for factor, value in keep_valid_values(judgment.values).items():
        style = "green" if value > _GOOD else "red" if value < 1 - _GOOD else "yellow"
        name = level_name(planned, judgment.task_id, factor, value)
        yield Text(escape_line(f"{factor} ")) + Text(escape_line(name), style=style)
    for factor in judgment.missing:
        yield Text(escape_line(f"{factor} missing"), style="yellow")
    for label, score in (judgment.label_scores or {}).items():
        given = score.predicted if score.predicted is not None else "none of the labels"
        verdict = "right" if score.match else "wrong"
        yield (
            Text(escape_line(f"{label}: expected {score.expected}, given {given}, "))
            + Text(verdict, style="green" if score.match else "red")
        )
