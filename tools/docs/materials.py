"""``python tools/docs/materials.py DIR``: runs, benchmarks, comparisons, sweeps, for pictures and crawler.

Every model is simulated and carries the name of a real one, as names are what pages have to cope with;
no figure describes a real model. Seeds are fixed, so that the same figures are written every time, but
for dates, latency over HTTP, and which requests a quota stops.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from coeval.pipeline.config.names import is_valid_model_name

ROOT = Path(__file__).resolve().parents[2]
COEVAL = [sys.executable, "-m", "coeval"]
EVAL_FRAMEWORK = [sys.executable, "-m", "coeval.cli.eval_framework"]


class Named(NamedTuple):
    """A simulated model under a real one's name: its traits, and what a million tokens of it cost."""

    model: str
    traits: dict[str, float]
    input_usd: float
    output_usd: float

    @property
    def name(self) -> str:
        """The whole name, where an experiment may hold it."""
        return self.model if is_valid_model_name(self.model) else self.model.replace("/", "-")


# Two of Qwen's differ in one token, two of OpenAI's in their dates alone.
STUDENTS = (
    Named("Qwen/Qwen2.5-72B-Instruct-Turbo", {"skill": 0.76, "latency_s": 0.8, "verbosity": 1.6}, 0.6, 1.2),
    Named("meta-llama/Llama-3.3-70B-Instruct", {"skill": 0.74, "latency_s": 0.5}, 0.23, 0.4),
    Named("claude-3-5-haiku-20241022", {"skill": 0.74, "latency_s": 0.6}, 0.8, 4.0),
    Named("gpt-4o-mini-2024-07-18", {"skill": 0.64, "latency_s": 0.4}, 0.15, 0.6),
    Named(
        "mistralai/Mistral-Small-24B-Instruct-2501",
        {"skill": 0.61, "latency_s": 0.3, "failure_rate": 0.02},
        0.1,
        0.3,
    ),
    Named("Qwen/Qwen2.5-7B-Instruct", {"skill": 0.43, "latency_s": 0.2, "verbosity": 0.7}, 0.04, 0.1),
)
JUDGES = (
    Named("gpt-4o-2024-11-20", {"noise": 0.06, "severity": 0.02}, 2.5, 10.0),
    Named("gpt-4o-2024-08-06", {"noise": 0.08, "severity": -0.08}, 2.5, 10.0),
    Named("claude-3-5-sonnet-20241022", {"noise": 0.07, "severity": 0.12}, 3.0, 15.0),
    Named(
        "deepseek-ai/DeepSeek-V3-0324",
        {"noise": 0.15, "severity": -0.02, "malformed_rate": 0.12},
        0.27,
        1.1,
    ),
)
TEACHERS = (
    Named("gemini-2.0-flash-001", {"difficulty_spread": 0.2}, 0.1, 0.4),
    Named("anthropic/claude-3.7-sonnet", {"difficulty_spread": 0.15}, 3.0, 15.0),
    Named("microsoft/Phi-4-reasoning-plus", {"difficulty_spread": 0.25}, 0.07, 0.35),
)
EVERYBODY = (*STUDENTS, *JUDGES, *TEACHERS)

# --- Experiments, by simulated models in the process

