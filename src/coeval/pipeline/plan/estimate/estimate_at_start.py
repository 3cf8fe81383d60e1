"""The estimate that a start makes of itself (``estimate_cost: true``), once its models are known to
answer."""

from __future__ import annotations

from coeval.core.text import dollars
from coeval.engine.session import Session
from coeval.pipeline.config.schema import Config
from coeval.pipeline.plan.estimate.in_words import calls, ends, summed_up
from coeval.pipeline.plan.estimate.live_samples import add_samples
from coeval.pipeline.plan.estimate.run_estimate import Assumed, estimate_run
from coeval.pipeline.plan.estimate.seen_lengths import seen_lengths
from coeval.pipeline.plan.preview import Preview
from coeval.pipeline.run_options import run_folder
from coeval.pricing.price_book import PriceBook
from coeval.store.jsonl import write_json_atomic


async def estimate_at_start(
    config: Config, preview: Preview, session: Session, prices: PriceBook, *, phase_barriers: bool
) -> None:
    """Write ``cost_estimate.json`` and tell what stands in it. Samples are asked of models that nothing is
    batched of: a batch would not answer before the run.

    Raises Draining: somebody interrupted it.
    """
    watcher, lengths = session.context.watcher, seen_lengths(config, preview)
    if config.experiment.estimate_samples:
        live = [model.name for model in config.models if not config.batched_phases(model)]
        await add_samples(config, preview, lengths, live, session)
    estimate = estimate_run(config, preview, Assumed(prices, lengths, phase_barriers))
    write_json_atomic(run_folder(config).cost_estimate, estimate.as_json())
    for phase, line in estimate.by_phase.items():
        cost = (
            "cost unknown"
            if line.cost_usd is None
            else f"{dollars(line.cost_usd.central)} ({ends(line.cost_usd)})"
        )
        watcher.note(f"estimate of {phase}: {calls(line.calls)} calls, {cost}")
    for sentence in summed_up(estimate):
        watcher.note(f"estimate: {sentence}")
