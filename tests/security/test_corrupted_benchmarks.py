"""A benchmark's folder with one damaged file: run again, it comes to the same figures or says why not."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli.eval_process import surroundings, write_prompts
from corruptions import CORRUPTIONS, readable, readable_lines
from fakes.moments import Ended, Forks, forks
from fakes.openai_chat import Answer, fake

FILES = (
    "responses.jsonl",
    "scores.jsonl",
    "summary.json",
    "eval_results_strict.jsonl",
    "eval_results_loose.jsonl",
)
PROMPTS = [f"Say {n}." for n in range(6)]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    around = surroundings(tmp_path_factory.mktemp("surroundings"))
    del around["PYTHONPATH"]  # the forking process needs the tests' own modules too
    with forks(**around) as found:
        yield found


def reply(messages: list[dict[str, Any]]) -> Answer:
    text = str(messages[-1]["content"])
    return Answer("well, yes" if text[-2] in "135" else f"said {text[-2]}")


async def test_a_damaged_file_costs_no_answer_and_no_figure(tmp_path: Path, warm: Forks) -> None:
    prompts = write_prompts(tmp_path / "prompts.jsonl", "punctuation:no_comma", PROMPTS)
    async with fake(reply=reply, extra_fields={"top_k"}) as server:

        async def evaluate(output: Path) -> Ended:
            given = ["--tasks", "ifeval", "--ifeval-input", prompts, "--output-dir", output]
            asked = ["--model", "m", "--base-url", server.url]
            return await asyncio.to_thread(warm.run, "eval-framework", *given, *asked, below=tmp_path)

        whole = tmp_path / "whole"
        first = await evaluate(whole)
        assert first.code == 0, first
        figures = json.loads((whole / "ifeval" / "summary.json").read_text())["metrics"]
        for file in FILES:
            for name, corrupt in CORRUPTIONS.items():
                folder = tmp_path / "damaged"
                shutil.copytree(whole, folder)
                corrupt(folder / "ifeval" / file, random.Random(f"{file} {name}"))
                # All other files are results, written anew each time: answers put there go with them.
                kept_in = folder / "ifeval" / "responses.jsonl"
                stays = file == "responses.jsonl" and "swapped with" not in name and kept_in.exists()
                answers = readable_lines(kept_in) if stays else {}
                before = len(server.asked)
                again = await evaluate(folder)
                assert again.code in (0, 1, 3), (file, name, again)
                assert "Traceback" not in again.said, again.said
                assert "internal error" not in again.said, again.said
                if again.code == 0:
                    found = json.loads((folder / "ifeval" / "summary.json").read_text())
                    assert found["metrics"] == figures, (file, name)
                    assert found["complete"]
                else:
                    assert file in again.said, (file, name, again)
                kept = readable(folder)
                assert not [line for line in answers if line not in kept], (file, name)
                if file != "responses.jsonl" and "swapped with" not in name:
                    assert len(server.asked) == before, (file, name)
                shutil.rmtree(folder)


CRITERION = "The number is said at all."
MADE = """\
models: [{name: t, interface: simulated, roles: [teacher, student, judge]}]
tasks:
  - {name: count, description: Say a number., output_description: A number.,
     target_attributes: {size: [small, big]}, sampling: {target: [1, 1], total: 4}, rubric: {said: CRITERION}}
experiment: {id: made, storage_folder: FOLDER}
"""


def judge(messages: list[dict[str, Any]]) -> Answer:
    text = str(messages[-1]["content"])
    if CRITERION not in text:
        return Answer(f"It is {len(text) % 7}.")
    return Answer(json.dumps({"said": ("High", "Medium", "Low")[sum(map(ord, text)) % 3]}))


@pytest.mark.parametrize("mode", [[], ["--judge-only"]], ids=["all", "judge only"])
async def test_damaged_judgments_are_judged_anew(tmp_path: Path, warm: Forks, mode: list[str]) -> None:
    text = MADE.replace("CRITERION", CRITERION).replace("FOLDER", str(tmp_path / "runs"))
    (tmp_path / "made.yaml").write_text(text)
    config = ["--config", tmp_path / "made.yaml"]
    made = await asyncio.to_thread(warm.run, "coeval", "run", *config, below=tmp_path)
    assert made.code == 0, made
    async with fake(reply=judge, extra_fields={"top_k"}) as server:

        async def evaluate(output: Path, *how: str) -> Ended:
            given = ["--tasks", f"coeval:{tmp_path / 'runs' / 'made'}", "--output-dir", output]
            asked = ["--model", "m", "--base-url", server.url, *how]
            return await asyncio.to_thread(warm.run, "eval-framework", *given, *asked, below=tmp_path)

        whole = tmp_path / "whole"
        first = await evaluate(whole)
        assert first.code == 0, first
        (file,) = [path.relative_to(whole) for path in whole.rglob("judgments*.jsonl")]
        figures = json.loads((whole / file.parent / "summary.json").read_text())["metrics"]
        for name, corrupt in CORRUPTIONS.items():
            folder = tmp_path / "damaged"
            shutil.copytree(whole, folder)
            corrupt(folder / file, random.Random(f"{file} {name}"))
            judgments = readable(folder)
            again = await evaluate(folder, *mode)
            assert again.code in (0, 1, 3), (name, again)
            assert "Traceback" not in again.said, again.said
            assert "internal error" not in again.said, again.said
            if again.code == 0:
                found = json.loads((folder / file.parent / "summary.json").read_text())
                assert (found["metrics"], found["complete"]) == (figures, True), name
            else:
                assert file.name in again.said, (name, again)
            if "swapped with" not in name:
                kept = readable(folder)
                lost = [line for line in judgments if b'"recipe"' in line and line not in kept]
                assert not lost, name
            shutil.rmtree(folder)
