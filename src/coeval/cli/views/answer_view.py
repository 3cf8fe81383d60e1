"""Items with their answers and judgments, for reading. Texts of models are shown, never interpreted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from coeval.analysis.doubtful_answers import CutOffAnswers, cut_off_cause
from coeval.analysis.planned_names import Planned, nearest_level_or_number
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


def answer_json_lines(answers: tuple[JudgedAnswer, ...]) -> Iterator[str]:
    """Yield one JSON line for each answer, with the whole records."""
    for judged in answers:
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
    """Prints answers on a console, folded between words on a terminal and in one piece elsewhere. ``whole``:
    long texts too. ``planned`` has the scales of factors."""

    def __init__(self, console: Console, *, whole: bool, planned: Planned | None = None) -> None:
        self._console = console
        self._whole = whole
        self._planned = planned

    def show(self, judged_answers: tuple[JudgedAnswer, ...]) -> None:
        """Print answers; an item is printed once above its answers that follow one another."""
        before: Datapoint | None = None
        for judged in judged_answers:
            if before is None or judged.item.id != before.id:
                if before is not None:
                    self._console.print()
                before = judged.item
                self._print_item(before)
            self._print_answer(judged)

    def _print_item(self, item: Datapoint) -> None:
        """Print an item's id, attributes, failure and texts."""
        self._print_line(item.id, "bold")
        attributes = {"attributes": item.sampled_target_attributes, "nuance": item.sampled_nuanced_attributes}
        for name, values in attributes.items():
            if values:
                pairs = ", ".join(f"{attribute}={value}" for attribute, value in values.items())
                self._print_line(f"{name}: {pairs}", "dim")
        self._print_failure_if_bad(item)
        if item.source:
            self._print_line(f"source: {item.source}", "dim")
        self._print_named_text("prompt", item.prompt)
        self._print_named_text("reference", item.reference_response)
        self._print_named_text("evidence", "\n".join(item.evidence) or None)

    def _print_answer(self, judged: JudgedAnswer) -> None:
        """Print an answer with its judgments and comparisons."""
        answer = judged.answer
        if answer is None:
            self._print_line("not answered", "yellow")
            return
        self._console.print()
        sample = f" (sample {answer.sample + 1})" if answer.sample else ""
        name = escape_line(f"answer of {answer.student_model_id}{sample}")
        self._print_line(Text(name, style="bold") + _format_score_disagreement_and_cut_off(judged, answer))
        self._print_line(answer.id, "dim")
        self._print_failure_if_bad(answer)
        self._print_named_text("reasoning", answer.reasoning)
        if answer.response == "":
            self._print_line("(empty)", "yellow", indent=2)
        elif answer.response is not None:
            self._print_text(answer.response)
        for judgment in judged.judgments:
            self._print_judgment(judgment)
        for compared in judged.comparisons:
            self._print_comparison(compared)

    def _print_judgment(self, judgment: Evaluation) -> None:
        head = Text(escape_line(f"{judgment.judge_model_id}: "), style="cyan")
        self._print_line(head + Text(", ").join(_format_scores_and_labels(judgment, self._planned)))
        self._print_failure_if_bad(judgment)
        for factor, reason in (judgment.reasons or {}).items():
            self._print_text(f"{factor}: {reason}", style="dim")
        if judgment.raw and not _has_only_scores(judgment):
            self._print_text(judgment.raw, style="dim")

    def _print_comparison(self, compared: Preference) -> None:
        """Print the verdict against another answer, which the judge saw second."""
        head = Text(escape_line(f"{compared.judge_model_id}: "), style="cyan")
        if compared.winner is not None:
            words, style = _VERDICT[compared.winner]
            head += Text(words, style=style) + Text(escape_line(f" {compared.second_model_id}"))
        self._print_line(head)
        self._print_failure_if_bad(compared)
        if compared.reason:
            self._print_text(compared.reason, style="dim")

    def _print_failure_if_bad(self, record: Kept) -> None:
        if not is_good(record):
            reason = f" ({record.error.kind}): {record.error.message}" if record.error is not None else ""
            self._print_line(f"failed{reason}", "red", indent=2)

    def _print_named_text(self, name: str, text: str | None) -> None:
        if text is not None:
            self._print_line(f"{name}:")
            self._print_text(text)

    def _print_text(self, text: str, style: str = "") -> None:
        shown_text = text if self._whole or len(text) <= _LONG else text[:_LONG]
        for line in escape_lines(shown_text).split("\n"):
            self._print_line(Text(line.rstrip(), style=style), indent=2)
        if hidden := len(text) - len(shown_text):
            self._print_line(f"… {hidden:,} more characters (--full shows them)", "yellow", indent=2)

    def _print_line(self, text: str | Text, style: str = "", *, indent: int = 0) -> None:
        """Print one line, or on a terminal as many as it takes, each of them indented."""
        blanks, line = " " * indent, text if isinstance(text, Text) else Text(escape_line(text), style=style)
        line.rstrip()
        if not self._console.file.isatty():
            self._console.print(Text(blanks) + line, soft_wrap=True)
            return
        for part in line.wrap(self._console, max(1, self._console.width - indent)) or [Text()]:
            self._console.print(Text(blanks) + part, soft_wrap=True)


def _format_score_disagreement_and_cut_off(judged: JudgedAnswer, answer: Response) -> Text:
    parts = [] if judged.score is None else [f"score {format_points(judged.score)}"]
    if judged.disagreement is not None:
        parts.append(f"disagreement {format_points(judged.disagreement)}")
    if answer.truncated:
        by_window = int(answer.finish_reason == WINDOW)
        parts.append(cut_off_cause([CutOffAnswers("", 1, 1, by_window)]))
    return Text(f"  {', '.join(parts)}" if parts else "")


def _has_only_scores(judgment: Evaluation) -> bool:
    try:
        reply = decode(judgment.raw or "")
    except Undecodable:
        return False
    scored = judgment.scores.keys() | (judgment.values or {}).keys()
    return isinstance(reply, dict) and reply.keys() == scored


def _format_scores_and_labels(judgment: Evaluation, planned: Planned | None) -> Iterator[Text]:
    """Yield each level, value, missing factor and label of a judgment, coloured."""
    for factor, level in judgment.scores.items():
        yield Text(escape_line(f"{factor} ")) + Text(escape_line(level), style=_STYLE.get(level, "red"))
    for factor, value in keep_valid_values(judgment.values).items():
        style = "green" if value > _GOOD else "red" if value < 1 - _GOOD else "yellow"
        name = nearest_level_or_number(planned, judgment.task_id, factor, value)
        yield Text(escape_line(f"{factor} ")) + Text(escape_line(name), style=style)
    for factor in judgment.missing:
        yield Text(escape_line(f"{factor} missing"), style="yellow")
    for label, score in (judgment.label_scores or {}).items():
        stated = score.predicted if score.predicted is not None else "none of the labels"
        verdict = "right" if score.match else "wrong"
        yield (
            Text(escape_line(f"{label}: expected {score.expected}, given {stated}, "))
            + Text(verdict, style="green" if score.match else "red")
        )
