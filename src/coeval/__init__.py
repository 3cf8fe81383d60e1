"""CoEval: your own benchmark, with error bars.

``load_config``, ``run``, ``arun``, ``evaluate``, ``sweep``, ``open_run``, ``compare``, ``compare_sweeps``,
``gate``, ``import_results``, ``export_results``, ``log_results``, ``submit_checkpoint`` and
``sweep_callback``, with what they take and return, are the Python interface (see ``coeval.api``); they are
imported when first used, so that importing the package costs nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as typing has it, which takes longer to load than all of this

if TYPE_CHECKING:
    from coeval.api import CoevalError as CoevalError
    from coeval.api import Config as Config
    from coeval.api import ConfigError as ConfigError
    from coeval.api import ModelUnavailable as ModelUnavailable
    from coeval.api import Records as Records
    from coeval.api import Run as Run
    from coeval.api import RunSummary as RunSummary
    from coeval.api import StoreError as StoreError
    from coeval.api import UsageError as UsageError
    from coeval.api import Watcher as Watcher
    from coeval.api import arun as arun
    from coeval.api import compare as compare
    from coeval.api import gate as gate
    from coeval.api import load_config as load_config
    from coeval.api import open_run as open_run
    from coeval.api import run as run
    from coeval.api.evaluation import EvaluationRun as EvaluationRun
    from coeval.api.evaluation import evaluate as evaluate
    from coeval.api.sweeping import SweepRun as SweepRun
    from coeval.api.sweeping import compare_sweeps as compare_sweeps
    from coeval.api.sweeping import sweep as sweep
    from coeval.exchange.exporting import export_results as export_results
    from coeval.exchange.importing import import_results as import_results
    from coeval.exchange.trackers import log_results as log_results
    from coeval.sweeps.submission import submit_checkpoint as submit_checkpoint
    from coeval.sweeps.submission import sweep_callback as sweep_callback

__version__ = "0.1.0"
__all__ = [
    "CoevalError",
    "Config",
    "ConfigError",
    "EvaluationRun",
    "ModelUnavailable",
    "Records",
    "Run",
    "RunSummary",
    "StoreError",
    "SweepRun",
    "UsageError",
    "Watcher",
    "__version__",
    "arun",
    "compare",
    "compare_sweeps",
    "evaluate",
    "export_results",
    "gate",
    "import_results",
    "load_config",
    "log_results",
    "open_run",
    "run",
    "submit_checkpoint",
    "sweep",
    "sweep_callback",
]  # fmt: skip


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from coeval import api

    if hasattr(api, name):
        return getattr(api, name)
    from coeval.api import evaluation, sweeping  # a run needs none of these
    from coeval.exchange import exporting, importing, trackers
    from coeval.sweeps import submission

    parts = (evaluation, sweeping, submission, importing, exporting, trackers)
    return next(getattr(part, name) for part in parts if hasattr(part, name))


def __dir__() -> list[str]:
    """List the public names, loaded or not."""
    return sorted({*globals(), *__all__})
