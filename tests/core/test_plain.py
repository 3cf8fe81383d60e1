"""Names for people: short, and never two alike."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coeval.core.plain import escape_line
from coeval.core.shown_names import fit_names, short_names, short_paths

QWEN = ("Qwen/Qwen2.5-72B-Instruct-Turbo", "Qwen/Qwen2.5-72B-Instruct-Turbo-2")


@given(st.lists(st.text("ab-7\u2028", max_size=40), unique=True, max_size=30), st.integers(10, 32))
def test_no_two_labels_are_alike_or_too_long(names: list[str], longest: int) -> None:
    labels = fit_names(names, longest)
    assert list(labels) == names
    assert len(set(labels.values())) == len(names)
    for label in labels.values():
        assert len(label) <= longest
        assert label == escape_line(label)


def test_a_number_takes_the_place_of_letters() -> None:
    """Of names that no cut tells apart, ten characters have room for an end beside the number."""
    names = ["bb---a-babaa-ab/baa-ab/", "bb---a-babab-ab/baa-ab/", "bb---a-baabb-ab/baa-ab/"]
    names += [f"bb---{'a' * count}-ab/" for count in range(7, 20)]
    labels = list(fit_names(names, 10).values())
    assert any(label.endswith("(2)") for label in labels)
    assert len(set(labels)) == len(names)
    assert max(map(len, labels)) <= 10


@pytest.mark.parametrize("longest", [16, 24, 30])
def test_what_differs_stays(longest: int) -> None:
    first, second = fit_names(QWEN, longest).values()
    assert first.endswith("Turbo")
    assert second.endswith("Turbo-2")
    assert fit_names(QWEN, 40) == dict(zip(QWEN, QWEN, strict=True))
    sizes = [f"some-org/model-{size}-instruct-that-was-tuned-for-long" for size in ("7B", "13B", "70B")]
    for size, label in zip(("7B", "13B", "70B"), fit_names(sizes, 24).values(), strict=True):
        assert size.rstrip("B") in label
    items = [f"story__{QWEN[0]}__{number:05d}" for number in (1, 2, 31)]
    for label, number in zip(fit_names(items, longest).values(), ("00001", "00002", "00031"), strict=True):
        assert label.endswith(number)


# Names as hosts and files have them.
REAL = (
    "Qwen/Qwen2.5-72B-Instruct-Turbo", "Qwen/Qwen2.5-72B-Instruct", "Qwen/Qwen2.5-72B",
    "Qwen/Qwen2.5-7B-Instruct-Turbo", "Qwen/Qwen3-235B-A22B-Instruct-2507", "deepseek-ai/DeepSeek-V3-0324",
    "deepseek-ai/DeepSeek-V3", "deepseek-chat", "deepseek-reasoner", "google/gemma-2-9b-it",
    "google/gemma-2-9b",
    "meta-llama/Meta-Llama-3.1-8B-Instruct-Turbo", "meta-llama/Llama-3.1-8B-Instruct",
    "unsloth/Llama-3.1-8B-Instruct", "meta-llama/Llama-2-7b-chat-hf", "mistralai/Mistral-7B-Instruct-v0.3",
    "accounts/fireworks/models/llama-v3p1-405b-instruct", "openrouter/meta-llama/llama-3-8b-instruct:free",
    "gpt-4o", "gpt-4o-2024-05-13", "gpt-4o-2024-08-06", "gpt-4o-mini-2024-07-18", "gpt-4-0613",
    "gpt-4-1106-preview", "gpt-3.5-turbo-0125", "gpt-4-turbo-2024-04-09", "openai:gpt-4o", "azure:gpt-4o",
    "chatgpt-4o-latest", "o1-preview-2024-09-12", "ft:gpt-4o-mini-2024-07-18:my-org:custom:9abc123",
    "claude-3-5-sonnet-20240620", "claude-3-5-sonnet-20241022", "claude-3-5-sonnet@20240620",
    "claude-3-haiku-20240307", "us.anthropic.claude-3-7-sonnet-20250219-v1:0",
    "anthropic.claude-3-5-sonnet-20240620-v1:0", "meta.llama3-1-70b-instruct-v1:0", "amazon.nova-pro-v1:0",
    "gemini-1.5-pro-002", "models/gemini-1.5-flash-latest", "gemini-2.5-flash-preview-05-20",
    "command-r-plus-08-2024", "mistral-large-2407", "llama3.2:3b", "llama3.2:latest", "mistral:7b",
    "gpt-4o@terse", "gpt-4o-2024-08-06@terse", "human:ann", "/ckpt/a/step-100", "/ckpt/b/step-100",
    "step-1200", "sim-large",
)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("Qwen/Qwen2.5-72B-Instruct-Turbo", "Qwen2.5-72B"),
        ("mistralai/Mistral-7B-Instruct-v0.3", "Mistral-7B-v0.3"),
        ("Qwen/Qwen3-235B-A22B-Instruct-2507", "Qwen3-235B-A22B"),
        ("meta-llama/Llama-2-7b-chat-hf", "Llama-2-7b"),
        ("google/gemma-2-9b-it", "gemma-2-9b"),
        ("gpt-4o-mini-2024-07-18", "gpt-4o-mini"),
        ("gpt-4o-mini-2024-07-18@terse", "gpt-4o-mini@terse"),
        ("gpt-3.5-turbo-0125", "gpt-3.5-turbo"),
        ("us.anthropic.claude-3-7-sonnet-20250219-v1:0", "claude-3-7-sonnet"),
        ("claude-3-5-sonnet@20240620", "claude-3-5-sonnet"),
        ("accounts/fireworks/models/llama-v3p1-405b-instruct", "llama-v3p1-405b"),
        ("openai:gpt-4o", "gpt-4o"),
        ("command-r-plus-08-2024", "command-r-plus"),
    ],
)
def test_a_name_alone_loses_vendor_tuning_and_date(name: str, short: str) -> None:
    assert short_names([name, "sim-large"]) == {name: short, "sim-large": "sim-large"}


@pytest.mark.parametrize(
    "name",
    [
        "deepseek-chat",
        "gpt-4-turbo",
        "step-1200",
        "mistral:7b",
        "human:ann",
        "o1-preview",
        "gpt-3.5",
        "it",
        "-it",
    ],
)
def test_what_is_the_models_own_stays(name: str) -> None:
    assert short_names([name]) == {name: name}


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (["Q/X-7B-Instruct-Turbo", "Q/X-7B-Instruct"], ["X-7B-Turbo", "X-7B"]),
        (["Q/X-7B-Instruct", "Q/X-7B"], ["X-7B-Instruct", "X-7B"]),
        (["meta-llama/L-8B-Instruct", "unsloth/L-8B-Instruct"], ["meta-llama/L-8B", "unsloth/L-8B"]),
        (["gpt-4o-2024-05-13", "gpt-4o-2024-08-06"], ["gpt-4o-2024-05-13", "gpt-4o-2024-08-06"]),
        (["M-7B-0613", "M-7B-chat-0613", "M-7B-chat"], ["M-7B-0613", "M-7B-chat-0613", "M-7B-chat"]),
        (["g4-2024-05-13@a", "g4-2024-08-06@b"], ["g4-2024-05-13@a", "g4-2024-08-06@b"]),
        (["/ck/a/e/step-1", "/ck/b/e/step-1"], ["a/e/step-1", "b/e/step-1"]),
        (["a\x1bb", "a\\x1bb", ""], ["a\\x1bb (2)", "a\\x1bb", "(no name)"]),
    ],
)  # fmt: skip
def test_what_tells_names_apart_is_kept(names: list[str], shown: list[str]) -> None:
    assert list(short_names(names).values()) == shown


def test_the_name_of_a_labelled_model_is_nobody_elses_label() -> None:
    names = ["gpt-4o", "openai/gpt-4o"]
    found = short_names(names, labels={"gpt-4o": "Our baseline"})
    assert found == {"gpt-4o": "Our baseline", "openai/gpt-4o": "openai/gpt-4o"}


def test_a_label_wins_and_its_variants_follow() -> None:
    names = ["Qwen/X-7B-Instruct", "m@terse", "other/X-7B"]
    labels = {"Qwen/X-7B-Instruct": "X-7B", "m": "Em"}
    assert list(short_names(names, labels=labels).values()) == ["X-7B", "Em@terse", "other/X-7B"]


# Pieces that short names are made of, so that whole names look alike once these are gone.
PIECES = st.sampled_from(
    ["Qwen/", "q/", "openai:", "x", "X", "7", "-7B", "-Instruct", "-chat", "-Turbo", "-2024-05-13", "-0613",
     "@a", "@20240620", "-v1:0", ":latest", "meta.", "\u200d", "\x1b", "\n", " ", "", " (2)"]
)  # fmt: skip
JOINED = st.lists(PIECES, max_size=6).map("".join)
NAMES = st.lists(JOINED | st.sampled_from(REAL) | st.text(max_size=8), unique=True, max_size=12)


@given(NAMES, st.randoms(use_true_random=False), st.one_of(st.none(), st.integers(10, 40)))
def test_short_names_are_unique_never_empty_and_whatever_the_order(
    names: list[str], chance: random.Random, longest: int | None
) -> None:
    found = _fitted(names, longest)
    assert list(found) == names
    assert len({label.replace("\u200d", "").strip() for label in found.values()}) == len(names) or longest
    assert len(set(found.values())) == len(names)
    assert all(label.strip() and label == escape_line(label) for label in found.values())
    chance.shuffle(names)
    assert _fitted(names, longest) == found


def _fitted(names: list[str], longest: int | None) -> dict[str, str]:
    """Short names, cut to so many characters where they are longer."""
    short = short_names(names)
    cut = short if longest is None else fit_names(short.values(), longest)
    return {name: label if longest is None else cut[label] for name, label in short.items()}


def test_real_names_are_apart_in_every_company() -> None:
    chance = random.Random(26)  # the same each time
    for _ in range(300):
        names = chance.sample(REAL, chance.randint(1, len(REAL)))
        found = short_names(names)
        assert len({label.casefold() for label in found.values()}) == len(names)
        for name, label in found.items():  # nobody bears another's whole name
            assert label == name or label not in names


def test_folders_have_the_shortest_end_of_their_paths() -> None:
    assert list(short_paths(["/t/a/run", "/t/b/run", "/t/c", "d/"]).values()) == ["a/run", "b/run", "c", "d"]
    assert list(short_paths(["/", "x\x1b"]).values()) == ["/", "x\\x1b"]
    assert list(short_paths(["/a/x", "/b/a/x"]).values()) == ["a/x", "b/a/x"]
    assert list(short_paths(["/a/x", "/b/a/x", "/c/b/a/x"]).values()) == ["a/x", "b/a/x", "c/b/a/x"]
