"""`coeval probe`: checks that each model of an experiment answers, before a run depends on it."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from coeval.cli import streams
from coeval.cli.command_names import ExperimentFile, KeyFile
from coeval.cli.views.progress_view import show_progress_while
from coeval.cli.views.table_view import show_rows
from coeval.core.errors import ModelUnavailable
from coeval.core.options import ProbeMode
from coeval.core.text import pluralize
from coeval.engine.probing import Probing, explain_silent_models
from coeval.models.keys import load_keys
from coeval.pipeline.config.load_file import load_config
from coeval.pipeline.config.roles import model_id_or_code
from coeval.pipeline.start.partial_starts import probe_config
from coeval.reports.content import make_columns


def probe(
    config: ExperimentFile,
    mode: Annotated[
        ProbeMode | None,
        typer.Option(
            "--probe",
            help="full: all; answer: all, with a one-token request each; resume: those with work left; "
            "disable: none.",
        ),
    ] = None,
    on_fail: Annotated[
        Literal["abort", "warn"] | None, typer.Option(help="Exit with code 2, or only warn.")
    ] = None,
    keys: KeyFile = None,
) -> None:
    """Check that each model of an experiment answers.

    A model in its host's list passes at no cost. Others, models that a gateway lists, and
    with --probe answer all models, get a one-token request. The results go to
    probe_results.json in the run's folder. Without --probe and --on-fail, the file
    decides (probe_mode, probe_on_fail); the defaults are full and abort.

    \b
    Examples:
      coeval probe --config my.yaml
      coeval probe --config my.yaml --probe resume
      coeval probe --config my.yaml --on-fail warn

    \b
    Exit codes: 0 all models answer, 1 usage error, 2 a model is unavailable, 130 interrupted.
    """
    settled = load_config(config)
    experiment = settled.experiment
    probing = Probing(mode or experiment.probe_mode, on_fail or experiment.probe_on_fail)
    found_keys, messages = load_keys(keys), streams.messages()
    resolved, results = show_progress_while(
        found_keys, lambda context: probe_config(settled, probing, context)
    )
    if not results:
        streams.say(messages, "no model was probed")
        return
    rows, models = [], {model.name: model for model in resolved.models}
    for result in results:
        if result.error is not None:
            outcome = result.error.kind.replace("_", " ")
        else:
            outcome = "found" if result.listed else f"answered in {result.latency_s:.1f} s"
        model = models[result.name]
        rows.append((result.name, model.interface, outcome, model_id_or_code(model)))
    show_rows(streams.results(), "", make_columns("model", "interface", "result", "model id"), rows)
    reasons = list(explain_silent_models(results, lambda sentence: streams.warn(messages, sentence)))
    for reason in reasons:
        streams.warn(messages, reason)
    if reasons and probing.on_fail == "abort":
        raise ModelUnavailable(f"{len(reasons)} of {pluralize(len(results), 'model')} cannot be reached.")
