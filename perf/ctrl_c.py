"""Ctrl-C at random moments of real commands: each has to end with 130 and a sentence, or as if undisturbed.

    python -m perf.ctrl_c                       200 trials over ten commands
    python -m perf.ctrl_c --trials 40 --seed 2  fewer, at other moments

Trials are spread evenly over the time that a command takes undisturbed. Ends with 1 where one of them ends in
any other way, and shows what it said. What comes before Python reads our first line is counted apart.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
COEVAL = str(Path(sys.executable).with_name("coeval"))
# Seconds after which a command that was interrupted is taken to hang.
LONGEST_S = 120.0
COMMANDS = (
    "run --config quick.yaml --overwrite",
    "run --config slow.yaml --overwrite",
    "plan --config quick.yaml --overwrite",
    "results --run runs/done",
    "analyze all --run runs/done",
    "compare runs/done runs/other",
    "gate runs/done --students ann,ben --policy gate.yaml",
    "export runs/done --to csv --out out-{n}",
    "label --run runs/done --sheet sheet-{n}.csv",
    "status --run runs/done",
)


class Trial(NamedTuple):
    """A command that was interrupted after ``delay_s``, and how it ended; ``fine``: as it should."""

    words: str
    delay_s: float
    code: int
    said: str
    undisturbed: int

    @property
    def fine(self) -> bool:
        if "Traceback" in self.said or "internal error" in self.said:
            return False
        return self.code in (130, self.undisturbed) and bool(self.said.strip())

    @property
    def too_early(self) -> bool:
        """Whether it met Python before it had read a line of ours, and Python reported it by itself."""
        return self.said.rstrip().endswith("KeyboardInterrupt") and f"{ROOT}/src" not in self.said


def start(words: str, folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [COEVAL, *words.format(n=time.monotonic_ns()).split()],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def undisturbed(words: str, folder: Path) -> tuple[int, float]:
    """Return a command's exit code and the seconds that it takes."""
    began = time.monotonic()
    with start(words, folder) as process:
        said, _ = process.communicate(timeout=LONGEST_S)
    if process.returncode not in (0, 3, 4):
        raise SystemExit(f"coeval {words} ends with {process.returncode}: {said}")
    return process.returncode, time.monotonic() - began


def interrupted(words: str, folder: Path, delay_s: float, code: int) -> Trial:
    with start(words, folder) as process:
        time.sleep(delay_s)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=LONGEST_S)
    return Trial(words, delay_s, process.returncode, said, code)


def experiment(folder: Path, name: str, *, items: int, latency_s: float = 0.0) -> None:
    """Write the file of an experiment on simulated models."""
    roles = {"ann": "[teacher, student]", "ben": "[student]", "jo": "[judge]", "kim": "[judge]"}
    settings = f"interface: simulated, parameters: {{latency_s: {latency_s}}}"
    models = "".join(f"  - {{name: {each}, roles: {given}, {settings}}}\n" for each, given in roles.items())
    (folder / f"{name}.yaml").write_text(
        f"models:\n{models}tasks:\n  - name: tales\n    description: Tell of a place.\n"
        "    output_description: A paragraph.\n    target_attributes: {place: [sea, town, hill]}\n"
        "    rubric: {clear: It is clear., kind: It is kind.}\n"
        f"    sampling: {{target: [1, 1], total: {items}}}\n"
        f"experiment: {{id: {name}, storage_folder: runs}}\n"
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    chance = random.Random(given.seed)
    trials: list[Trial] = []
    folder = Path(tempfile.mkdtemp(prefix="ctrl-c-"))
    try:
        for name in ("done", "other", "quick"):
            experiment(folder, name, items=30)
            undisturbed(f"run --config {name}.yaml", folder)
        experiment(folder, "slow", items=20, latency_s=0.2)
        (folder / "gate.yaml").write_text("max_drop: 3\n")
        taken = {words: undisturbed(words, folder) for words in COMMANDS}
        for number in range(given.trials):
            words = COMMANDS[number % len(COMMANDS)]
            code, seconds = taken[words]
            trials.append(interrupted(words, folder, chance.uniform(0.0, seconds), code))
    finally:
        shutil.rmtree(folder)
    return report(trials)


def report(trials: list[Trial]) -> int:
    """Print a row for each command, and what each trial said that ended otherwise."""
    for words in dict.fromkeys(trial.words for trial in trials):
        codes = Counter(trial.code for trial in trials if trial.words == words)
        print(
            f"{words.split()[0]:10} "
            + ", ".join(f"{n} ended with {code}" for code, n in sorted(codes.items()))
        )
    early = [trial for trial in trials if trial.too_early]
    bad = [trial for trial in trials if not trial.fine and not trial.too_early]
    for trial in bad:
        print(f"\ncoeval {trial.words}, after {trial.delay_s:.3f} s: {trial.code}\n{trial.said[-3000:]}")
    print(f"{len(trials)} trials, {len(early)} before Python had read a line of ours")
    print(f"{len(bad)} ended otherwise than with 130 and a sentence, or undisturbed")
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
