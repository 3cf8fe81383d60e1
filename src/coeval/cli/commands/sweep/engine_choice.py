"""Where the legs of a sweep run: the engine that its settings name, with as many slots as there are."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping

from coeval.cli.commands.sweep.sweep_flags import names
from coeval.core.errors import UsageError
from coeval.sweeps.engines.engine import SweepEngine
from coeval.sweeps.engines.local_engine import LocalEngine, local_slots
from coeval.sweeps.engines.ray_engine import open_ray
from coeval.sweeps.engines.slurm_engine import open_slurm
from coeval.sweeps.servers.server_command import ServerCommand
from coeval.sweeps.sweep import Sweep
from coeval.sweeps.sweep_settings import SweepSettings

_LISTED_WITHIN_S = 20.0


def engine_of(settings: SweepSettings, sweep: Sweep, environment: Mapping[str, str]) -> SweepEngine:
    """
    Raises
    ------
    UsageError
        a slot has more GPUs than there are, or the engine is not there.
    """
    tp_size = sweep.server.tp_size if sweep.server is not None else 0
    match settings.engine:
        case "ray":
            return open_ray(tp_size, settings.slots, environment)
        case "slurm":
            folder = sweep.own_folder / "slurm"
            return open_slurm(tp_size, settings.slots, environment, folder, settings.slurm or {})
        case "local" | None:
            return _local(settings, sweep, environment)


def refuse_absent_program(sweep: Sweep, settings: SweepSettings) -> None:
    """
    Raises
    ------
    UsageError
        servers are to be started on this machine by a program that is not there.
    """
    if said := absent_program(sweep, settings):
        raise UsageError(said)


def absent_program(sweep: Sweep, settings: SweepSettings) -> str:
    """What to say where servers are to be started on this machine by a program that is not there; else
    empty."""
    if sweep.server is None or settings.engine not in (None, "local"):
        return ""
    program = ServerCommand(sweep.server.template).words[0]
    if "{" in program or shutil.which(program) is not None:
        return ""
    return (
        f"{program}, which is to start the servers, is not there; install it, or name another command: "
        "--server-command"
    )


def _local(settings: SweepSettings, sweep: Sweep, environment: Mapping[str, str]) -> LocalEngine:
    if sweep.server is None:
        servers = sum(map(len, sweep.external.values()))
        return LocalEngine(local_slots((), 1, settings.slots or servers), environment)
    gpus, size = gpus_of(settings), sweep.server.tp_size
    slots = local_slots(gpus, size, settings.slots)
    if not slots:
        raise UsageError(f"--tp-size {size} is more than the GPUs there are: {', '.join(gpus)}")
    return LocalEngine(slots, environment)


def gpus_of(settings: SweepSettings) -> list[str]:
    """Those that the user names; else those that this process may see; else all of this machine."""
    match settings.gpus:
        case None:
            pass
        case str() as text:
            return names(text) or []
        case int() as number:
            return [str(number)]
        case several:
            return [str(gpu) for gpu in several]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return names(visible) or []
    return _listed()


def _listed() -> list[str]:
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    try:
        told = subprocess.run(  # noqa: S603  found in the path, without anything of the user's
            [program, "--query-gpu=index", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            check=False,
            timeout=_LISTED_WITHIN_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return told.stdout.split() if told.returncode == 0 else []
