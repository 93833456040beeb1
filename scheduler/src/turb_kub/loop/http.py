"""Health and metrics over HTTP, for probes and Prometheus.

| path | 200 when |
|---|---|
| `/livez`, `/healthz` | the event loop answers, and so does the election, where there is one; 503 once it is stuck |
| `/readyz` | nodes, pods and storage are known, on a replica that stands by too; 503 before |
| `/metrics` | always |

One request a connection: a probe comes every few seconds.
"""

import asyncio
import http
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

#: Seconds in which a request must be there, and bytes that its head may have.
PATIENCE = 5.0
LONGEST_HEAD = 16 * 2**10
TEXT = "text/plain; charset=utf-8"


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

    async def answer(path: str) -> tuple[int, bytes, str]:
        if path in {"/livez", "/healthz"}:
            return (503, b"the leader election is stuck", TEXT) if stuck() else (200, b"ok", TEXT)
        if path == "/readyz":
            return (200, b"ok", TEXT) if ready() else (503, b"nodes, pods and storage are not all known yet", TEXT)
        if path == "/metrics":
            return 200, await asyncio.to_thread(generate_latest, registry), CONTENT_TYPE_LATEST
        return 404, b"there is /livez, /readyz and /metrics", TEXT

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_ones.add(writer)
        try:
            # A client that is slow, gone, or none of HTTP is answered as far as it goes, and forgotten.
            with suppress(TimeoutError, OSError, EOFError, asyncio.LimitOverrunError):
                async with asyncio.timeout(PATIENCE):
                    head = await reader.readuntil(b"\r\n\r\n")
                verb, target = _request_of(head)
                if verb in {"GET", "HEAD"}:
                    status, body, kind = await answer(target.partition("?")[0])
                else:
                    status, body, kind = (405, b"GET is all that there is", TEXT) if verb else (400, b"not HTTP", TEXT)
                writer.write(_head(status, kind, len(body)) + (b"" if verb == "HEAD" else body))
                writer.close()
                async with asyncio.timeout(PATIENCE):
                    await writer.wait_closed()
        finally:
            open_ones.discard(writer)
            # Not close(): that would wait for a client that reads nothing.
            writer.transport.abort()

    open_ones: set[asyncio.StreamWriter] = set()
    try:
        server = await asyncio.start_server(handle, host, port, limit=LONGEST_HEAD)
    except (OSError, OverflowError, UnicodeError) as error:
        # The latter two: a port or a host that there can't be.
        raise PortInUse(
            f"cannot listen on {host} port {port}: {getattr(error, 'strerror', None) or error}; "
            "choose another with --http-port (TURB_KUB_HTTP_PORT)"
        ) from error
    try:
        yield int(server.sockets[0].getsockname()[1])
    finally:
        server.close()
        # Which ends those who wait for them; asyncio's streams complain of one that is cancelled.
        for each in open_ones:
            each.transport.abort()


def _request_of(head: bytes) -> tuple[str, str]:
    """Return verb and target of a request; "" for both where it is none."""
    parts = head.partition(b"\r\n")[0].decode("latin-1").split(" ")
    return (parts[0], parts[1]) if len(parts) == 3 and parts[2].startswith("HTTP/1.") else ("", "")


def _head(status: int, kind: str, length: int) -> bytes:
    lines = (
        f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase}",
        f"Content-Type: {kind}",
        f"Content-Length: {length}",
        "Connection: close",
        *(["Allow: GET, HEAD"] if status == 405 else []),
    )
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
