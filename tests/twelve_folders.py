"""Twelve kinds of result folders, each made in a second or two by simulated models under real ones' names."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from aiohttp.test_utils import TestServer
from cli.eval_process import finish, start, write_prompts
from cli.written_training import drawn, write_training

import coeval
from coeval.simulation.server import make_app
from coeval.simulation.simulated_model import SimulatedModel
from coeval.simulation.traits import parse_model_option
from coeval.store.output_folder import SWEEP
from tools.docs.materials import JUDGES, LABELS, STUDENTS, TASKS, TEACHERS, Named, experiment

SUPPORT = {"customer_support_reply": TASKS["customer_support_reply"]}
BOTH = {"text_summarization": TASKS["text_summarization"], **SUPPORT}
TEACHER = TEACHERS[:1]
QWEN, LLAMA, CLAUDE, GPT, *_ = STUDENTS
SONNET = JUDGES[2]
STEPS = (100, 200, 300, 400)


def balanced(work: Path) -> list[Path]:
    """4 students × 3 judges × 2 tasks, whole."""
    return [_run(work, "balanced", BOTH, 12, students=STUDENTS[:4], judges=JUDGES[:3])]


def missing_judges(work: Path) -> list[Path]:
    """A third of the strictest judge's scores of one student are lost, and two judgments of another's."""
    folder = _run(work, "missing-judges", BOTH, 12, students=STUDENTS[:4], judges=JUDGES[:3])
    _lose(folder, SONNET, QWEN, lambda place: place % 3 == 0)
    _lose(folder, JUDGES[0], GPT, lambda place: place in (2, 5))
    return [folder]


def one_judge(work: Path) -> list[Path]:
    return [_run(work, "one-judge", BOTH, 12, students=STUDENTS[:4], judges=JUDGES[:1])]


def one_student(work: Path) -> list[Path]:
    return [_run(work, "one-student", BOTH, 12, students=STUDENTS[:1], judges=JUDGES[:2])]


def ties(work: Path) -> list[Path]:
    """Students of equal skill: their order is noise."""
    equal = [each._replace(traits={"skill": 0.7}) for each in STUDENTS[:5]]
    return [_run(work, "ties", SUPPORT, 16, students=equal, judges=JUDGES[:3])]


def failures(work: Path) -> list[Path]:
    """Calls that fail, verdicts that cannot be read, a student out of its quota."""
    failing = LLAMA._replace(traits={**LLAMA.traits, "latency_s": 0, "failure_rate": 0.2})
    students = (QWEN, failing, CLAUDE, GPT)
    judges = (JUDGES[0], JUDGES[2], JUDGES[3])
    settings: dict[str, Any] = {"quota": {CLAUDE.name: {"max_calls": 16}}, "probe_on_fail": "warn"}
    return [_run(work, "failures", BOTH, 12, students=students, judges=judges, **settings)]


def labels_alone(work: Path) -> list[Path]:
    return [_run(work, "labels-alone", LABELS, 40, students=STUDENTS[:4])]


def mixed(work: Path) -> list[Path]:
    """Checks beside judges, weights, a scale of ten levels, and a task of labels."""
    rubric = {**TASKS["customer_support_reply"]["rubric"], "short": {"check": "length", "most": 320}}
    support = {**TASKS["customer_support_reply"], "rubric": rubric, "weights": {"resolution": 3, "tone": 0.5}}
    scaled = {**TASKS["text_summarization"], "scale": "1-10"}
    tasks = {"customer_support_reply": support, "text_summarization": scaled, **LABELS}
    return [_run(work, "mixed", tasks, 12, students=STUDENTS[:4], judges=JUDGES[:2])]


def pairwise(work: Path) -> list[Path]:
    tasks = {"customer_support_reply": {**TASKS["customer_support_reply"], "judging": "pairwise"}}
    return [_run(work, "pairwise", tasks, 12, students=STUDENTS[:4], judges=JUDGES[:2])]


def samples_and_variants(work: Path) -> list[Path]:
    """Three answers to an item; two prompts of one model."""
    return [
        _run(
            work,
            "samples-and-variants",
            SUPPORT,
            12,
            students=(QWEN, GPT),
            judges=JUDGES[:3],
            changed={
                QWEN.name: {"samples": 3, "variants": {"plain": {}, "polite": {"parameters": {"skill": 0.9}}}}
            },
        )
    ]


def two_sweeps(work: Path) -> list[Path]:
    """Two training runs: one rises to its end, one has had its best."""
    places = []
    for name, means in (
        ("qwen2.5-7b-grpo", (0.42, 0.55, 0.64, 0.73)),
        ("qwen2.5-7b-dpo", (0.44, 0.66, 0.7, 0.6)),
    ):
        place = work / "sweeps" / name
        for task, samples in (("ifeval", 2), ("ifbench", 1)):
            scores = drawn(dict(zip(STEPS, means, strict=True)), 60, samples, seed=len(task))
            write_training(place, scores, task=task, model=f"{name}-served")
        (place / SWEEP).mkdir()
        places.append(place)
    return places


def benchmark(work: Path) -> list[Path]:
    """What ``eval-framework`` leaves of two models: IFEval by rules, and a run's items before a judge."""
    items = _run(work, "source", SUPPORT, 24, students=STUDENTS[:1], judges=JUDGES[:1])
    return asyncio.run(_evaluated(work, items))


