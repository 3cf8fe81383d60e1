"""AlpacaEval 2: is the model's output better than the baseline's? One comparison per instruction.

Dubois, Galambosi, Liang and Hashimoto 2024, "Length-Controlled AlpacaEval". The judge names the
better of the models ``m`` and ``M``, shown in an order drawn per instruction, and its preference is
read off the log-probabilities of that one token. ``length_controlled_winrate`` is what a regression
predicts for outputs as long as the baseline's. A judge that gives no log-probabilities is asked for
its verdict in words, in both orders.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

import msgspec

from coeval.analysis.pairwise.alpaca import (
    FEW_PREFERENCES,
    LENGTH_CONTROLLED,
    GamedAnnotations,
    LengthControl,
    alpaca_preference,
    alpaca_win_rate,
    fit_length_control,
    switched_order,
)
from coeval.benchmarks.assets.library import Library, download_newest_from_hub, read_records
from coeval.benchmarks.benchmark import (
    Answer,
    Ask,
    Benchmark,
    Item,
    JudgmentValue,
    Metric,
    OptionValues,
    Scored,
    TaskRecords,
    TaskSettings,
)
from coeval.benchmarks.run.judgment_outcomes import (
    look_up_outcomes,
    mean_metric,
    pair_with_responses,
    rate_metric,
)
from coeval.benchmarks.task_registry import ALPACA_DATASET, ALPACA_REFERENCE
from coeval.core.errors import AskError, BadRequest, NotFound, UsageError
from coeval.core.foreign import convert
from coeval.core.model import Model
from coeval.core.records import Completion, Message, Request, SamplingParameters, judgment_id
from coeval.core.text import fill_template
from coeval.judging.verdict import (
    ORDERS,
    Order,
    OrderedAnswers,
    answer_logprobs,
    is_lost_in_reasoning,
    order_answers,
    parse_identifier,
)
from coeval.models.dialects.openai_answer import FROM_REASONING
from coeval.models.transport.network import SourceFailed

# --- AlpacaEval's published data for length control

BASELINE, DIFFICULTY, GAMED = "alpaca-eval/baseline", "alpaca-eval/difficulty", "alpaca-eval/gamed"


class PublishedLengths(NamedTuple):
    """Published data for length control; ``difficulties`` by instruction number from 0, if there are any."""

    gamed: GamedAnnotations | None
    difficulties: dict[int, float]


def read_published_lengths_if_official(assets: Mapping[str, Path]) -> PublishedLengths:
    """Read the published data; none for other instructions than the official ones. The table of gamed
    baselines holds the difficulties too; the other one has a row per instruction, in order."""
    source = next((name for name in (GAMED, DIFFICULTY) if name in assets), None)
    if source is None or not Library().is_official(BASELINE, assets[BASELINE]):
        return PublishedLengths(None, {})
    rows = list(read_records(assets[source]))
    difficulties = {
        int(row["index"]) if source == GAMED else number: float(row["instruction_difficulty"])
        for number, row in enumerate(rows)
    }
    if source == DIFFICULTY:
        return PublishedLengths(None, difficulties)
    gamed = GamedAnnotations(
        tuple(float(row["preference"]) for row in rows),
        tuple(float(row["std_delta_len"]) for row in rows),
        tuple(float(row["instruction_difficulty"]) for row in rows),
    )
    return PublishedLengths(gamed, difficulties)


def explain_missing_interval(control: LengthControl | None) -> tuple[str, ...]:
    """Explain why a length-controlled rate has no interval; empty if it has one."""
    if control is None or control.has_interval:
        return ()
    return (
        f"length_controlled_winrate rests on {control.n} preferences; with fewer than {FEW_PREFERENCES} "
        "its fit often finds no effect of length, and is off by many points, so it has no interval",
    )


Manner: TypeAlias = Literal["logprobs", "logprobs after reasoning", "words"]
"""How the judge's preference is read."""

