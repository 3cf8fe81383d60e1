"""The JSON schema of an experiment file, for editors: generated from the classes, kept in the package.

``python -m coeval.pipeline.config.json_schema`` writes it; ``--check`` exits 1 if it is stale.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from coeval.pipeline.config.schema import Config

FOLLOWING = ("target_attributes", "sampling", "rubric")
"""What a task must say, unless it has ``items`` to follow them from."""
SCHEMA_FILE = Path(__file__).with_name("experiment.schema.json")


def build_schema_text() -> str:
    schema = Config.model_json_schema()
    task = schema["$defs"]["TaskConfig"]
    task["required"] = [key for key in task["required"] if key not in FOLLOWING]
    task["anyOf"] = [{"required": ["items"]}, {"required": list(FOLLOWING)}]
    body = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "CoEval experiment",
        **{key: value for key, value in schema.items() if key != "title"},
        # resume_from can supply the other two sections.
        "required": ["experiment"],
    }
    return json.dumps(body, indent=2, ensure_ascii=False) + "\n"


def is_current() -> bool:
    return SCHEMA_FILE.is_file() and SCHEMA_FILE.read_text(encoding="utf-8") == build_schema_text()


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m coeval.pipeline.config.json_schema", description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say whether the file is current")
    if not parser.parse_args(arguments).check:
        SCHEMA_FILE.write_text(build_schema_text(), encoding="utf-8")
        return 0
    if is_current():
        return 0
    sys.stderr.write(f"{SCHEMA_FILE.name} is stale; run python -m coeval.pipeline.config.json_schema\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
