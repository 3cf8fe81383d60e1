"""Every strict and loose verdict of the reference cases, with NLTK's models and without."""

from __future__ import annotations

import official_data
import pytest

from coeval.benchmarks.tasks.following import FollowingItem, score_prompt
from coeval.benchmarks.text_analysis import RESOURCES, Language

pytestmark = pytest.mark.process


@pytest.fixture(params=["ifeval", "ifbench"])
def scored(request: pytest.FixtureRequest) -> list[tuple[FollowingItem, official_data.Case]]:
    items = official_data.items(request.param)
    return [(items[case.key], case) for case in official_data.cases(request.param)]


def differences(scored: list[tuple[FollowingItem, official_data.Case]], language: Language) -> list[str]:
    """Each verdict that is not the official one."""
    found: list[str] = []
    for item, case in scored:
        assert item.instruction_id_list == case.instruction_id_list
        followed = score_prompt(item, case.response, language)
        assert not followed.raised
        for reading, ours, official in (
            ("strict", followed.strict, case.strict),
            ("loose", followed.loose, case.loose),
        ):
            pairs = zip(item.instruction_id_list, ours, official, strict=True)
            found += [
                f"{item.key} {kind} {reading}: {is_ours}"
                for kind, is_ours, is_official in pairs
                if is_ours != is_official
            ]
    return found


def test_every_verdict_is_the_official_one(scored: list[tuple[FollowingItem, official_data.Case]]) -> None:
    language = Language((official_data.nltk_folder(),))
    assert language.missing_resources == ()
    assert differences(scored, language) == []


def test_without_models_99_of_100_verdicts_are_the_official_ones(
    scored: list[tuple[FollowingItem, official_data.Case]], capsys: pytest.CaptureFixture[str]
) -> None:
    language = Language()
    assert language.missing_resources == RESOURCES
    verdicts = sum(2 * len(case.strict) for _, case in scored)
    differing = differences(scored, language)
    with capsys.disabled():
        print(f"\nwithout models: {1 - len(differing) / verdicts:.2%} of {verdicts} verdicts agree")
    assert len(differing) <= 0.01 * verdicts, differing