# What AlpacaEval's ``weighted_alpaca_eval_gpt4_turbo`` asks for.
TOP_LOGPROBS = 5
# Tokens for a judge that reasons, or answers in words.
LONG_REPLY = 4096

# AlpacaEval's preference is 1 for the baseline and 2 for the model.
DRAW = 1.5
_FILE = "alpaca_eval_gpt4_baseline.json"
_MARK, _END = "<|im_start|>", "<|im_end|>"


class AlpacaEval(Benchmark):
    """``length_controlled_winrate``, ``win_rate`` and ``discrete_win_rate``, in percent. With fewer than 100
    preferences ``win_rate`` is the first, and so the headline."""

    name = "alpaca-eval"
    needs_judge = True
    answer_characters = 1900
    judgment_characters = 4
    official_judge = "gpt-4-1106-preview"
    assets: ClassVar[tuple[str, ...]] = (BASELINE, "alpaca-eval/judge")
    optional_assets: ClassVar[tuple[str, ...]] = (GAMED, DIFFICULTY)

    def __init__(self, settings: TaskSettings) -> None:
        super().__init__(settings)
        self._template = self.text("alpaca-eval/judge")
        self._messages = parse_chatml(self._template)
        self.manner: Manner = "logprobs"
        self._reasons_first = True

    @classmethod
    def find_checkout_or_dataset_files(cls, values: OptionValues) -> dict[str, Path]:
        """Find the reference of another dataset than the official one."""
        repository = values[ALPACA_DATASET.name]
        if repository in (None, ALPACA_DATASET.shown_default):
            return {}
        try:
            return {BASELINE: download_newest_from_hub(repository, _FILE)}
        except SourceFailed as error:
            raise UsageError(
                f"{ALPACA_DATASET.flag} {repository}: {error}; give the file with {ALPACA_REFERENCE.flag}"
            ) from error

    def items(self) -> Sequence[Item]:
        records = read_records(self.settings.assets[BASELINE])
        return [
            Item(str(number), (Message("user", record["instruction"]),), record)
            for number, record in enumerate(records)
        ]

    def judge_sampling(self) -> SamplingParameters:
        return SamplingParameters(temperature=0.0, max_tokens=1 if self.manner == "logprobs" else LONG_REPLY)

    def judge_template(self) -> str:
        return f"{self.manner}\0{self._template}"

    async def detect_judge_abilities(self, judge: Model) -> None:
        """Decide for the whole task how preferences are read, by one comparison. A host without
        log-probabilities answers 400, or leaves them out; any other failure, which judgments would meet
        too, is raised."""
        request = self._make_request("Greet me.", OrderedAnswers("Hello!", "Goodbye."))
        requested = msgspec.structs.replace(
            request,
            sampling=self.effective_judge_sampling(),
            purpose="evaluation",
            droppable=self.list_unset_judge_parameters(),
        )
        try:
            completion = await judge.complete(requested)
        except (BadRequest, NotFound) as error:
            # No status tells it apart: hosts name the parameter that they refuse in the message.
            if "logprob" not in str(error).lower():
                raise
            self.manner = "words"
            return
        if not completion.logprobs:
            self.manner = "words"
        elif completion.reasoning is not None or is_lost_in_reasoning(completion):
            self.manner = "logprobs after reasoning"
            if completion.reasoning is not None:
                await self._check_judge_by_whole_reply(judge, requested)

    async def _check_judge_by_whole_reply(self, judge: Model, requested: Request) -> None:
        """Return to the official way if the judge does not reason, and only a server's reasoning parser takes
        its reply for reasoning: a whole reply shows that, one token does not."""
        try:
            whole = await judge.complete(
                msgspec.structs.replace(requested, sampling=self.effective_judge_sampling())
            )
        except AskError:
            return  # one trial more is no reason to give the judge up
        if FROM_REASONING in whole.notes:
            self.manner, self._reasons_first = "logprobs", False

    def judge_calls(self, judgments: int) -> tuple[int, int]:
        """Return the range: one or two probes, and both orders if the judge gives no log-probabilities."""
        return (judgments + 1, 2 * judgments + 2) if judgments else (0, 0)

    def asks(self, item: Item, answer: Answer) -> Sequence[Ask]:
        """Return one comparison, or two in words; none for equal outputs, which are a draw."""
        response, baseline = answer.response or "", item.fields["output"]
        if answer.response == baseline:
            return ()
        if self.manner == "words":
            return [
                self._make_verdict_ask(item, order, order_answers(order, response, baseline))
                for order in ORDERS
            ]
        switched = switched_order(item.fields["instruction"])
        pair = order_answers("model-first" if switched else "baseline-first", response, baseline)

        def parse(completion: Completion) -> JudgmentValue:
            top = answer_logprobs(completion, reasons_first=self._reasons_first)
            return {"preference": alpaca_preference(top, switched), "switched": switched, "top_logprobs": top}

        return [
            Ask(
                judgment_id(item.id, "preference"),
                lambda: self._make_request(item.fields["instruction"], pair),
                parse,
            )
        ]

    def _make_verdict_ask(self, item: Item, order: Order, pair: OrderedAnswers) -> Ask:
        def parse(completion: Completion) -> JudgmentValue:
            named = parse_identifier(completion.text)
            model = "M" if order == "baseline-first" else "m"
            return {"preference": 2.0 if named == model else 1.0, "order": order, "named": named}

        key = judgment_id(item.id, f"words-{order}")
        return Ask(key, lambda: self._make_request(item.fields["instruction"], pair), parse)

    def _make_request(self, instruction: str, pair: OrderedAnswers) -> Request:
        values = {"instruction": instruction, "output_1": pair.first, "output_2": pair.second}
        return Request(
            tuple(
                Message(message.role, fill_template(message.content, values)) for message in self._messages
            ),
            top_logprobs=None if self.manner == "words" else TOP_LOGPROBS,
        )

    def score(self, records: TaskRecords) -> Scored:
        """Compute the win rates; prompts without a comparison are failures."""
        outcomes = look_up_outcomes(self, records)
        preferences: dict[str, float | None] = {}
        for item in records.items:
            values = outcomes.complete_values(item.id)
            preferences[item.id] = None if values is None else _mean_preference(values)
        present = [preference for preference in preferences.values() if preference is not None]
        draws = sum(values == () for values in outcomes.values.values())  # made without asking
        control = self._fit_length_control(records, preferences)
        return Scored(
            metrics=_make_metrics(present, control),
            n_expected=outcomes.expected + draws,
            n_scored=outcomes.scored + draws,
            n_failed=outcomes.failed,
            reasons=self._incomparable_reasons(control),
            remarks=explain_missing_interval(control),
            tables=_make_tables(records, preferences, control),
            items={
                item: {"win_rate": 100 * (preference - 1), "discrete_win_rate": _discrete_percent(preference)}
                for item, preference in preferences.items()
                if preference is not None
            },
        )

    def _incomparable_reasons(self, control: LengthControl | None) -> tuple[str, ...]:
        reasons = []
        if self.manner == "words":
            reasons.append("the judge gives no log-probabilities: verdicts in words, in both orders")
        elif self.manner != "logprobs":
            reasons.append(f"the judge reasons before it answers, in up to {LONG_REPLY:,} tokens")
        if control is None:
            reasons.append("too few preferences for a length-controlled win rate")
        elif control.formula != "length_controlled_v1":
            reasons.append(f"length control by {control.formula}: the published data are not all there")
        return tuple(reasons)

    def _fit_length_control(
        self, records: TaskRecords, preferences: Mapping[str, float | None]
    ) -> LengthControl | None:
        """Fit the length control to the items that have an output: those without have no length."""
        answered = pair_with_responses(records)
        published = read_published_lengths_if_official(self.settings.assets)
        return fit_length_control(
            [preferences[item.id] for item, _ in answered],
            [len(response) for _, response in answered],
            [len(item.fields["output"]) for item, _ in answered],
            [published.difficulties[int(item.id)] for item, _ in answered]
            if published.difficulties
            else None,
            gamed=published.gamed,
            seed=self.settings.seed,
        )

    def write_extra(self, folder: Path, records: TaskRecords, scored: Scored) -> None:  # noqa: ARG002 - other tasks write them
        """Write ``model_answer/`` as official model outputs, ``model_judgment/`` as official annotations."""
        answered = pair_with_responses(records)
        outputs = [
            {
                "dataset": item.fields.get("dataset"),
                "instruction": item.fields["instruction"],
                "output": response,
                "generator": self.settings.model,
            }
            for item, response in answered
        ]
        outcomes = look_up_outcomes(self, records)
        annotations = [
            {
                "dataset": item.fields.get("dataset"),
                "instruction": item.fields["instruction"],
                "output_1": item.fields["output"],
                "generator_1": item.fields.get("generator"),
                "output_2": response,
                "generator_2": self.settings.model,
                "annotator": self.judge,
                "preference": None
                if (values := outcomes.complete_values(item.id)) is None
                else _mean_preference(values),
                "judgments": values,
            }
            for item, response in answered
        ]
        self.write_official(folder, outputs, annotations if records.judgments else ())


