"""`eval-framework` as a process of its own, with nobody's keys and data, and nothing to be fetched."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cli.invoked import Ended
from cli.warm_process import EVAL_FRAMEWORK, SOURCE, WarmProcess

NOWHERE = "http://127.0.0.1:9"
"""Where nobody listens: what is not in the cache is not fetched."""
COMMAND = (sys.executable, "-m", EVAL_FRAMEWORK)


def surroundings(folder: Path) -> dict[str, str]:
    """What to set in the environment; the data of IFEval's sentences lies in the folder."""
    language = folder / "nltk_data" / "tokenizers" / "punkt_tab" / "english"
    language.mkdir(parents=True, exist_ok=True)
    for name in ("abbrev_types.txt", "collocations.tab", "ortho_context.tab", "sent_starters.txt"):
        (language / name).touch()
    return {
        "PYTHONPATH": str(SOURCE),
        "NLTK_DATA": str(folder / "nltk_data"),
        "HF_ENDPOINT": NOWHERE,
        "COEVAL_GITHUB_MIRROR": NOWHERE,
        "PIP_INDEX_URL": NOWHERE,
    }


async def start(folder: Path, *arguments: object) -> WarmProcess:
    return WarmProcess(*arguments, module=EVAL_FRAMEWORK, cwd=folder, env=surroundings(folder))


async def finish(process: WarmProcess) -> Ended:
    written = await process.output()
    return Ended(process.wait(), *written)


def write_prompts(path: Path, kind: str, prompts: Sequence[str], **kwargs: Any) -> Path:
    """A file of prompts with one instruction each, as IFEval and IFBench have them."""
    records = [
        {"key": number, "prompt": prompt, "instruction_id_list": [kind], "kwargs": [kwargs]}
        for number, prompt in enumerate(prompts)
    ]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def write_price(folder: Path, model: str, into_usd: float, out_usd: float) -> None:
    """What a million tokens of a model cost, in the folder that commands are called from."""
    (folder / "Config").mkdir(exist_ok=True)
    price = {"input_usd_per_mtok": into_usd, "output_usd_per_mtok": out_usd}
    (folder / "Config" / "provider_pricing.yaml").write_text(json.dumps({"overrides": {model: price}}))
