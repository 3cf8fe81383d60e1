"""Batch jobs cancelled at their providers by whoever does not know what they are for."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from coeval.core.errors import ModelError, NotFound, UsageError
from coeval.core.model import ModelSpec
from coeval.core.text import numbered
from coeval.models.batch.batch_http import BatchHttp
from coeval.models.batch.batch_of_host import batch_maker
from coeval.models.batch.waiting.job_list import PendingJob
from coeval.models.catalog import HOSTS
from coeval.models.hosts.address import address_of
from coeval.models.keys import Keys
from coeval.models.pacing.limits import Limiter
from coeval.models.transport.endpoint import Endpoint

__all__ = ["cancel_jobs"]


async def cancel_jobs(jobs: Iterable[PendingJob], keys: Keys, tell: Callable[[str], None]) -> int:
    """Ask each job's provider to do no more of it; how many could not be cancelled. Nothing is written: what
    a job has done by then is collected by whoever submitted it. ``tell`` is told what became of each."""
    left = 0
    for job in jobs:
        what = f"batch {job.id or job.tag} of {job.name} ({numbered(job.requests, 'request')})"
        if job.state == "collected":
            continue
        if job.id is None:
            tell(f"{what} cannot be cancelled: whether it was submitted is not known")
            left += 1
            continue
        try:
            await _cancel(job, job.id, keys)
        except NotFound:
            tell(f"{what}: its provider knows it no more")
        except (ModelError, UsageError) as error:
            tell(f"{what} is left as it is: {error}. {keys.places(job.interface)}")
            left += 1
        else:
            tell(f"{what} is being cancelled")
    return left


async def _cancel(job: PendingJob, job_id: str, keys: Keys) -> None:
    """
    Raises
    ------
    ModelError
        its provider does not cancel it.
    UsageError
        it cannot be asked: there is no key.
    """
    host = HOSTS[job.interface]
    base_url = None if job.endpoint == host.url else job.endpoint
    spec = ModelSpec(name=job.name, interface=job.interface, model=job.model, base_url=base_url)
    address = address_of(spec, host, keys)
    endpoint = Endpoint(address.url, address.signer, Limiter(1), address.secrets, host.headers)
    http = BatchHttp(endpoint)
    try:
        await batch_maker(host)(http, spec, address.settings).cancel(job_id)
    finally:
        await http.aclose()
