"""Whether the name in a reply means the requested model."""

from __future__ import annotations

import pytest

from coeval.analysis.doubtful_answers import (
    find_stand_ins_and_mixtures,
    is_same_model,
    mark_stand_in_students,
)

SAME = [
    ("gpt-4o", "gpt-4o-2024-08-06"),
    ("openai/gpt-4o", "gpt-4o-2024-08-06"),
    ("gpt-4o", "azure/gpt-4o"),
    ("gpt-3.5-turbo", "gpt-3.5-turbo-0125"),
    ("claude-3-5-sonnet-latest", "claude-3-5-sonnet-20241022"),
    ("claude-sonnet-4-0", "claude-sonnet-4-20250514"),
    ("claude-3-5-sonnet-20241022", "claude-3-5-sonnet"),
    ("anthropic/claude-3.5-sonnet", "claude-3-5-sonnet-20241022"),
    ("us.anthropic.claude-3-5-sonnet-20241022-v2:0", "claude-3-5-sonnet-20241022"),
    ("claude-3-5-sonnet@20240620", "claude-3-5-sonnet-20240620"),
    ("gemini-1.5-pro", "models/gemini-1.5-pro-002"),
    ("gemini-flash-latest", "gemini-2.5-flash-preview-09-2025"),
    ("mistral-large-latest", "mistral-large-2411"),
    ("command-r-plus", "command-r-plus-08-2024"),
    ("grok-4", "grok-4-0709"),
    ("llama3", "llama3:latest"),
    ("meta-llama/llama-3.1-8b-instruct:free", "meta-llama/llama-3.1-8b-instruct (DeepInfra)"),
    ("meta-llama/Llama-3.1-8B-Instruct:novita", "meta-llama/llama-3.1-8b-instruct"),
    ("accounts/fireworks/models/qwen3-8b", "qwen3-8b"),
    ("/data/run/step_100", "step_100"),
    ("tgi", "meta-llama/Llama-3.1-8B-Instruct"),
]
OTHERS = [
    ("primary", "ok"),
    ("gpt-4o", "gpt-4o-mini-2024-07-18"),
    ("gpt-4", "gpt-4.1"),
    ("gpt-4", "gpt-4-turbo-2024-04-09"),
    ("gpt-4o-2024-08-06", "gpt-4o-2024-05-13"),
    ("mistral-large-2407", "mistral-large-2411"),
    ("claude-opus-4", "claude-opus-4-1-20250805"),
    ("claude-3-5-sonnet", "claude-3-7-sonnet-20250219"),
    ("llama3:8b", "llama3:70b"),
    ("qwen2.5-7b", "qwen2.5-72b"),
    ("step_100", "step_200"),
    ("gemini-flash-latest", "gemini-2.5-pro"),
    ("openrouter/auto", "anthropic/claude-3.5-sonnet"),
]


@pytest.mark.parametrize(("requested", "reported"), SAME)
def test_providers_editions_and_moving_names_mean_the_same_model(requested: str, reported: str) -> None:
    assert is_same_model(requested, reported)


@pytest.mark.parametrize(("requested", "reported"), OTHERS)
def test_another_size_version_or_pinned_edition_is_another_model(requested: str, reported: str) -> None:
    assert not is_same_model(requested, reported)


def test_answers_are_summed_up_over_tasks_or_by_task() -> None:
    rows = [
        ("student", "quiz", "primary", "ok", "fallback", 3),
        ("student", "quiz", "primary", None, "", 3),
        ("student", "story", "primary", "openai/first", "alias", 6),
        ("student", "quiz", "gpt-4o", "gpt-4o-2024-08-06", "", 6),
    ]
    [whole] = find_stand_ins_and_mixtures(rows, {})
    assert whole.came_from_clause == "3 of 12 answers came from ok"
    assert mark_stand_in_students([whole], {}) == {"primary": "primary (from ok)"}
    [of_task] = find_stand_ins_and_mixtures(rows, {}, by_task=True)
    assert (of_task.task, of_task.came_from_clause) == ("quiz", "3 of 6 answers came from ok")
    assert list(find_stand_ins_and_mixtures(rows, {"primary": ("primary", "openai/ok")})) != [whole]
