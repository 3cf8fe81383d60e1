"""Arena-Hard v2.0: each answer compared with a baseline's, twice, as A and as B.

Li et al. 2024, "From Crowdsourced Data to High-Quality Benchmarks: Arena-Hard and BenchBuilder
Pipeline". The baseline and the judge's system message are those of the prompt's category. Games are
in the official order: the baseline's answer is A in the first, the model's in the second. A category
has its own score, since baselines differ; ``win_rate`` puts all prompts together and is not official.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import msgspec

from coeval.analysis.pairwise.arena import (
    VERDICTS,
    ArenaJudgment,
    ArenaScore,
    StyledPair,
    markdown_style,
    score_by_judge_and_category,
)
from coeval.benchmarks.assets.library import find_uncached_in_checkout, read_records
from coeval.benchmarks.benchmark import (
    Answer,
    Ask,
    Benchmark,
    Item,
    Judgment,
    JudgmentValue,
    Metric,
    OptionValues,
    Scored,
    TaskRecords,
    TaskSettings,
    good_response,
)
from coeval.benchmarks.run.judgment_outcomes import look_up_outcomes, pair_with_responses, rate_metric
from coeval.benchmarks.task_registry import ARENA_BENCHMARK, ARENA_FOLDER
from coeval.core.errors import UsageError
from coeval.core.records import Completion, Message, Request, SamplingParameters, judgment_id
from coeval.core.text import fill_template
from coeval.judging.verdict import ORDERS, Order, order_answers, parse_and_check_last_label

O3_MINI, GEMINI = "o3-mini-2025-01-31", "gemini-2.0-flash-001"
BASELINES = {"hard_prompt": O3_MINI, "coding": O3_MINI, "math": O3_MINI, "creative_writing": GEMINI}
"""Category → the model whose answers are the baseline."""

_ANSWERS = {O3_MINI: "arena-hard/baseline_o3_mini", GEMINI: "arena-hard/baseline_gemini"}
_CREATIVE = "creative_writing"

# Asset → where it lies in a checkout.
_FILES = {
    "arena-hard/questions": "data/{benchmark}/question.jsonl",
    _ANSWERS[O3_MINI]: f"data/{{benchmark}}/model_answer/{O3_MINI}.jsonl",
    _ANSWERS[GEMINI]: f"data/{{benchmark}}/model_answer/{GEMINI}.jsonl",
}
_CHECKOUT = Path(".external/arena-hard-auto")


class ArenaHard(Benchmark):
    """Each category's score, plain and style-controlled, in percent."""

    name = "arena-hard"
    needs_judge = True
    answer_characters = 4500
    judgment_characters = 2600
    official_judge = "gpt-4.1"
    assets: ClassVar[tuple[str, ...]] = (
        "arena-hard/questions",
        *_ANSWERS.values(),
        "arena-hard/judge_system",
        "arena-hard/judge_system_creative",
        "arena-hard/judge_prompt",
    )

    def __init__(self, settings: TaskSettings) -> None:
        super().__init__(settings)
        self._system = self.text("arena-hard/judge_system")
        self._creative = self.text("arena-hard/judge_system_creative")
        self._prompt = self.text("arena-hard/judge_prompt")

    @classmethod
    def find_checkout_or_dataset_files(cls, values: OptionValues) -> dict[str, Path]:
        """Find the files of a checkout; without one, those of ``.external/`` that are not cached."""
        benchmark, folder = values[ARENA_BENCHMARK.name], values[ARENA_FOLDER.name]
        if benchmark != ARENA_BENCHMARK.default and folder is None:
            if not _CHECKOUT.is_dir():
                raise UsageError(
                    f"{ARENA_BENCHMARK.flag} {benchmark}: only {ARENA_BENCHMARK.default} can be fetched; "
                    f"name a checkout that holds it with {ARENA_FOLDER.flag}"
                )
            folder = _CHECKOUT
        files = {asset: path.format(benchmark=benchmark) for asset, path in _FILES.items()}
        if folder is None:
            return find_uncached_in_checkout(_CHECKOUT, files)
        return {asset: ARENA_FOLDER.require_file(folder / path) for asset, path in files.items()}

    def items(self) -> Sequence[Item]:
        """Return the questions, each with its baseline's answer. Raises UsageError: a category has no
        baseline, or the baseline did not answer a question."""
        answers = {model: self._read_baseline_answers(asset) for model, asset in _ANSWERS.items()}
        items = []
        for record in read_records(self.settings.assets["arena-hard/questions"]):
            baseline = BASELINES.get(record["category"], "")
            answer = answers.get(baseline, {}).get(record["uid"])
            if answer is None:
                raise UsageError(
                    f"arena-hard: question {record['uid']} ({record['category']}) has no baseline answer "
                    f"(of {baseline or 'any model'}); categories are {', '.join(BASELINES)}"
                )
            fields = {**record, "baseline": baseline, "baseline_answer": answer}
            items.append(Item(record["uid"], (Message("user", record["prompt"]),), fields))
        return items

    def _read_baseline_answers(self, asset: str) -> dict[str, str]:
        contents = {
            record["uid"]: record["messages"][-1]["content"]
            for record in read_records(self.settings.assets[asset])
        }
        return {
            uid: str(text["answer"] if isinstance(text, dict) else text) for uid, text in contents.items()
        }

    def judge_sampling(self) -> SamplingParameters:
        return SamplingParameters(temperature=0.0, max_tokens=16_000)

    def judge_template(self) -> str:
        return f"{self._system}\0{self._creative}\0{self._prompt}"

    def asks(self, item: Item, answer: Answer) -> Sequence[Ask]:
        """Return both games; an empty answer is compared like any other."""
        return [self._make_game_ask(item, order, answer.response or "") for order in ORDERS]

    def _make_game_ask(self, item: Item, order: Order, response: str) -> Ask:
        first, second = order_answers(order, response, item.fields["baseline_answer"])
        system = self._creative if item.fields["category"] == _CREATIVE else self._system

        def request() -> Request:
            values = {"QUESTION": item.fields["prompt"], "ANSWER_A": first, "ANSWER_B": second}
            return Request((Message("system", system), Message("user", fill_template(self._prompt, values))))

        def parse(completion: Completion) -> JudgmentValue:
            return {"verdict": parse_and_check_last_label(completion.text, VERDICTS)}

        return Ask(judgment_id(item.id, order), request, parse)

    def score(self, records: TaskRecords) -> Scored:
        """Score the prompts with verdicts of both games."""
        outcomes = look_up_outcomes(self, records)
        games = []
        for item in records.items:
            verdicts = (None if value is None else value["verdict"] for value in outcomes.values[item.id])
            games.append(ArenaJudgment(item.id, item.fields["category"], self.judge, *verdicts))
        answered = {game.prompt for game in games if game.baseline_first and game.model_first}
        styles = {
            item.id: StyledPair(
                markdown_style(good_response(records.answers.get(item.id)) or ""),
                markdown_style(item.fields["baseline_answer"]),
            )
            for item in records.items
        }
        scores = score_by_judge_and_category(games, styles=styles, seed=self.settings.seed)
        rates = {game.prompt: _prompt_win_rate(game) for game in games if game.prompt in answered}
        return Scored(
            metrics=_make_metrics(scores),
            n_expected=outcomes.expected,
            n_scored=outcomes.scored,
            n_failed=outcomes.failed,
            tables={"scores": [msgspec.to_builtins(score) for score in scores]},
            items={prompt: dict.fromkeys(rate.metrics, rate.value) for prompt, rate in rates.items()},
            weights={prompt: dict.fromkeys(rate.metrics, rate.verdicts) for prompt, rate in rates.items()},
        )

    def write_extra(self, folder: Path, records: TaskRecords, scored: Scored) -> None:  # noqa: ARG002 - other tasks write them
        """Write ``model_answer/`` and ``model_judgment/`` in the official repository's shape."""
        answered = pair_with_responses(records)
        lines = [_answer_line(item, self.settings.model, response) for item, response in answered]
        judged = [self._judgment_line(item, records.judgments) for item, _ in answered]
        self.write_official(folder, lines, judged if records.judgments else ())

    def _judgment_line(self, item: Item, judgments: Mapping[str, Judgment]) -> dict[str, Any]:
        games = [judgments.get(judgment_id(item.id, order)) for order in ORDERS]
        return {
            "uid": item.id,
            "category": item.fields["category"],
            "judge": self.judge,
            "model": self.settings.model,
            "baseline": item.fields["baseline"],
            "games": [
                {"score": (game.value or {}).get("verdict"), "judgment": {"answer": game.raw}}
                if game
                else None
                for game in games
            ],
        }