TASKS: dict[str, dict[str, Any]] = {
    "text_summarization": {
        "description": "Summarize a paragraph for the reader described.",
        "output_description": "One to three sentences of plain prose.",
        "target_attributes": {
            "complexity": ["simple", "moderate", "complex"],
            "domain": ["politics", "science", "sport"],
        },
        "nuanced_attributes": {"tone": ["neutral", "formal"]},
        "rubric": {
            "faithfulness": "The summary says nothing that the paragraph does not.",
            "coverage": "No main point of the paragraph is missing.",
            "concision": "No word could be left out.",
        },
    },
    "customer_support_reply": {
        "description": "Reply to a customer's message on behalf of a software company.",
        "output_description": "A short, polite reply that names the next step.",
        "target_attributes": {
            "issue": ["billing", "outage", "feature request"],
            "mood": ["calm", "annoyed", "furious"],
        },
        "rubric": {
            "resolution": "The reply solves the customer's problem or names who will.",
            "tone": "The reply fits the customer's mood.",
        },
    },
    "code_explanation": {
        "description": "Explain what a piece of code does to the reader described.",
        "output_description": "A paragraph without code.",
        "target_attributes": {
            "language": ["Python", "SQL", "Rust"],
            "reader": ["beginner", "practitioner"],
        },
        "rubric": {
            "correctness": "What is said of the code is true.",
            "clarity": "The reader described can follow every sentence.",
            "completeness": "Every branch of the code is explained.",
        },
        "evaluation_mode": "per_factor",
    },
    "ticket_triage": {
        "description": "Decide which team a customer's message belongs to.",
        "output_description": "One word: billing, technical or sales.",
        "target_attributes": {"team": ["billing", "technical", "sales"], "urgency": ["today", "this week"]},
        "label_attributes": ["team"],
        "rubric": {"team": "The team named is the right one.", "brevity": "Nothing is said beyond the team."},
    },
}  # fmt: skip
LABELS = {"routing": {**TASKS["ticket_triage"], "rubric": {"team": "The team named is the right one."}}}


def experiment(
    name: str,
    tasks: dict[str, dict[str, Any]],
    total: int,
    roles: Iterable[tuple[str, Iterable[Named]]],
    **settings: Any,
) -> dict[str, Any]:
    """``total``: items for each task and teacher."""
    playing: dict[str, tuple[Named, list[str]]] = {}
    for role, models in roles:
        for each in models:
            playing.setdefault(each.name, (each, []))[1].append(role)
    return {
        "models": [
            {
                "name": each.name,
                "interface": "simulated",
                "roles": roles,
                "parameters": {"model": each.model, **each.traits},
            }
            for each, roles in playing.values()
        ],
        "tasks": [
            {"name": task, "sampling": {"target": [1, 2], "nuance": [0, 0], "total": total}, **body}
            for task, body in tasks.items()
        ],
        "experiment": {"id": name, "storage_folder": "./runs", **settings},
    }


def _panel() -> dict[str, Any]:
    """6 students × 4 judges × 3 teachers × 4 tasks. Two of its models stop at their quota: gaps beside
    failures."""
    quota = {STUDENTS[2].name: {"max_calls": 168}, JUDGES[1].name: {"max_calls": 1500}}
    roles = (("student", STUDENTS), ("judge", JUDGES), ("teacher", TEACHERS))
    return experiment("assistant-benchmark-2026-11", TASKS, 15, roles, quota=quota)


def _one_student() -> dict[str, Any]:
    roles = (("student", STUDENTS[:1]), ("judge", JUDGES[:2]), ("teacher", TEACHERS[:1]))
    return experiment("one-student", dict(list(TASKS.items())[:2]), 30, roles)


def _labels() -> dict[str, Any]:
    return experiment("labels-only", LABELS, 90, (("student", STUDENTS[:4]), ("teacher", TEACHERS[:1])))


def _pairwise() -> dict[str, Any]:
    tasks = {"customer_support_reply": {**TASKS["customer_support_reply"], "judging": "pairwise"}}
    roles = (("student", STUDENTS[:5]), ("judge", JUDGES[:2]), ("teacher", TEACHERS[:1]))
    return experiment("pairwise", tasks, 40, roles)


EXPERIMENTS: dict[str, Callable[[], dict[str, Any]]] = {
    "panel": _panel,
    "one-student": _one_student,
    "labels": _labels,
    "pairwise": _pairwise,
}


