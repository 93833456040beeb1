"""Health and metrics over HTTP, for probes and Prometheus.

| path | 200 when |
|---|---|
| `/livez`, `/healthz` | the event loop answers, and so does the election, where there is one; 503 once it is stuck |
| `/readyz` | nodes, pods and storage are known, on a replica that stands by too; 503 before |
| `/metrics` | always |
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest


class PortInUse(Exception):
    """The address cannot be listened on. The text says which, why and what to do."""


@asynccontextmanager
async def serve(
    host: str,
    port: int,
    registry: CollectorRegistry,
    ready: Callable[[], bool],
    stuck: Callable[[], bool] = lambda: False,
) -> AsyncIterator[int]:
    """Serve while the context is open; gives the port listened on.

    Raises:
        PortInUse: the address is taken or not ours.
    """

    async def livez(_: web.Request) -> web.Response:
        return web.Response(status=503, text="the leader election is stuck") if stuck() else web.Response(text="ok")

    async def readyz(_: web.Request) -> web.Response:
        return (
            web.Response(text="ok")
            if ready()
            else web.Response(status=503, text="nodes, pods and storage are not all known yet")
        )

    async def metrics(_: web.Request) -> web.Response:
        body = await asyncio.to_thread(generate_latest, registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    application = web.Application()
    application.router.add_get("/livez", livez)
    application.router.add_get("/healthz", livez)
    application.router.add_get("/readyz", readyz)
    application.router.add_get("/metrics", metrics)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            raise PortInUse(
                f"cannot listen on {host} port {port}: {error.strerror or error}; "
                "choose another with --http-port (TURB_KUB_HTTP_PORT)"
            ) from error
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()
