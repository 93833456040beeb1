"""Running the real loop inside a test, and waiting for what it does."""

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from turb_kub.api.client import Client
from turb_kub.decision.policy import LeastRequestedMemory, Policy
from turb_kub.loop.metrics import Metrics
from turb_kub.loop.scheduler import Scheduler, requests_in_flight
from turb_kub.settings import Settings

PATIENCE = 20.0


class Token:
    """Credentials for the double: a plain URL and a token that can be rotated."""

    def __init__(self, server: str) -> None:
        self.server = server
        self.ssl_context = None
        self.server_name = ""
        self.token = "old"
        self.fresh = "old"

    async def authorization(self) -> str:
        return self.token

    async def refresh(self) -> None:
        self.token = self.fresh


@asynccontextmanager
async def running(
    credentials: Any,
    policy: Policy | None = None,
    *,
    clock: Callable[[], float] = time.monotonic,
    **settings: Any,
) -> AsyncIterator[Scheduler]:
    """The scheduler with these settings, running and synced; stopped and drained at the end."""
    chosen = Settings(**settings)
    metrics = Metrics(chosen.scheduler_name)
    async with Client(credentials, observer=metrics.observe_request, in_flight=requests_in_flight(chosen)) as client:
        scheduler = Scheduler(client, chosen, policy or LeastRequestedMemory(), metrics, clock=clock)
        task = asyncio.create_task(scheduler.run())
        try:
            await until(lambda: scheduler.synced or task.done())
            yield scheduler
        finally:
            scheduler.stop()
            await asyncio.wait_for(task, PATIENCE)


async def until(condition: Callable[[], Any], patience: float = PATIENCE) -> Any:
    """Wait until the condition (a function or coroutine function) holds; return what it returned.

    Fails the test after `patience` seconds.
    """
    deadline = time.monotonic() + patience
    while True:
        found = condition()
        if inspect.isawaitable(found):
            found = await found
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"never came true: {condition}")
        await asyncio.sleep(0.005)