def run_experiment(work: Path, name: str) -> None:
    written = work / f"{name}.json"  # JSON is YAML
    written.write_text(json.dumps(EXPERIMENTS[name](), indent=1))
    folder = json.loads(written.read_text())["experiment"]["id"]
    call(work, *COEVAL, "run", "--config", written.name, "--report", codes=(0, 3))
    _page(work / "runs" / folder / "report.html", work / "pages" / f"{name}.html")


def run_quickstart(work: Path) -> None:
    example = str(ROOT / "examples" / "quickstart.yaml")
    call(work, *COEVAL, "run", "--config", example, "--report")
    _page(work / "runs" / "quickstart" / "report.html", work / "pages" / "quickstart.html")


# --- Benchmarks and sweeps, by simulated models behind HTTP

COMPARED = (
    *STUDENTS,
    Named("Qwen/Qwen2.5-72B-Instruct", {"skill": 0.75}, 0.6, 1.2),
    Named("gpt-4o-mini-2024-07-18:ft-support", {"skill": 0.7}, 0.3, 1.2),
)
STEPS = range(100, 801, 100)
# The first still rises at its last step, the second has had its best.
SKILLS = {
    "qwen2.5-7b-grpo": (0.42, 0.50, 0.56, 0.62, 0.66, 0.69, 0.73, 0.79),
    "qwen2.5-7b-dpo": (0.44, 0.58, 0.66, 0.70, 0.72, 0.72, 0.69, 0.68),
}
JUDGE = JUDGES[0].model


def run_benchmarks(work: Path, url: str) -> None:
    """Eight models on IFEval and on the quickstart's items: a page of one, then two and eight compared."""
    folders = [f"outputs/{each.model.rpartition('/')[2].replace(':', '-')}" for each in COMPARED]

    def evaluate(each: Named, folder: str) -> None:
        words = ("--model", each.model, "--base-url", url, "--judge-model", JUDGE, "--output-dir", folder)
        tasks = ("--tasks", "ifeval,coeval:runs/quickstart", "--ifeval-input", "prompts.jsonl")
        call(work, *EVAL_FRAMEWORK, *tasks, *words)

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(evaluate, COMPARED, folders))
    call(work, *COEVAL, "analyze", "--run", folders[0], "--format", "html", "--out", "reports")
    _page(work / "reports" / "report.html", work / "pages" / "benchmarks.html")
    for count in (2, 8):
        call(work, *COEVAL, "compare", *folders[:count], "--html", f"pages/compare-{count}.html")


def run_sweeps(work: Path, url: str) -> None:
    """Two training runs of eight checkpoints, which one server stands for."""
    for name in SKILLS:
        for step in STEPS:
            place = work / "ckpts" / name / f"step_{step}"
            place.mkdir(parents=True)
            (place / "config.json").write_text("{}")
            (place / "model.safetensors").write_text("weights")
        places = (
            "--checkpoints",
            f"ckpts/{name}",
            "--name-pattern",
            "step_{step}",
            "--out",
            f"sweeps/{name}",
        )
        tasks = (
            "--tasks",
            "ifeval,coeval:runs/quickstart",
            "--n-samples",
            "ifeval=2,coeval:runs/quickstart=1",
        )
        served = ("--external", url, "--served-name", f"{name}-{{step}}", "--slots", "2")
        judged = ("--judge-model", JUDGE, "--judge-base-url", url)
        words = ("--task-option", "ifeval-input=prompts.jsonl", *judged, "--no-plot")
        call(work, *COEVAL, "sweep", *places, *tasks, *served, *words)
    runs = [word for name in SKILLS for word in ("--runs", f"{name}=sweeps/{name}")]
    call(work, *COEVAL, "sweep", "plot", *runs, "--plot-dir", "plots")
    _page(work / "plots" / "curves.html", work / "pages" / "sweeps.html")


_INSTRUCTIONS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("punctuation:no_comma", "Use no commas.", {}),
    ("change_case:english_lowercase", "Write in English and in lowercase letters only.", {}),
    ("detectable_format:title", "Give it a title wrapped in double angular brackets.", {}),
)


