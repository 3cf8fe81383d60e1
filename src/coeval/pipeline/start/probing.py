"""Trying the models of a run before it depends on them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from coeval.core.errors import ModelUnavailable
from coeval.core.model import Model
from coeval.core.options import PROBE_WARNS
from coeval.core.plain import plain
from coeval.core.text import numbered
from coeval.engine.progress import Watcher
from coeval.engine.waiting import unless_interrupted
from coeval.models.open import Models
from coeval.models.probe import probe, silent
from coeval.pipeline.config.schema import Config
from coeval.pipeline.plan.preview import Preview
from coeval.store.jsonl import write_json_atomic
from coeval.store.rundir import RunDir, now


def models_to_probe(config: Config, preview: Preview | None, models: Models) -> Mapping[str, Model]:
    """The models to be probed: all may have work while phases 1–2 are open, none where nothing is owed."""
    mode = config.experiment.probe_mode
    if mode == "disable":
        return {}
    if preview is None or preview.unsettled:
        return models
    if mode == "resume":
        return {name: model for name, model in models.items() if preview.plan_count.owed_of_model[name]}
    return models if preview.plan_count.owed.total() else {}


async def probe_models(
    config: Config,
    asked: Mapping[str, Model],
    folder: RunDir,
    watcher: Watcher,
    interrupt: asyncio.Event,
) -> None:
    """Ask each model something, and write ``probe_results.json``.

    Raises
    ------
    ModelUnavailable
        one does not answer, and ``probe_on_fail`` is ``abort``.
    Draining
        the run was interrupted meanwhile.
    """
    if not asked:
        return
    watcher.note(f"probing {numbered(len(asked), 'model')}")
    results = await unless_interrupted(
        probe(asked), interrupt, "stopped while the models were being probed; nothing was run"
    )
    write_json_atomic(folder.probe_results, {"at": now(), "models": results})
    reasons = silent(results, watcher.warn)
    if not reasons:
        return
    message = f"{len(reasons)} of {len(asked)} models do not answer:"
    if config.experiment.probe_on_fail == "abort":
        listed = "".join(f"\n  {plain(reason)}" for reason in reasons)
        raise ModelUnavailable(
            f"{message}{listed}\nNothing was run. Correct this and start again, or go on all the same with "
            f"{PROBE_WARNS}."
        )
    watcher.warn(f"{message} {'; '.join(reasons)}")
