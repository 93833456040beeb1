"""Connections of HTTP/1.1 to one server, kept alive and bounded in number.

All that the scheduler needs and no more, since two requests a pod are most of what it does: one write for a request,
one future for an answer, no copies. What an answer means, and who asks again, is the client's affair.

| what happens | then |
|---|---|
| answered, and to be kept alive | the connection is kept for the next request, `KEPT_ALIVE` seconds at the most |
| more came than the answer | the answer counts, the connection is closed: what follows belongs to no request |
| closed before the answer is whole | `Unreachable`; whether the request took effect is not known |
| not HTTP, a head without end, a compressed body that is not whole | `Unreachable` |
| cancelled or timed out | the connection is closed, since what comes on it is no answer to anything else |
"""

import asyncio
import ssl
import zlib
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from typing import Any
from urllib.parse import urlsplit

import httptools

from turb_kub.api.errors import Unreachable

CONNECT_TIMEOUT = 10.0
KEPT_ALIVE = 60.0
#: Bytes of an answer's status lines and headers, those of provisional answers before it included.
LONGEST_HEAD = 64 * 2**10
#: Bytes of a stream that may wait to be taken before the server is made to wait.
READ_AHEAD = 2**20
#: Headers that are read, out of the ten or so that an answer of the API server has.
_READ = {name.encode(): name for name in ("content-encoding", "content-length", "retry-after", "transfer-encoding")}
#: For zlib: gzip or deflate, as the data says; and deflate without the header that it should have, as some servers do.
_ANY_FORMAT = 32 + zlib.MAX_WBITS
_WITHOUT_HEADER = -zlib.MAX_WBITS


class Answer:
    """Status and headers of an answer, and its body once `complete`.

    Attributes:
        headers: by name in lower case, of those that anybody here reads; of several with one name the last.
    """

    __slots__ = ("_parts", "headers", "status")

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self._parts: list[bytes] = []

    def add(self, body: bytes) -> None:
        """Take one more part of the body."""
        self._parts.append(body)

    @property
    def content(self) -> bytes:
        parts = self._parts
        return parts[0] if len(parts) == 1 else b"".join(parts)


