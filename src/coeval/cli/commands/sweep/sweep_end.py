"""What a sweep came to: what is done, what failed and why, and the command that goes on."""

from __future__ import annotations

from rich.console import Console

from coeval.cli.exit_codes import GAPS, INTERRUPTED, UNAVAILABLE
from coeval.cli.say import say, warn, warn_at_length
from coeval.core.text import dollars, listed, numbered
from coeval.sweeps.schedule.sweep_board import SweepBoard
from coeval.sweeps.sweep import Sweep


def tell_end(board: SweepBoard, sweep: Sweep, results: Console, messages: Console) -> int:
    """Say it; the exit code: 0 all there, 2 where no server came up, 3 with gaps or failed jobs, 130
    interrupted."""
    whole = board.concluded - board.incomplete
    done = f"{whole:,} of {numbered(board.jobs, 'job')} done" if board.jobs else "nothing was owed"
    if board.incomplete:
        done += f", {board.incomplete:,} with gaps"
    say(results, f"{sweep.out}: {done}")
    if board.unjudged:
        say(results, f"{numbered(board.unjudged, 'job')} answered and not judged; --judge does that")
    given_up = {problem.what: problem.why for problem in board.problems if problem.given_up}
    alike: dict[str, list[str]] = {}
    for what, why in given_up.items():
        alike.setdefault(why, []).append(what)
    for why, names in alike.items():  # told once, of whatever number
        warn_at_length(messages, f"{listed(names, 4)}: {why}")
    if board.unanswered or board.unscored:
        warn(
            messages,
            f"missing: {numbered(board.unanswered, 'answer')}, {numbered(board.unscored, 'judgment')}; "
            "the same command again asks for them",
        )
    if board.failed:
        warn(messages, f"{numbered(board.failed, 'job')} failed; the same command again tries them anew")
    if board.cost_usd:
        say(messages, f"judging: {dollars(board.cost_usd)}")
    if board.interrupted:
        say(messages, "Interrupted; what was finished is on disk, and the same command goes on from there.")
        return INTERRUPTED
    if board.unavailable and not board.concluded:
        return UNAVAILABLE
    return GAPS if board.failed or board.left or board.unanswered or board.unscored else 0
