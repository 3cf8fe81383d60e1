"""CPU seconds to score every item of IFEval and IFBench once, strict and loose, with NLTK's models.

    python perf/verifiers.py REFERENCE WHEEL

REFERENCE holds ``{ifeval,ifbench}/cases.jsonl`` and ``nltk_data/``; WHEEL is the archive that holds the
items. Each answer is cut or repeated to 2,000 characters, as in the measurement of the official
verifiers. Reading models and profiles is part of the figure; the interpreter's start is not.
"""

from __future__ import annotations

import sys
import time
import zipfile
from pathlib import Path

import msgspec

from coeval.benchmarks.tasks.following import FollowingItem, check, score_prompt
from coeval.benchmarks.text_analysis import Language

MEMBERS = {
    "ifeval": "eval_framework/tasks/ifeval/data/input_data.jsonl",
    "ifbench": "eval_framework/tasks/ifbench/data/IFBench_test.jsonl",
}
LENGTH = 2_000


class Answer(msgspec.Struct):
    key: int | str
    response: str


def main(reference: Path, wheel: Path) -> None:
    for benchmark, member in MEMBERS.items():
        lines = zipfile.ZipFile(wheel).read(member).splitlines()
        items = [msgspec.json.decode(line, type=FollowingItem) for line in lines]
        cases = (reference / benchmark / "cases.jsonl").read_bytes().splitlines()
        answers = [msgspec.json.decode(line, type=Answer) for line in cases]
        responses = {answer.key: answer.response for answer in answers if answer.response.strip()}
        work = [(item, responses.get(item.key, "No answer.\n")) for item in items]
        sized = [(item, (text + "\n") * (LENGTH // (len(text) + 1) + 1)) for item, text in work]
        started = time.process_time()
        language = Language((reference / "nltk_data",))
        for item, text in sized:
            score_prompt(item, text[:LENGTH], language)
        print(f"{benchmark}: {len(items)} items, {time.process_time() - started:.2f} s CPU")
        print(f"{benchmark}: slowest instruction of a megabyte {slowest(items):.2f} s CPU")


def slowest(items: list[FollowingItem]) -> float:
    """CPU seconds of the slowest instruction, its part in finding sentences included (promised: below 2)."""
    language = Language()
    text = 'The old crow rose, e.g. at 3.5 m/s. * <<It>> said: "Why?"\n' * 17_000
    started = time.process_time()
    language.sentences(text)
    sentences, most = time.process_time() - started, 0.0
    for item in items:
        for kind, kwargs in zip(item.instruction_id_list, item.kwargs, strict=True):
            started = time.process_time()
            check(kind, kwargs, text, language)
            most = max(most, time.process_time() - started)
    return sentences + most


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