def write_prompts(work: Path, count: int = 150) -> None:
    """Prompts for IFEval, so that nothing is fetched."""
    subjects = ("why trees grow tall", "how a bill becomes law", "what a compiler does")
    lines = []
    for number in range(count):
        kind, told, options = _INSTRUCTIONS[number % 3]
        prompt = f"Explain to reader {number} {subjects[number // 3 % 3]}. {told}"
        lines.append({"key": number, "prompt": prompt, "instruction_id_list": [kind], "kwargs": [options]})
    (work / "prompts.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    language = work / "nltk_data" / "tokenizers" / "punkt_tab" / "english"
    language.mkdir(parents=True)  # empty files: these instructions need no tokenizer
    for name in ("abbrev_types.txt", "collocations.tab", "ortho_context.tab", "sent_starters.txt"):
        (language / name).touch()


@contextmanager
def simulated(work: Path) -> Iterator[str]:
    """The address of a server of all models and checkpoints."""
    served = [f"{each.model}:skill={each.traits['skill']}" for each in COMPARED]
    served += [
        f"{name}-{step}:skill={skill}"
        for name, skills in SKILLS.items()
        for step, skill in zip(STEPS, skills, strict=True)
    ]
    served.append(f"{JUDGE}:noise=0.06")
    options = [word for each in served for word in ("--model", each)]
    words = [*COEVAL, "simulate", "--port", "0", *options]
    with subprocess.Popen(words, cwd=work, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found = re.search(r"http://\S+/v1", process.stdout.readline())
        try:
            if found is None:
                raise RuntimeError("the simulated models did not start")
            yield found[0]
        finally:
            process.terminate()


# --- All of it


def call(work: Path, *words: str, codes: tuple[int, ...] = (0,)) -> None:
    """Raises RuntimeError, with what the command wrote, for an exit code that is not expected."""
    environment = {**os.environ, "NLTK_DATA": str(work / "nltk_data"), "VLLM_API_KEY": "none"}
    done = subprocess.run(
        words, cwd=work, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode not in codes:
        raise RuntimeError(f"{' '.join(words)}\nexit code {done.returncode}\n{done.stdout[-4000:]}")


def _page(source: Path, target: Path) -> None:
    target.write_bytes(source.read_bytes())


def write_prices(work: Path) -> None:
    """Simulated models are free; here each costs what the model of its name did when this was written."""
    prices = {
        each.model: {"input_usd_per_mtok": each.input_usd, "output_usd_per_mtok": each.output_usd}
        for each in (*EVERYBODY, *COMPARED)
    }
    (work / "Config").mkdir()
    (work / "Config" / "provider_pricing.yaml").write_text(json.dumps({"overrides": prices}))


def build(work: Path) -> None:
    """Write all materials below ``work``, which must be empty or absent; pages into ``work/pages``."""
    work.mkdir(parents=True, exist_ok=True)
    if any(work.iterdir()):
        raise SystemExit(f"{work} is not empty; name another folder")
    (work / "pages").mkdir()
    write_prices(work)
    write_prompts(work)

    def timed(name: str, task: Callable[..., None], *words: Any) -> None:
        began = time.monotonic()
        task(work, *words)
        print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)

    timed("quickstart", run_quickstart)
    with simulated(work) as url, ThreadPoolExecutor(2) as threads:
        waiting = [threads.submit(timed, name, run_experiment, name) for name in EXPERIMENTS]
        waiting.append(threads.submit(timed, "compare", run_benchmarks, url))
        waiting.append(threads.submit(timed, "sweeps", run_sweeps, url))
        for each in waiting:
            each.result()


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the materials of docs/gallery.md.")
    parser.add_argument("folder", type=Path, help="an empty or absent folder")
    build(parser.parse_args().folder.resolve())
    return 0


if __name__ == "__main__":
    sys.exit(main())
