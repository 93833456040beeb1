"""Requests to the API server: bytes out, bytes in, every failure as one of `errors`.

Connections are in two pools, so that a client's whole number of them is bounded and no kind of request can take those
that another needs:

| pool | connections | who uses it |
|---|---|---|
| WATCHES | one for each reflector, which lists and watches by turns, and one for the lease | reflectors, election |
| REQUESTS | `in_flight` | all else: bindings and the reads that settle them, events, conditions |
"""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from enum import Enum, auto

import aiohttp

from turb_kub.api.credentials import Credentials
from turb_kub.api.errors import ApiError, Expired, Unreachable
from turb_kub.objects.malformed import MALFORMED
from turb_kub.objects.wire import Decoder, Status

CONNECT_TIMEOUT = 10.0
REQUEST_TIMEOUT = 15.0
KEPT_ALIVE = 60.0
#: Connections for all but watches, where the caller has no wish of its own.
IN_FLIGHT = 32
#: Seconds. A server that asks for a longer pause is asked again after this one: it may have mended meanwhile.
LONGEST_RETRY_AFTER = 60.0
#: Bytes. The API server stores no object of more than some MB; what is longer has no end.
LONGEST_LINE = 64 * 2**20
USER_AGENT = "turb-kub"
JSON = "application/json"
STRATEGIC_MERGE = "application/strategic-merge-patch+json"

#: Characters kept of what a server says of a failure; whole pages of HTML come from what stands before it.
_LONGEST_MESSAGE = 1000
_statuses = Decoder(Status)
#: Told of each request: verb (or "WATCH"), resource, HTTP status (0: no answer).
Observer = Callable[[str, str, int], None]


class Pool(Enum):
    """Which connections carry a request."""

    WATCHES = auto()
    REQUESTS = auto()


class Client:
    """One identity at one server. Close it, or use it as an asynchronous context manager.

    Args:
        observer: told of each request.
        in_flight: connections for all but watches; further requests wait for one, within their time-out.
    """

    def __init__(
        self, credentials: Credentials, *, observer: Observer | None = None, in_flight: int = IN_FLIGHT
    ) -> None:
        self._credentials = credentials
        self._observer = observer or (lambda verb, resource, status: None)
        # Each reflector, and the election, is one task with one request at a time: their number bounds the pool.
        self._sessions = {Pool.WATCHES: self._session(0), Pool.REQUESTS: self._session(in_flight)}

    def _session(self, connections: int) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                ssl=self._credentials.ssl_context or True, limit=connections, keepalive_timeout=KEPT_ALIVE
            ),
            # Nothing here needs cookies, and kept ones would grow with every server that sets some.
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": USER_AGENT, "Accept": JSON},
            auto_decompress=True,
        )

    @property
    def server(self) -> str:
        """URL of the API server."""
        return self._credentials.server

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        for session in self._sessions.values():
            await session.close()

    async def request(
        self,
        verb: str,
        path: str,
        *,
        resource: str,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
        timeout: float | None = None,
        pool: Pool = Pool.REQUESTS,
    ) -> bytes:
        """Send one request and return the body of its answer.

        Args:
            resource: what is asked for, for the observer ("pods", "pods/binding").
            timeout: seconds for all, a second try with a new token included; `REQUEST_TIMEOUT` by default.
            pool: whose connection carries it.

        Raises:
            ApiError: the server refused.
            Unreachable: no answer.
        """
        until = time.monotonic() + (REQUEST_TIMEOUT if timeout is None else timeout)
        for attempt in (1, 2):
            headers = {**await self._credentials.headers(), "Content-Type": content_type}
            left = until - time.monotonic()
            if left <= 0:
                # Reading credentials took it all; of no time at all aiohttp would make "for ever".
                self._observer(verb, resource, 0)
                raise Unreachable("timed out")
            try:
                async with self._sessions[pool].request(
                    verb,
                    self._credentials.server + path,
                    params=query,
                    data=body,
                    headers=headers,
                    timeout=aiohttp.ClientTimeout(total=left, sock_connect=CONNECT_TIMEOUT),
                ) as response:
                    content = await response.read()
            except (TimeoutError, aiohttp.ClientError, OSError) as error:
                self._observer(verb, resource, 0)
                raise Unreachable(_describe(error)) from error
            self._observer(verb, resource, response.status)
            if response.status == 401 and attempt == 1:
                # The token was rotated: read it again, once.
                await self._credentials.refresh()
                continue
            if response.status >= 400:
                raise _api_error(response, content)
            return content
        raise AssertionError("not reached")

    async def lines(
        self, path: str, *, resource: str, query: Mapping[str, str], read_timeout: float
    ) -> AsyncGenerator[bytes, None]:
        """Yield the lines of a watch as they come.

        Args:
            read_timeout: seconds without a byte after which the connection counts as half-open.

        Raises:
            ApiError, Expired, Unreachable: as their names say. A stream that the server closes just ends.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT, sock_read=read_timeout)
        for attempt in (1, 2):
            headers = await self._credentials.headers()
            try:
                async with self._sessions[Pool.WATCHES].get(
                    self._credentials.server + path, params=query, headers=headers, timeout=timeout
                ) as response:
                    self._observer("WATCH", resource, response.status)
                    if response.status == 401 and attempt == 1:
                        await self._credentials.refresh()
                        continue
                    if response.status == 410:
                        raise Expired("410 Gone")
                    if response.status >= 400:
                        raise _api_error(response, await response.read())
                    async for line in _lines_of(response.content):
                        yield line
                    return
            except (TimeoutError, aiohttp.ClientError, OSError) as error:
                raise Unreachable(_describe(error)) from error


async def _lines_of(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Yield a stream's lines, empty ones left out. Raises `Unreachable` for one that does not end."""
    rest = bytearray()
    async for chunk in content.iter_any():
        rest += chunk
        if b"\n" in chunk:
            *whole, tail = bytes(rest).split(b"\n")
            rest = bytearray(tail)
            for line in whole:
                if line:
                    yield line
        elif len(rest) > LONGEST_LINE:
            raise Unreachable(f"a line of the watch is longer than {LONGEST_LINE >> 20} MiB")


def _api_error(response: aiohttp.ClientResponse, content: bytes) -> ApiError:
    try:
        status = _statuses.decode(content)
    except MALFORMED:
        status = Status(message=content[:_LONGEST_MESSAGE].decode("utf-8", "replace"))
    return ApiError(
        response.status,
        status.reason[:_LONGEST_MESSAGE],
        status.message[:_LONGEST_MESSAGE],
        _seconds(response.headers.get("Retry-After", "")),
    )


def _seconds(retry_after: str) -> float:
    """Return the pause that a Retry-After header asks for; 0 where it asks for none, or names a date."""
    if not (retry_after.isascii() and retry_after.isdecimal()):
        return 0.0
    return min(float(retry_after), LONGEST_RETRY_AFTER)


def _describe(error: Exception) -> str:
    if isinstance(error, asyncio.TimeoutError):
        return "timed out"
    if isinstance(error, aiohttp.ClientResponseError) and not error.message:
        return type(error).__name__
    return " ".join(str(error).split())[:_LONGEST_MESSAGE] or type(error).__name__