class Connection(asyncio.Protocol):
    """One connection, with one request at a time."""

    __slots__ = (
        "_answer",
        "_buffered",
        "_chunks",
        "_compressed",
        "_error",
        "_head",
        "_inflate",
        "_loop",
        "_parser",
        "_paused",
        "_streams",
        "_transport",
        "_waiter",
        "_whole",
        "idle_since",
        "reusable",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._error = ""
        self._answer = Answer()
        self._whole = True
        self._head = 0
        self._compressed = ""
        self._inflate: Any = None
        self._streams = False
        self._chunks: deque[bytes] = deque()
        self._buffered = 0
        self._paused = False
        self._parser = httptools.HttpResponseParser(self)
        self.reusable = False
        self.idle_since = 0.0

    async def ask(self, request: bytes) -> Answer:
        """Send a request and return the whole answer. Raises `Unreachable`."""
        try:
            self._send(request, streams=False)
            while not self._whole:
                await self._wait()
        except BaseException:
            self.close()
            raise
        return self._answer

    async def ask_for_stream(self, request: bytes) -> Answer:
        """Send a request and return the head of the answer, whose body `chunks` yields. Raises `Unreachable`."""
        try:
            self._send(request, streams=True)
            while not (self._answer.status or self._whole):
                await self._wait()
        except BaseException:
            self.close()
            raise
        return self._answer

    async def chunks(self, patience: float) -> AsyncGenerator[bytes, None]:
        """Yield the body as it comes, until it is over.

        Raises:
            Unreachable: the connection was closed before the end, or nothing came for so many seconds.
        """
        while True:
            # What came before the connection was closed is told first.
            while self._chunks:
                chunk = self._chunks.popleft()
                self._buffered -= len(chunk)
                if self._paused and self._buffered < READ_AHEAD:
                    self._pause(False)
                yield chunk
            if self._whole:
                return
            try:
                async with asyncio.timeout(patience):
                    await self._wait()
            except TimeoutError:
                raise Unreachable(f"nothing came for {patience:.0f} s") from None

    def rest(self) -> None:
        """Forget what nobody has taken of a stream, so that the next answer begins with its own bytes."""
        self._chunks.clear()
        self._buffered = 0
        if self._paused:
            self._pause(False)

    def close(self) -> None:
        """End it at once; it can't be used again."""
        self.reusable = False
        if self._transport is not None:
            self._transport.abort()

    def _send(self, request: bytes, *, streams: bool) -> None:
        if self._transport is None or self._error:
            raise Unreachable(self._error or "the connection was closed")
        self._answer = Answer()
        self._head = 0
        self._whole = self.reusable = False
        self._streams = streams
        self._transport.write(request)

    async def _wait(self) -> None:
        """Wait for news. Raises `Unreachable` where there can be none."""
        if self._error:
            raise Unreachable(self._error)
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _fail(self, error: str) -> None:
        self._error = self._error or error
        self.reusable = False
        self._wake()

    def _pause(self, paused: bool) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._paused = paused
            if paused:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    # -- what the event loop calls (asyncio.Protocol) --

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment] # a connection of streams has no other
        self.reusable = True

    def data_received(self, data: bytes) -> None:
        if self._whole:
            # Nobody has asked for anything.
            self._fail("the server sent what was not asked for")
            self.close()
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            # What the functions below raise comes as an error's context.
            self._fail(f"the answer is not to be understood: {error.__context__ or error}")
            self.close()
            return
        if not self._answer.status:
            self._head += len(data)
            if self._head > LONGEST_HEAD:
                self._fail("the answer's headers have no end")
                self.close()

    def eof_received(self) -> None:
        answer = self._answer
        if not self._whole and answer.status and not {"content-length", "transfer-encoding"} & answer.headers.keys():
            # An answer without a length ends with the connection.
            try:
                self._check_compressed()
                self._whole = True
            except ValueError as error:
                self._fail(str(error))
        self._fail("the server closed the connection")

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(f"the connection was lost: {exc}" if exc else "the server closed the connection")

    # -- what the parser calls (httptools) --

    def on_message_begin(self) -> None:
        if self._whole:
            raise ValueError("the server sent more than the answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        # Those after the body say nothing that anybody here asks for.
        if not self._answer.status and (known := name.lower()) in _READ:
            self._answer.headers[_READ[known]] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:
            # Something provisional; the answer is still to come.
            self._answer.headers.clear()
            return
        self._answer.status = status
        # Not asked for, since the API server would compress more slowly than a network in between carries it; but
        # there are gateways that do it unasked.
        encoding = self._answer.headers.get("content-encoding", "").lower()
        self._compressed = "" if encoding == "identity" else encoding
        self._inflate = None
        if self._streams:
            self._wake()

    def on_body(self, body: bytes) -> None:
        if self._compressed:
            body = self._decompressed(body)
        if not self._streams:
            self._answer.add(body)
            return
        self._chunks.append(body)
        self._buffered += len(body)
        if self._buffered >= READ_AHEAD and not self._paused:
            self._pause(True)
        self._wake()

    def on_message_complete(self) -> None:
        if not self._answer.status:
            return
        self._check_compressed()
        self._whole = True
        self.reusable = self._parser.should_keep_alive() and not self._error
        self._wake()

    def _decompressed(self, body: bytes) -> bytes:
        if self._inflate is None:
            if self._compressed not in {"gzip", "x-gzip", "deflate"}:
                raise ValueError(f"its body is compressed as {self._compressed}, which nobody asked for")
            bare = self._compressed == "deflate" and body[0] & 0x0F != zlib.DEFLATED
            self._inflate = zlib.decompressobj(_WITHOUT_HEADER if bare else _ANY_FORMAT)
        found: bytes = self._inflate.decompress(body)
        return found

    def _check_compressed(self) -> None:
        if self._inflate is not None and (not self._inflate.eof or self._inflate.unused_data):
            raise ValueError("the answer's compressed body is not whole")


def header_lines(headers: Mapping[str, str]) -> str:
    """Return headers as they go over the wire. Nothing in them is quoted here."""
    return "".join(f"{name}: {value}\r\n" for name, value in headers.items())


class Connections:
    """Connections to one server.

    Args:
        url: "http" or "https", host, and perhaps port and path; the path goes before that of every request.
        limit: how many there may be at once, 0: any number. Whoever wants one more waits.
        server_name: what the server's certificate is for, where that is not the host.
    """

    def __init__(self, url: str, ssl_context: ssl.SSLContext | None, limit: int, server_name: str = "") -> None:
        parts = urlsplit(url)
        secure = parts.scheme == "https"
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if secure else 80)
        self._ssl: ssl.SSLContext | bool | None = (ssl_context or True) if secure else None
        self._server_name = (server_name or None) if secure else None
        self._idle: list[Connection] = []
        self._slots = asyncio.Semaphore(limit) if limit else None
        self._cleaning: asyncio.TimerHandle | None = None
        self._closed = False
        self._prefix = parts.path.rstrip("/")
        self._fixed = f" HTTP/1.1\r\nHost: {parts.netloc.rpartition('@')[2]}\r\n"

    def request(self, verb: str, target: str, headers: str, body: bytes | None) -> bytes:
        """Return a request as it goes over the wire.

        Args:
            target: path and query, quoted.
            headers: as `header_lines` returns them.
        """
        head = f"{verb} {self._prefix}{target}{self._fixed}{headers}"
        if body is None:
            return f"{head}\r\n".encode("latin-1")
        return f"{head}Content-Length: {len(body)}\r\n\r\n".encode("latin-1") + body

    async def get(self) -> Connection:
        """Return a connection, which `put` must be given back. Raises `Unreachable`."""
        if self._slots is not None:
            await self._slots.acquire()
        try:
            while self._idle:
                connection = self._idle.pop()
                if connection.reusable:
                    return connection
            return await self._connect()
        except BaseException:
            if self._slots is not None:
                self._slots.release()
            raise

    def put(self, connection: Connection) -> None:
        """Give a connection back, to be used again where it can be."""
        if self._slots is not None:
            self._slots.release()
        if not connection.reusable or self._closed:
            connection.close()
            return
        connection.rest()
        loop = asyncio.get_running_loop()
        connection.idle_since = loop.time()
        self._idle.append(connection)
        if self._cleaning is None:
            self._cleaning = loop.call_later(KEPT_ALIVE, self._clean, loop)

    def close(self) -> None:
        """End those that are idle; those in use end when they are given back."""
        self._closed = True
        if self._cleaning is not None:
            self._cleaning.cancel()
        for connection in self._idle:
            connection.close()
        self._idle.clear()

    def _clean(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close what nobody has used for long. The last used is at the end."""
        self._cleaning = None
        now = loop.time()
        kept = []
        for each in self._idle:
            if each.reusable and now - each.idle_since < KEPT_ALIVE:
                kept.append(each)
            else:
                each.close()
        self._idle = kept
        if kept:
            self._cleaning = loop.call_at(kept[0].idle_since + KEPT_ALIVE, self._clean, loop)

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                _, connection = await loop.create_connection(
                    lambda: Connection(loop), self._host, self._port, ssl=self._ssl, server_hostname=self._server_name
                )
        except TimeoutError:
            raise Unreachable(f"cannot connect to {self._host}:{self._port}: timed out") from None
        except (OSError, ValueError) as error:
            # ValueError: a name that no host can have.
            raise Unreachable(f"cannot connect to {self._host}:{self._port}: {error}") from error
        return connection