class _PromptRate(NamedTuple):
    """The model's share of wins in both games of a prompt, in percent; of how many verdicts; its metrics."""

    value: float
    verdicts: int
    metrics: tuple[str, str]


def _prompt_win_rate(games: ArenaJudgment) -> _PromptRate:
    lost, first_counts = VERDICTS[games.baseline_first or ""]
    won, second_counts = VERDICTS[games.model_first or ""]
    wins, verdicts = (1 - lost) * first_counts + won * second_counts, first_counts + second_counts
    return _PromptRate(100 * wins / verdicts, verdicts, ("win_rate", games.category))


def _make_metrics(scores: Sequence[ArenaScore]) -> dict[str, Metric]:
    """Make ``win_rate`` of all prompts, then each category's, plain and style-controlled. With a single
    category it is that of all prompts."""
    unknown = Metric(None, unit="percent")
    metrics = {"win_rate": unknown, "win_rate_style_controlled": unknown}
    for score in scores:
        style = score.style.win_rate if score.style else None
        names = ["win_rate"] if score.category is None or len(scores) == 1 else []
        for name in names if score.category is None else [*names, score.category]:
            metrics[name] = rate_metric(score.win_rate, score.n)
            metrics[f"{name}_style_controlled"] = rate_metric(style, score.n)
    return metrics


def _answer_line(item: Item, model: str, response: str) -> dict[str, Any]:
    """Make a line of ``model_answer/``, with the style counts of the official code."""
    style = markdown_style(response)
    return {
        "uid": item.id,
        "model": model,
        "messages": [
            {"role": "user", "content": item.fields["prompt"]},
            {"role": "assistant", "content": {"answer": response}},
        ],
        "metadata": {
            "token_len": round(style.length),
            "header_count": {"all": style.headers},
            "list_count": {"all": style.lists},
            "bold_count": {"all": style.bold},
        },
    }