async def _evaluated(work: Path, items: Path) -> list[Path]:
    prompts = [f"Write {number} lines on trees without a comma." for number in range(24)]
    prompts_file = write_prompts(work / "prompts.jsonl", "punctuation:no_comma", prompts)
    served = (f"{QWEN.model}:skill=0.8", f"{GPT.model}:skill=0.5", JUDGES[0].model)
    models = [SimulatedModel(parse_model_option(text, {})) for text in served]
    folders = [work / "outputs" / "qwen-72b", work / "outputs" / "gpt-4o-mini"]
    async with TestServer(make_app(models)) as server:
        for model, folder in zip((QWEN, GPT), folders, strict=True):
            words = ["--model", model.model, "--base-url", f"http://127.0.0.1:{server.port}/v1"]
            words += ["--tasks", f"ifeval,coeval:{items}", "--ifeval-input", str(prompts_file)]
            words += ["--judge-model", JUDGES[0].model, "--output-dir", str(folder)]
            ended = await finish(await start(work, *words))
            assert ended.code == 0, ended
    return folders


FOLDERS: dict[str, Callable[[Path], list[Path]]] = {
    each.__name__: each
    for each in (
        balanced,
        missing_judges,
        one_judge,
        one_student,
        ties,
        failures,
        labels_alone,
        mixed,
        pairwise,
        samples_and_variants,
        two_sweeps,
        benchmark,
    )
}


def _run(
    work: Path,
    name: str,
    tasks: dict[str, dict[str, Any]],
    total: int,
    *,
    students: Iterable[Named],
    judges: Iterable[Named] = (),
    changed: dict[str, dict[str, Any]] | None = None,
    **settings: Any,
) -> Path:
    """Run an experiment of models that answer at once."""
    roles = [("student", students), ("judge", judges), ("teacher", TEACHER)]
    quick = [(role, [_at_once(each) for each in models]) for role, models in roles]
    config = experiment(name, tasks, total, quick, **settings)
    for each in config["models"]:
        each |= (changed or {}).get(each["name"], {})
    config["experiment"]["storage_folder"] = str(work / "runs")
    file = work / f"{name}.json"
    file.write_text(json.dumps(config))
    return coeval.run(file).path


def _at_once(model: Named) -> Named:
    return model._replace(traits={name: value for name, value in model.traits.items() if name != "latency_s"})


def _lose(folder: Path, judge: Named, student: Named, is_lost: Callable[[int], bool]) -> None:
    """Remove those of a judge's judgments of a student whose place, by item, is lost."""
    for path in sorted((folder / "phase5_evaluations").glob("*.jsonl")):
        kept, place = [], 0
        for line in path.read_text().splitlines(keepends=True):
            record = json.loads(line)
            if (record["judge_model_id"], record["student_model_id"]) == (judge.name, student.name):
                place += 1
                if is_lost(place - 1):
                    continue
            kept.append(line)
        path.write_text("".join(kept))