def parse_chatml(template: str) -> tuple[Message, ...]:
    """Parse the messages of a ChatML template, each trimmed."""
    messages = []
    for part in template.split(_MARK)[1:]:
        role, _, content = part.partition("\n")
        fields = {"role": role.strip(), "content": content.partition(_END)[0].strip()}
        messages.append(convert(fields, Message))
    return tuple(messages)


def _mean_preference(values: Sequence[Mapping[str, Any]]) -> float:
    return fmean(float(value["preference"]) for value in values) if values else DRAW


def _make_metrics(preferences: Sequence[float], control: LengthControl | None) -> dict[str, Metric]:
    rate = alpaca_win_rate(preferences)
    interval = mean_metric([100 * (preference - 1) for preference in preferences], "percent").ci95
    controlled = Metric(None, unit="percent")
    if control is not None:
        controlled = rate_metric(control.win_rate, control.n)
        if not control.has_interval:
            controlled = Metric(controlled.value, n=control.n, unit="percent")
    plain = {
        "win_rate": Metric(rate.win_rate, rate.standard_error, interval, len(preferences), "percent"),
        "discrete_win_rate": mean_metric(list(map(_discrete_percent, preferences)), "percent"),
    }
    fitted = {LENGTH_CONTROLLED: controlled}
    # The first one with a value is the headline. A rate without an interval is no estimate.
    return fitted | plain if controlled.ci95 is not None else plain | fitted


