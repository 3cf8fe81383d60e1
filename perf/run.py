"""``make perf``: what a run costs, held against a bare aiohttp loop in the same minutes.

Prints each scenario beside its ideal or its bare loop, writes ``perf/out/results.json``, and ends
with 1 when a ratio is more than 25 % worse than the stored baseline (``perf/baseline.json``, which
``--update`` rewrites). Ratios, not times, are stored: machines differ and are shared.

    python -m perf.run                          all scenarios
    python -m perf.run throughput-256 overlap   some of them
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from perf import analysis, reports, scenarios, tables, throttled
from perf.measure import ROOT, LeftOut

BASELINE = ROOT / "perf" / "baseline.json"
OUT = ROOT / "perf" / "out"
TOLERANCE = 1.25

SCENARIOS: dict[str, Callable[[Path], scenarios.Figures]] = {
    "help": scenarios.help_page,
    "mistakes": scenarios.mistakes,
    "small": scenarios.small,
    "medium": scenarios.medium,
    "overlap": scenarios.overlap,
    "throughput-64": lambda folder: scenarios.throughput(folder, 64, 500),
    "throughput-256": lambda folder: scenarios.throughput(folder, 256, 1_000),
    "throughput-1024": lambda folder: scenarios.throughput(folder, 1_024, 1_000),
    "checkpoint": scenarios.checkpoint,
    "dialects": scenarios.dialects,
    "throttle": throttled.throttle,
    "memory": scenarios.memory,
    "ingest-million": tables.ingest_million,
    "check-million": tables.check_million,
    "analyze-80-thousand": analysis.analyze_80_thousand,
    "analyze-million": analysis.analyze_million,
    "analyze-ten-million": analysis.analyze_ten_million,
    "report-small": reports.report_small,
    "report-80-thousand": reports.report_80_thousand,
    "report-million": reports.report_million,
    "excel-million": reports.excel_million,
    "resume-million": scenarios.resume_million,
    "settled-million": scenarios.settled_million,
    "status-million": scenarios.status_million,
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="SCENARIO", help=f"any of {', '.join(SCENARIOS)}")
    parser.add_argument("--update", action="store_true", help="store these ratios as the baseline")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - SCENARIOS.keys():
        parser.error(f"no scenario {', '.join(sorted(unknown))}; there are {', '.join(SCENARIOS)}")
    baseline = json.loads(BASELINE.read_text()) if BASELINE.exists() else {}
    found: dict[str, scenarios.Figures] = {}
    worse = []
    for name in arguments.names or SCENARIOS:
        try:
            with tempfile.TemporaryDirectory() as folder:
                figures = found[name] = SCENARIOS[name](Path(folder))
        except LeftOut as why:
            print(f"{name}: left out, {why}", flush=True)
            continue
        print(f"{name}: {figures.reported}", flush=True)
        before = baseline.get(name)
        if before is not None and figures.overhead > before * TOLERANCE:
            worse.append(f"{name}: overhead {figures.overhead:.2f}, was {before:.2f}")
    OUT.mkdir(exist_ok=True)
    overheads = {name: round(figures.overhead, 3) for name, figures in found.items()}
    (OUT / "results.json").write_text(json.dumps(overheads, indent=2) + "\n")
    if arguments.update:
        BASELINE.write_text(json.dumps(baseline | overheads, indent=2) + "\n")
    for line in worse:
        print(f"worse by more than 25 %: {line}", file=sys.stderr)
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
