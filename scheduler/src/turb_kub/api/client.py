"""Requests to the API server: bytes out, bytes in, every failure as one of `errors`."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import aiohttp
import msgspec

from turb_kub.api.credentials import Credentials
from turb_kub.api.errors import ApiError, Expired, Unreachable
from turb_kub.objects.wire import Decoder, Status

CONNECT_TIMEOUT = 10.0
REQUEST_TIMEOUT = 15.0
USER_AGENT = "turb-kub"
JSON = "application/json"
STRATEGIC_MERGE = "application/strategic-merge-patch+json"

_statuses = Decoder(Status)
#: Told of each request: verb (or "WATCH"), resource, HTTP status (0: no answer).
Observer = Callable[[str, str, int], None]


class Client:
    """One HTTP session. Close it, or use it as an asynchronous context manager."""

    def __init__(self, credentials: Credentials, *, observer: Observer | None = None) -> None:
        self._credentials = credentials
        self._observer = observer or (lambda verb, resource, status: None)
        connector = aiohttp.TCPConnector(ssl=credentials.ssl_context or True, limit=0, keepalive_timeout=60)
        self._session = aiohttp.ClientSession(
            connector=connector,
            headers={"User-Agent": USER_AGENT, "Accept": JSON},
            timeout=aiohttp.ClientTimeout(total=REQUEST_TIMEOUT, sock_connect=CONNECT_TIMEOUT),
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
        await self._session.close()

    async def request(
        self,
        verb: str,
        path: str,
        *,
        resource: str,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
        timeout: float = REQUEST_TIMEOUT,
    ) -> bytes:
        """Send one request and return the body of its answer.

        Args:
            resource: what is asked for, for the observer ("pods", "pods/binding").
            timeout: seconds for the whole exchange.

        Raises:
            ApiError: the server refused.
            Unreachable: no answer.
        """
        for attempt in (1, 2):
            headers = {**await self._credentials.headers(), "Content-Type": content_type}
            try:
                async with self._session.request(
                    verb,
                    self._credentials.server + path,
                    params=query,
                    data=body,
                    headers=headers,
                    timeout=aiohttp.ClientTimeout(total=timeout, sock_connect=CONNECT_TIMEOUT),
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
    ) -> AsyncIterator[bytes]:
        """Yield the lines of a watch as they come.

        Args:
            read_timeout: seconds without a byte after which the connection counts as half-open.

        Raises:
            ApiError, Expired, Unreachable: as their names say. A stream that the server closes just ends.
        """
        headers = await self._credentials.headers()
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT, sock_read=read_timeout)
        rest = bytearray()
        try:
            async with self._session.get(
                self._credentials.server + path, params=query, headers=headers, timeout=timeout
            ) as response:
                self._observer("WATCH", resource, response.status)
                if response.status == 401:
                    await self._credentials.refresh()
                if response.status == 410:
                    raise Expired("410 Gone")
                if response.status >= 400:
                    raise _api_error(response, await response.read())
                async for chunk in response.content.iter_any():
                    rest += chunk
                    if b"\n" not in chunk:
                        continue
                    *whole, tail = bytes(rest).split(b"\n")
                    rest = bytearray(tail)
                    for line in whole:
                        if line:
                            yield line
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise Unreachable(_describe(error)) from error


def _api_error(response: aiohttp.ClientResponse, content: bytes) -> ApiError:
    try:
        status = _statuses.decode(content)
    except msgspec.MsgspecError:
        status = Status(message=content[:200].decode("utf-8", "replace"))
    try:
        retry_after = max(0.0, float(response.headers.get("Retry-After", "0")))
    except ValueError:
        retry_after = 0.0
    return ApiError(response.status, status.reason, status.message, retry_after)


def _describe(error: Exception) -> str:
    if isinstance(error, asyncio.TimeoutError):
        return "timed out"
    return " ".join(str(error).split()) or type(error).__name__
