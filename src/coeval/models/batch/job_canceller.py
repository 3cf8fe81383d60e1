"""Batch jobs cancelled, and given up, by whoever does not know what they are for."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from coeval.core.errors import ModelError, NotFound, UsageError
from coeval.core.model import ModelSpec
from coeval.core.text import numbered
from coeval.models.address import address_of
from coeval.models.batch.batch_api import batch_maker, cancel_job
from coeval.models.batch.waiting.batch_index import BatchIndex
from coeval.models.batch.waiting.job_list import PendingJob
from coeval.models.catalog import HOSTS
from coeval.models.keys import Keys
from coeval.models.metering.account_file import AccountFile
from coeval.models.pacing.limits import Limiter
from coeval.models.transport.endpoint import Endpoint
from coeval.store.rundir import RunDir


async def cancel_jobs(
    jobs: Iterable[PendingJob],
    folder: RunDir,
    keys: Keys,
    tell: Callable[[str], None],
    *,
    gives_up: bool = False,
) -> int:
    """Ask each job's provider to do no more of it; how many could not be cancelled, and stay. What a job has
    done by then is collected by whoever submitted it. One that its provider knows no more, or that was to be
    cancelled before, is given up, as all are that somebody ``gives_up``: it leaves the list of the folder,
    which nobody else writes meanwhile, and counts as perhaps spent. ``tell`` is told what became of each.

    Raises StoreError: the folder cannot be read or written.
    """
    left = 0
    for job in jobs:
        if job.state == "collected":
            continue
        what = f"batch {job.id or job.tag} of {job.name} ({numbered(job.requests, 'request')})"
        before, job.note = job.cancelled, ""
        gone = gives_up or before == "accepted"
        try:
            await _cancel(job, keys)
        except NotFound:
            gone, job.note = True, "its provider knows it no more"
        except (ModelError, UsageError) as error:
            gone, job.note = gone or bool(before), f"{error}. {keys.places(job.interface)}"
            job.cancelled = "requested"
        else:
            job.cancelled = "accepted"
            tell(f"{what} is being cancelled")
        if gone:
            _give_up(job, folder)
            why = f" ({job.note})" if job.note else ""
            tell(f"{what} is given up{why}: it may have been paid, and counts as perhaps spent")
            continue
        if job.note:
            tell(f"{what} is left as it is: {job.note} --cancel-batches, given once more, gives it up.")
            left += 1
        _index(folder).jobs.put(job)
    return left


def _index(folder: RunDir) -> BatchIndex:
    return BatchIndex(folder.batches, folder.pending_batches)


def _give_up(job: PendingJob, folder: RunDir) -> None:
    """Take it off the list; all that was held for it is perhaps spent."""
    accounts = AccountFile(folder.usage)
    accounts.load()
    row = accounts.rows.get(job.name)
    if row is not None and (account := row.jobs.pop(job.tag, None)) is not None:
        row.booked.append(job.tag)
        row.uncertain_usd += account.usd
        accounts.write()
    _index(folder).forget(job.tag)


async def _cancel(job: PendingJob, keys: Keys) -> None:
    """
    Raises ModelError: its provider does not cancel it; UsageError: it cannot be asked: there is no key, or
    nobody knows whether it was submitted.
    """
    if job.id is None:
        raise UsageError("whether it was submitted is not known")
    if job.interface not in HOSTS:
        raise UsageError(f"there is no interface {job.interface} any more")
    host = HOSTS[job.interface]
    base_url = None if job.endpoint == host.url else job.endpoint
    spec = ModelSpec(name=job.name, interface=job.interface, model=job.model, base_url=base_url)
    address = address_of(spec, host, keys)
    endpoint = Endpoint(address.url, address.signer, Limiter(1), address.secrets, host.headers)
    from coeval.models.batch.batch_http import BatchHttp

    http = BatchHttp(endpoint, explain=address.dialect.explain)
    try:
        await cancel_job(batch_maker(host)(http, spec, address.settings), job.id)
    finally:
        await http.aclose()
