"""Requests to the API server: bytes out, bytes in, every failure as one of `errors`.

Connections are in two pools, so that a client's whole number of them is bounded and no kind of request can take those
that another needs:

| pool | connections | who uses it |
|---|---|---|
| WATCHES | one for each reflector, which lists and watches by turns, and one for the lease | reflectors, election |
| REQUESTS | `in_flight` | all else: bindings and the reads that settle them, events, conditions |
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from enum import Enum, auto
from urllib.parse import urlencode

from turb_kub.api.connections import Answer, Connections, header_lines
from turb_kub.api.credentials import Credentials
from turb_kub.api.errors import ApiError, Expired, Unreachable
from turb_kub.objects.malformed import MALFORMED
from turb_kub.objects.wire import Decoder, Status

REQUEST_TIMEOUT = 15.0
#: Connections for all but watches, where the caller has no wish of its own.
IN_FLIGHT = 32
#: Seconds. A server that asks for a longer pause is asked again after this one: it may have mended meanwhile.
LONGEST_RETRY_AFTER = 60.0
#: Bytes. The API server stores no object of more than some MB; what is longer has no end.
LONGEST_LINE = 64 * 2**20
JSON = "application/json"
_FIXED = {"User-Agent": "turb-kub", "Accept": JSON}
STRATEGIC_MERGE = "application/strategic-merge-patch+json"

#: Characters kept of what a server says of a failure; whole pages of HTML come from what stands before it.
_LONGEST_MESSAGE = 1000
#: Bytes read of a watch's refusal.
_LONGEST_REFUSAL = 2**20
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
        self._authorization = ""
        #: Lines of headers by content type, with that authorization.
        self._headers: dict[str, str] = {}
        # Each reflector, and the election, is one task with one request at a time: their number bounds the pool.
        self._pools = {
            pool: Connections(credentials.server, credentials.ssl_context, limit, credentials.server_name)
            for pool, limit in ((Pool.WATCHES, 0), (Pool.REQUESTS, in_flight))
        }

    @property
    def server(self) -> str:
        """URL of the API server."""
        return self._credentials.server

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        for pool in self._pools.values():
            pool.close()

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
        target = _target(path, query)
        try:
            # Reading credentials counts too: a plugin that hangs must not hold a request up for ever.
            async with asyncio.timeout(REQUEST_TIMEOUT if timeout is None else timeout):
                answer = await self._ask(pool, verb, target, content_type, body)
                if answer.status == 401:
                    # The token was rotated: read it again, once.
                    self._observer(verb, resource, 401)
                    await self._credentials.refresh()
                    answer = await self._ask(pool, verb, target, content_type, body)
        except TimeoutError:
            self._observer(verb, resource, 0)
            raise Unreachable("timed out") from None
        except Unreachable:
            self._observer(verb, resource, 0)
            raise
        self._observer(verb, resource, answer.status)
        if answer.status >= 300:
            raise _api_error(answer.status, answer.headers, answer.content)
        return answer.content

    async def _ask(self, pool: Pool, verb: str, target: str, content_type: str, body: bytes | None) -> Answer:
        headers = self._header_lines(await self._credentials.authorization(), content_type)
        connections = self._pools[pool]
        connection = await connections.get()
        try:
            return await connection.ask(connections.request(verb, target, headers, body))
        finally:
            connections.put(connection)

    def _header_lines(self, authorization: str, content_type: str = "") -> str:
        """Return the lines of all headers, which are the same for very many requests."""
        if authorization != self._authorization:
            self._authorization = authorization
            self._headers.clear()
        lines = self._headers.get(content_type)
        if lines is None:
            headers = dict(_FIXED)
            if authorization:
                headers["Authorization"] = authorization
            if content_type:
                headers["Content-Type"] = content_type
            lines = self._headers[content_type] = header_lines(headers)
        return lines

    async def lines(
        self, path: str, *, resource: str, query: Mapping[str, str], read_timeout: float
    ) -> AsyncGenerator[bytes, None]:
        """Yield the lines of a watch as they come.

        Args:
            read_timeout: seconds without a byte after which the connection counts as half-open.

        Raises:
            ApiError, Expired, Unreachable: as their names say. A stream that the server closes just ends.
        """
        connections = self._pools[Pool.WATCHES]
        for attempt in (1, 2):
            headers = self._header_lines(await self._credentials.authorization())
            connection = await connections.get()
            try:
                try:
                    async with asyncio.timeout(read_timeout):
                        answer = await connection.ask_for_stream(
                            connections.request("GET", _target(path, query), headers, None)
                        )
                except TimeoutError:
                    raise Unreachable("timed out") from None
                self._observer("WATCH", resource, answer.status)
                if answer.status == 401 and attempt == 1:
                    await self._credentials.refresh()
                    continue
                if answer.status == 410:
                    raise Expired("410 Gone")
                if answer.status >= 300:
                    try:
                        async with asyncio.timeout(REQUEST_TIMEOUT):
                            refusal = await _start_of(connection.chunks(REQUEST_TIMEOUT))
                    except TimeoutError:
                        raise Unreachable("timed out") from None
                    raise _api_error(answer.status, answer.headers, refusal)
                async for line in _lines_of(connection.chunks(read_timeout)):
                    yield line
                return
            finally:
                connections.put(connection)


def _target(path: str, query: Mapping[str, str] | None) -> str:
    return f"{path}?{urlencode(query)}" if query else path


async def _start_of(chunks: AsyncIterator[bytes]) -> bytes:
    """Return a body, or so much of it as a refusal can have. Raises `Unreachable`."""
    found = bytearray()
    async for chunk in chunks:
        found += chunk
        if len(found) > _LONGEST_REFUSAL:
            break
    return bytes(found)


async def _lines_of(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield a stream's lines, empty ones left out. Raises `Unreachable` for one that does not end."""
    rest = bytearray()
    async for chunk in chunks:
        rest += chunk
        if b"\n" in chunk:
            *whole, tail = bytes(rest).split(b"\n")
            rest = bytearray(tail)
            for line in whole:
                if line:
                    yield line
        elif len(rest) > LONGEST_LINE:
            raise Unreachable(f"a line of the watch is longer than {LONGEST_LINE >> 20} MiB")


def _api_error(status: int, headers: Mapping[str, str], content: bytes) -> ApiError:
    try:
        said = _statuses.decode(content)
    except MALFORMED:
        said = Status(message=content[:_LONGEST_MESSAGE].decode("utf-8", "replace"))
    return ApiError(
        status,
        said.reason[:_LONGEST_MESSAGE],
        said.message[:_LONGEST_MESSAGE],
        _seconds(headers.get("retry-after", "")),
    )


def _seconds(retry_after: str) -> float:
    """Return the pause that a Retry-After header asks for; 0 where it asks for none, or names a date."""
    if not (retry_after.isascii() and retry_after.isdecimal()):
        return 0.0
    return min(float(retry_after), LONGEST_RETRY_AFTER)
