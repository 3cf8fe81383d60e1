"""A Ray cluster of this machine with four logical GPUs."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="module")
def ray_cluster() -> Iterator[Any]:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Ray's own
        import ray

        ray.init(
            num_cpus=2, num_gpus=4, include_dashboard=False, log_to_driver=False, configure_logging=False
        )
        yield ray
        ray.shutdown()
