"""`turb-kub run`."""

import argparse
import asyncio
import logging
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvloop
from prometheus_client import disable_created_metrics

from turb_kub import __version__
from turb_kub.api.identity import read_in_child
from turb_kub.cli.connect import BAD_INPUT, connect, policy_of, probe, probe_lease, settings_of
from turb_kub.cli.errors import CommandError
from turb_kub.cli.logs import note_loop_error, set_up_logs
from turb_kub.loop.election import LeaseLost
from turb_kub.loop.http import PortInUse, serve
from turb_kub.loop.metrics import Metrics
from turb_kub.loop.scheduler import Scheduler, requests_in_flight
from turb_kub.objects.quantity import format_mebibytes
from turb_kub.settings import Settings

log = logging.getLogger(__name__)


def run(options: argparse.Namespace) -> int:
    """Schedule until SIGTERM or SIGINT. Ends with 1 where another replica may have become the active one."""
    settings = settings_of(options)
    set_up_logs(settings.log_level, settings.log_format)
    # Each counter would come with a gauge of the time it was made at, which nobody asks for.
    disable_created_metrics()  # type: ignore[no-untyped-call]
    with _pid_file(options.pid_file):
        try:
            uvloop.run(_run(options, settings))
        except LeaseLost as error:
            log.error("%s; this replica ends, and is of use again once it is started anew", error)
            return 1
    return 0


async def _run(options: argparse.Namespace, settings: Settings) -> None:
    policy = policy_of(settings)
    metrics = Metrics(profile=settings.scheduler_name)
    requests = requests_in_flight(settings)
    async with await connect(options, metrics.observe_request, in_flight=requests, reader=read_in_child) as client:
        scheduler = Scheduler(client, settings, policy, metrics)
        try:
            async with serve(
                settings.http_host,
                settings.http_port,
                metrics.registry,
                lambda: scheduler.synced,
                lambda: scheduler.elector is not None and scheduler.elector.stuck,
            ) as port:
                await probe(client, ("/api/v1/nodes", "nodes"), ("/api/v1/pods", "pods"))
                if settings.leader_elect:
                    await probe_lease(client, settings)
                limit = settings.node_mem_limit_mb
                log.info(
                    "turb-kub %s places pods of schedulerName %s on %s; memory ceiling of a node: %s; health on %s:%d",
                    __version__,
                    settings.scheduler_name,
                    client.server,
                    format_mebibytes(limit) if limit else "its allocatable memory",
                    settings.http_host,
                    port,
                )
                loop = asyncio.get_running_loop()
                loop.set_exception_handler(note_loop_error)
                for number in (signal.SIGTERM, signal.SIGINT):
                    loop.add_signal_handler(number, scheduler.stop)
                await scheduler.run()
                log.info("stopped")
        except PortInUse as error:
            raise CommandError(str(error)) from error


@contextmanager
def _pid_file(path: str | None) -> Iterator[None]:
    if path is None:
        yield
        return
    try:
        with open(path, "w", encoding="ascii") as file:
            file.write(f"{os.getpid()}\n")
    except OSError as error:
        raise CommandError(f"cannot write the pid file {path}: {error.strerror}", BAD_INPUT) from error
    try:
        yield
    finally:
        Path(path).unlink(missing_ok=True)