def _discrete_percent(preference: float) -> float:
    """Convert a preference to a win, a loss or a draw, in percent."""
    return 100.0 if preference > DRAW else 0.0 if preference < DRAW else 50.0


def _make_tables(
    records: TaskRecords, preferences: Mapping[str, float | None], control: LengthControl | None
) -> dict[str, Any]:
    """Tabulate counts under their official names, win rates by data set, and the length control's fit."""
    present = [preference for preference in preferences.values() if preference is not None]
    lengths = [len(response) for _, response in pair_with_responses(records)]
    by_dataset: dict[str, list[float]] = {}
    for item in records.items:
        if (preference := preferences[item.id]) is not None:
            by_dataset.setdefault(str(item.fields.get("dataset")), []).append(preference)
    return {
        "counts": {
            "n_wins": sum(preference > DRAW for preference in present),
            "n_wins_base": sum(preference < DRAW for preference in present),
            "n_draws": sum(preference == DRAW for preference in present),
            "n_total": len(present),
            "avg_length": int(sum(lengths) / len(lengths)) if lengths else None,
        },
        "dataset": {
            name: {"n": len(values), **alpaca_win_rate(values)._asdict()}
            for name, values in by_dataset.items()
        },
        "length_control": None if control is None else control.as_plain(),
    }
