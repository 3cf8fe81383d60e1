"""``make recording``: README's recording of a terminal, of real commands as they run, as one animated SVG.

A shell in tmux runs them; what its window shows is taken ten times a second, and drawn where it changed.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import NamedTuple, TypeAlias

from rich.ansi import AnsiDecoder
from rich.console import Console
from rich.style import Style
from rich.terminal_theme import MONOKAI

ROOT = Path(__file__).resolve().parents[2]
TARGET = ROOT / "docs" / "images" / "terminal.svg"
COLUMNS, ROWS = 80, 30
CELL, LINE, MARGIN = 8.43, 18, 14  # pixels: a monospaced character of 14 px is 0.602 em wide
EACH_S = 0.1
READ_S = 5.0  # how long the end of a command stays
LIMIT_S = 60.0
COMMANDS = (
    "coeval plan --config quickstart.yaml",
    "coeval run --config quickstart.yaml --report",
    "coeval compare runs/quickstart --students sim-large,sim-medium",
)
PROMPT = "$ "
_CONSOLE = Console(width=COLUMNS)


Line: TypeAlias = tuple[tuple[str, str], ...]
"""Pieces of text, each with its look as attributes of SVG."""


class Frame(NamedTuple):
    """What the window showed from ``at`` on, in seconds."""

    at: float
    lines: tuple[Line, ...]


def main() -> int:
    if shutil.which("tmux") is None:
        print("no tmux is installed", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(ROOT / "examples" / "quickstart.yaml", folder)
        frames, seconds = _recorded(Path(folder))
    TARGET.write_text(_drawn(frames, seconds), encoding="utf-8")
    print(
        f"{TARGET.relative_to(ROOT)}: {len(frames)} frames, {seconds:.0f} s, {TARGET.stat().st_size:,} bytes"
    )
    return 0


def _recorded(folder: Path) -> tuple[list[Frame], float]:
    """The frames of all commands, and how long they are shown."""
    tmux = ["tmux", "-L", f"coeval-{folder.name}"]
    shell = [
        "env",
        f"PATH={Path(sys.executable).parent}:/usr/bin:/bin",
        f"PS1={PROMPT}",
        "bash",
        "--norc",
        "-i",
    ]
    size = ["-x", str(COLUMNS), "-y", str(ROWS)]
    subprocess.run([*tmux, "new-session", "-d", *size, "-c", str(folder), *shell], check=True)
    frames: list[Frame] = []
    now = 0.0
    try:
        for command in COMMANDS:
            subprocess.run([*tmux, "send-keys", "clear", "Enter"], check=True)
            time.sleep(1)
            subprocess.run([*tmux, "clear-history"], check=True)
            for lines, seconds in _watched(tmux, command):
                frames.append(Frame(now, lines))
                now += seconds
    finally:
        subprocess.run([*tmux, "kill-server"], check=True)
    return frames, now


def _watched(tmux: list[str], command: str) -> Iterator[tuple[tuple[Line, ...], float]]:
    """What the window shows while a command is typed, runs and has ended: each with its seconds."""
    for letter in command:
        subprocess.run([*tmux, "send-keys", "-l", letter], check=True)
        time.sleep(0.02)
        yield _shown(tmux), 0.03
    yield _shown(tmux), 0.5
    subprocess.run([*tmux, "send-keys", "Enter"], check=True)
    began = last = time.monotonic()
    before = _shown(tmux)
    while time.monotonic() < began + LIMIT_S:
        time.sleep(EACH_S)
        lines = _shown(tmux)
        if lines != before:
            yield before, time.monotonic() - last
            before, last = lines, time.monotonic()
        if next((line for line in reversed(lines) if line), None) == ((PROMPT.strip(), ""),):
            break
    yield before, READ_S


def _shown(tmux: list[str]) -> tuple[Line, ...]:
    """What stands in the window's lines. One decoder reads all, since a colour lasts beyond its line."""
    shot = subprocess.run([*tmux, "capture-pane", "-e", "-p"], check=True, capture_output=True, text=True)
    lines = []
    for text in AnsiDecoder().decode(shot.stdout):
        text.rstrip()
        lines.append(tuple((piece.text, _look(piece.style or Style())) for piece in text.render(_CONSOLE)))
    return tuple(lines[:ROWS])


def _drawn(frames: list[Frame], seconds: float) -> str:
    """An SVG in which each line appears while frames show it; without motion, the last frame stands."""
    width, height = round(COLUMNS * CELL) + 2 * MARGIN, ROWS * LINE + 2 * MARGIN
    style = [
        "text{font:14px ui-monospace,Menlo,Consolas,monospace;white-space:pre;fill:#d9d9d9}",
        f"g{{visibility:hidden;animation:{seconds:.1f}s step-end infinite}}",
    ]
    groups = []
    ends = [frame.at for frame in frames[1:]] + [seconds]
    for row in range(ROWS):
        for number, (line, spans) in enumerate(_appearances(frames, ends, row).items()):
            name = f"r{row}n{number}"
            groups.append(f'<g style="animation-name:{name}">{_text(line, row)}</g>')
            style.append(f"@keyframes {name}{{{_keyframes(spans, seconds)}}}")
    last = "".join(_text(line, row) for row, line in enumerate(frames[-1].lines) if line)
    style.append("#last{display:none}")
    style.append(
        "@media(prefers-reduced-motion:reduce){g{animation:none!important}#last{display:inline;visibility:visible}}"
    )
    said = escape("; ".join(COMMANDS))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">'
        f"<title>A terminal: {said}</title><style>{''.join(style)}</style>"
        '<rect width="100%" height="100%" rx="8" fill="#1b1b1f"/>'
        f'{"".join(groups)}<g id="last">{last}</g></svg>\n'
    )


def _appearances(frames: list[Frame], ends: list[float], row: int) -> dict[Line, list[tuple[float, float]]]:
    """Of each line that a row ever shows, from when till when it does, in seconds."""
    found: dict[Line, list[tuple[float, float]]] = {}
    for frame, end in zip(frames, ends, strict=True):
        line = frame.lines[row] if row < len(frame.lines) else ()
        if not line:
            continue
        spans = found.setdefault(line, [])
        if spans and spans[-1][1] == frame.at:
            spans[-1] = (spans[-1][0], end)
        else:
            spans.append((frame.at, end))
    return found


def _keyframes(spans: list[tuple[float, float]], seconds: float) -> str:
    steps = [] if spans[0][0] == 0 else ["0%{visibility:hidden}"]
    for begin, end in spans:
        steps.append(f"{100 * begin / seconds:.3f}%{{visibility:visible}}")
        if end < seconds:
            steps.append(f"{100 * end / seconds:.3f}%{{visibility:hidden}}")
    return "".join(steps)


def _text(line: Line, row: int) -> str:
    """A line as SVG: each piece of one look at its column, so that no font can shift it."""
    pieces, column = [], 0
    for text, look in line:
        if text.strip():
            place = f'x="{MARGIN + column * CELL:.1f}" y="{MARGIN + row * LINE + LINE - 4}"'
            pieces.append(f'<text {place} textLength="{len(text) * CELL:.1f}"{look}>{escape(text)}</text>')
        column += len(text)
    return "".join(pieces)


def _look(style: Style) -> str:
    look = ' font-weight="bold"' if style.bold else ""
    if style.dim:
        look += ' opacity="0.6"'
    if style.color is not None and not style.color.is_default:
        look += f' style="fill:{style.color.get_truecolor(MONOKAI).hex}"'
    return look


if __name__ == "__main__":
    sys.exit(main())
