"""The HTTP client against small servers that say exactly what a test tells them to."""

import asyncio
import datetime
import gzip
import ipaddress
import ssl
import zlib
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import Any

import pytest
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from turb_kub.api import client as client_module
from turb_kub.api import connections as module
from turb_kub.api.client import Client, Pool
from turb_kub.api.connections import Connection, Connections
from turb_kub.api.credentials import Credentials
from turb_kub.api.errors import ApiError, CredentialsError, Expired, Unreachable
from turb_kub.api.identity import Identity

from tests.api.running import until

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
END, SILENCE, RESET = "end", "silence", "reset"


def answer(body, *headers, status="200 OK"):
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class Server:
    """Answers each request with the next of its answers, the last one for ever.

    An answer is a list of steps: bytes to send, END to close, RESET to cut off, SILENCE to wait until the test ends.

    Attributes:
        open, most: connections that are open, and the most that there were at once.
        seen: the requests, as they came.
    """

    def __init__(self, *answers, greeting=b""):
        self.answers = list(answers) or [[OK]]
        self.greeting = greeting
        self.accepted = self.open = self.most = 0
        self.seen = []
        self.writers = []
        self.certificates = []
        self.url = ""

    async def handle(self, reader, writer):
        self.accepted += 1
        self.open += 1
        self.most = max(self.most, self.open)
        self.writers.append(writer)
        if writer.get_extra_info("ssl_object"):
            self.certificates.append(writer.get_extra_info("ssl_object").getpeercert())
        try:
            writer.write(self.greeting)
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = [line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
                body = await reader.readexactly(int(length[0].split(b":")[1])) if length else b""
                self.seen.append(head + body)
                steps = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                for step in steps:
                    if step == SILENCE:
                        await reader.read()
                        return
                    if step == RESET:
                        writer.transport.abort()
                        return
                    if step == END:
                        return
                    writer.write(step)
                    await writer.drain()
        except (OSError, EOFError):
            pass
        finally:
            self.open -= 1
            writer.close()

    def has_seen(self, number):
        return len(self.seen) == number

    def hang_up(self):
        for writer in self.writers:
            writer.close()


@asynccontextmanager
async def serving(*answers, host="127.0.0.1", tls=None, greeting=b"", path=""):
    server = Server(*answers, greeting=greeting)
    listening = await asyncio.start_server(server.handle, host, 0, ssl=tls, limit=2**20)
    port = listening.sockets[0].getsockname()[1]
    name = f"[{host}]" if ":" in host else host
    server.url = f"{'https' if tls else 'http'}://{name}:{port}{path}"
    try:
        yield server
    finally:
        listening.close()
        for writer in server.writers:
            writer.transport.abort()
        await until(lambda: not server.open)


def credentials(server, again=None, **identity):
    async def none():
        raise CredentialsError("there is nothing to read")

    return Credentials(Identity(server=server, **identity), again or none)


def client_of(server, **options):
    return Client(credentials(server.url, token="Bearer t"), **options)


def closed(connection):
    return not connection.reusable


async def get(client, **options):
    return await client.request("GET", "/x", resource="x", **options)


async def lines_of(client):
    async with aclosing(client.lines("/x", resource="x", query={"watch": "1"}, read_timeout=10.0)) as lines:
        return [line async for line in lines]


async def no_slot_is_lost(client, server, limit):
    """All that there may be are there: so many requests are answered at once, and wait for each other."""
    gate = asyncio.Event()
    server.answers = [[OK]]
    original, waiting = Connection.ask, 0

    async def ask(self, request):
        nonlocal waiting
        waiting += 1
        if waiting == limit:
            gate.set()
        await gate.wait()
        return await original(self, request)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Connection, "ask", ask)
        assert await asyncio.gather(*(get(client, timeout=10.0) for _ in range(limit))) == [b"ok"] * limit


# -- connections are kept, and bounded --


async def test_one_connection_carries_many_requests():
    async with serving() as server, client_of(server) as client:
        for _ in range(20):
            assert await get(client) == b"ok"
        assert server.accepted == 1


async def test_no_more_connections_than_the_limit_and_the_rest_wait():
    async with serving() as server, client_of(server, in_flight=3) as client:
        assert await asyncio.gather(*(get(client) for _ in range(30))) == [b"ok"] * 30
        assert server.most == 3


async def test_who_waits_for_a_connection_in_vain_times_out():
    told = []
    async with (
        serving([SILENCE]) as server,
        client_of(server, in_flight=2, observer=lambda *what: told.append(what)) as client,
    ):
        stuck = [asyncio.create_task(get(client)) for _ in range(2)]
        await until(lambda: len(server.seen) == 2)
        with pytest.raises(Unreachable, match="timed out"):
            await get(client, timeout=0.01)
        assert told == [("GET", "x", 0)]
        assert len(server.seen) == 2
        for task in stuck:
            task.cancel()
        await asyncio.wait(stuck)
        await no_slot_is_lost(client, server, 2)


async def test_watches_take_no_connection_from_requests():
    async with serving([CHUNKED, SILENCE]) as server, client_of(server, in_flight=1) as client:
        watches = [asyncio.create_task(lines_of(client)) for _ in range(3)]
        await until(lambda: len(server.seen) == 3)
        server.answers = [[OK]]
        assert await get(client) == b"ok"
        for watch in watches:
            watch.cancel()
        await asyncio.wait(watches)
        await until(lambda: server.open == 1)


async def test_a_connection_that_the_server_closed_while_idle_is_replaced():
    async with serving() as server, client_of(server, in_flight=1) as client:
        for number in range(3):
            assert await get(client) == b"ok"
            (idle,) = client._pools[Pool.REQUESTS]._idle
            server.hang_up()
            await until(partial(closed, idle))
            assert server.accepted == number + 1
        assert await get(client) == b"ok"


async def test_an_idle_connection_is_closed_after_its_time_and_no_later(monkeypatch):
    now, timers = 1000.0, []

    class Loop:
        def time(self):
            return now

        def call_later(self, seconds, function, *arguments):
            return self.call_at(now + seconds, function, *arguments)

        def call_at(self, when, function, *arguments):
            timers.append((when, function, arguments))
            return asyncio.get_event_loop().call_later(3600, print)

    def advance(seconds):
        nonlocal now
        now += seconds
        for timer in [timer for timer in timers if timer[0] <= now]:
            timers.remove(timer)
            timer[1](*timer[2])

    async with serving() as server:
        pool = Connections(server.url, None, 2)
        one, two = await pool.get(), await pool.get()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(asyncio, "get_running_loop", Loop)
            pool.put(one)
            now += module.KEPT_ALIVE / 2
            pool.put(two)
            advance(module.KEPT_ALIVE / 2 - 1)
            assert (closed(one), closed(two)) == (False, False)
            advance(1)
            assert (closed(one), closed(two)) == (True, False)
            advance(module.KEPT_ALIVE / 2 - 1)
            assert not closed(two)
            advance(1)
            assert closed(two)
            assert not timers
        await until(lambda: server.accepted == 2 and not server.open)
        pool.close()


async def test_a_closed_client_leaves_no_connection():
    async with serving() as server:
        async with client_of(server) as client:
            await asyncio.gather(get(client), get(client))
            assert server.open == 2
        await until(lambda: not server.open)


async def test_a_connection_in_use_at_the_close_ends_with_its_request():
    async with serving([SILENCE]) as server:
        client = client_of(server)
        task = asyncio.create_task(get(client))
        await until(lambda: server.seen)
        await client.close()
        server.writers[0].write(OK)
        assert await task == b"ok"
        await until(lambda: not server.open)


# -- what a whole answer is --

WHOLE = {
    "length": (OK, b"ok"),
    "empty": (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b""),
    "204": (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
    "chunked": (CHUNKED + b"2\r\nok\r\n1;x=y\r\n!\r\n0\r\n\r\n", b"ok!"),
    "trailers": (CHUNKED + b"2\r\nok\r\n0\r\nRetry-After: 9\r\nX: y\r\n\r\n", b"ok"),
    "provisional": (b"HTTP/1.1 100 Continue\r\nRetry-After: 8\r\n\r\nHTTP/1.1 103 Hints\r\n\r\n" + OK, b"ok"),
    "gzip": (answer(gzip.compress(b"ok" * 9), "Content-Encoding: gzip"), b"ok" * 9),
    "GZIP": (answer(gzip.compress(b"ok"), "Content-Encoding: GZIP"), b"ok"),
    "deflate": (answer(zlib.compress(b"ok"), "Content-Encoding: deflate"), b"ok"),
    "bare deflate": (answer(zlib.compress(b"ok", wbits=-15), "Content-Encoding: deflate"), b"ok"),
    "nothing in gzip": (answer(b"", "Content-Encoding: gzip"), b""),
    "identity": (answer(b"ok", "Content-Encoding: Identity"), b"ok"),
    "two of a header": (answer(b"ok", "Retry-After: 1", "retry-after: 2"), b"ok"),
}


@pytest.mark.parametrize("name", WHOLE)
async def test_answers_of_all_lengths_leave_the_connection_for_the_next(name):
    raw, body = WHOLE[name]
    async with serving([raw]) as server, client_of(server, in_flight=1) as client:
        assert [await get(client) for _ in range(3)] == [body] * 3
        assert server.accepted == 1


@pytest.mark.parametrize("raw", [b"HTTP/1.1 200 OK\r\n\r\nok", b"HTTP/1.0 200 OK\r\n\r\nok"])
async def test_an_answer_without_a_length_ends_with_the_connection(raw):
    async with serving([raw, END]) as server, client_of(server, in_flight=1) as client:
        assert [await get(client) for _ in range(2)] == [b"ok"] * 2
        assert server.accepted == 2


@pytest.mark.parametrize(
    "raw", [answer(b"ok", "Connection: close"), b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok"], ids=["1.1", "1.0"]
)
async def test_a_connection_that_the_server_will_close_is_not_used_again(raw):
    async with serving([raw]) as server, client_of(server, in_flight=1) as client:
        assert [await get(client) for _ in range(2)] == [b"ok"] * 2
        assert server.accepted == 2
        await until(lambda: not server.open)


class Wire(asyncio.Transport):
    """A transport that keeps what is written."""

    def __init__(self):
        self.closed = False
        self.reads = True

    def write(self, data):
        pass

    def abort(self):
        self.closed = True

    def is_reading(self):
        return self.reads

    def is_closing(self):
        return self.closed

    def pause_reading(self):
        self.reads = False

    def resume_reading(self):
        self.reads = True


async def received(parts, streams=False):
    """Status, headers and body of an answer that comes in these parts, and whether the connection may be used again."""
    connection = Connection(asyncio.get_running_loop())
    connection.connection_made(Wire())
    asked = asyncio.ensure_future((connection.ask_for_stream if streams else connection.ask)(b""))
    await asyncio.sleep(0)
    for part in parts:
        connection.data_received(part)
    found = await asked
    body = b"".join([chunk async for chunk in connection.chunks(9.0)]) if streams else found.content
    return found.status, found.headers, body, connection.reusable


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("streams", [False, True], ids=["whole", "stream"])
async def test_where_the_bytes_of_an_answer_are_split_does_not_matter(name, streams):
    raw, body = WHOLE[name]
    in_one = await received([raw], streams)
    assert in_one[2:] == (body, True)
    # Neither what a provisional answer asks for nor what comes after the body.
    assert in_one[1].get("retry-after") == ("2" if name == "two of a header" else None)
    for at in range(1, len(raw)):
        assert await received([raw[:at], raw[at:]], streams) == in_one
    for size in range(1, 12):
        assert await received([raw[at : at + size] for at in range(0, len(raw), size)], streams) == in_one


# -- what is none --

BROKEN: dict[str, list[Any]] = {
    "nothing": [END],
    "half a status line": [b"HTTP/1.1 20", END],
    "half a head": [b"HTTP/1.1 200 OK\r\nContent-Le", END],
    "half a body": [b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok", END],
    "half a body, reset": [b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok", RESET],
    "half a chunk": [CHUNKED + b"9\r\nok", END],
    "no last chunk": [CHUNKED + b"2\r\nok\r\n", END],
    "half the trailers": [CHUNKED + b"2\r\nok\r\n0\r\nX: y\r\n", END],
    "provisional only": [b"HTTP/1.1 100 Continue\r\n\r\n", END],
    "another protocol": [b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nok", SILENCE],
    "garbage": [b"\x00\x01\x02 garbage", SILENCE],
    "garbage in the head": [b"HTTP/1.1 200 OK\r\n: : :\r\n\r\n", SILENCE],
    "garbage for a chunk": [CHUNKED + b"zz\r\n", SILENCE],
    "two lengths": [b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok", SILENCE],
    "many headers": [b"HTTP/1.1 200 OK\r\n" + b"".join(b"X-%d: y\r\n" % n for n in range(9000)), SILENCE],
    "one long header": [b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000, SILENCE],
    "a long status line": [b"HTTP/1.1 200 " + b"O" * 100_000, SILENCE],
    "many provisional ones": [b"HTTP/1.1 100 Continue\r\n\r\n" * 4000, SILENCE],
    "not gzip": [answer(b"ok", "Content-Encoding: gzip"), SILENCE],
    "half of gzip": [answer(gzip.compress(b"ok" * 99)[:-6], "Content-Encoding: gzip"), SILENCE],
    "half of gzip, no length": [
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + gzip.compress(b"ok" * 99)[:-6],
        END,
    ],
    "unknown compression": [answer(b"ok", "Content-Encoding: br"), SILENCE],
}


@pytest.mark.parametrize("name", BROKEN)
async def test_a_broken_answer_is_told_in_one_line_and_costs_one_connection(name):
    async with serving(BROKEN[name]) as server, client_of(server, in_flight=2) as client:
        for _ in range(3):
            with pytest.raises(Unreachable) as told:
                await get(client, timeout=30.0)
            assert str(told.value)
            assert "\n" not in str(told.value)
            assert "timed out" not in str(told.value)
            assert "callback" not in str(told.value)
            # Else the loop ended it, over an error of ours.
            assert RESET in BROKEN[name] or "was lost" not in str(told.value)
        assert server.accepted == 3
        await until(lambda: not server.open)
        await no_slot_is_lost(client, server, 2)


@pytest.mark.parametrize("name", BROKEN)
async def test_a_broken_answer_ends_a_stream(name):
    async with serving(BROKEN[name]) as server, client_of(server) as client:
        with pytest.raises(Unreachable):
            await lines_of(client)
        await until(lambda: not server.open)


SECOND = [
    b"HTTP/1.1 500 Mine\r\nContent-Length: 1\r\n\r\nx",
    b"HTTP/1.1 500 Mine\r\n",
    b"HT",
    b"garbage",
]


@pytest.mark.parametrize("more", SECOND)
@pytest.mark.parametrize("together", [True, False], ids=["at once", "later"])
async def test_what_follows_an_answer_is_no_answer_to_anything(more, together):
    async with (
        serving([OK + more, SILENCE] if together else [OK, SILENCE]) as server,
        client_of(server, in_flight=1) as client,
    ):
        assert await get(client) == b"ok"
        if not together:
            (idle,) = client._pools[Pool.REQUESTS]._idle
            server.writers[0].write(more)
            await until(lambda: not idle.reusable)
        await until(lambda: not server.open)
        server.answers = [[OK]]
        assert await get(client) == b"ok"
        assert server.accepted == 2


async def test_a_server_that_speaks_first_is_not_taken_for_an_answer():
    async with serving(greeting=OK.replace(b"ok", b"no")) as server, client_of(server) as client:
        connections = client._pools[Pool.REQUESTS]
        connection = await connections.get()
        await until(lambda: not connection.reusable)
        with pytest.raises(Unreachable, match="not asked for"):
            await connection.ask(connections.request("GET", "/x", "", None))
        connections.put(connection)


# -- cancelled, timed out --


@pytest.mark.parametrize("steps", [[SILENCE], [b"HTTP/1.1 200", SILENCE], [OK[:-1], SILENCE]])
@pytest.mark.parametrize("how", ["cancelled", "timed out"])
async def test_a_request_that_is_given_up_closes_its_connection(steps, how):
    async with serving(steps) as server, client_of(server, in_flight=2) as client:
        for number in range(3):
            if how == "cancelled":
                task = asyncio.create_task(get(client))
                await until(partial(server.has_seen, number + 1))
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            else:
                with pytest.raises(Unreachable, match="timed out"):
                    await get(client, timeout=0.02)
        await until(lambda: not server.open)
        await no_slot_is_lost(client, server, 2)


async def test_a_connection_that_cannot_be_made_gives_its_slot_back(monkeypatch):
    async with serving() as server, client_of(server, in_flight=2) as client:
        connections = client._pools[Pool.REQUESTS]
        port, connections._port = connections._port, 1
        for _ in range(3):
            with pytest.raises(Unreachable, match=r"cannot connect to 127\.0\.0\.1:1: "):
                await get(client)
        connections._port = port
        await no_slot_is_lost(client, server, 2)


async def test_a_connection_that_nobody_answers_times_out_and_gives_its_slot_back(monkeypatch, certificates):
    async with serving([SILENCE]) as server:
        async with Client(credentials(server.url.replace("http:", "https:")), in_flight=1) as client:
            monkeypatch.setattr(module, "CONNECT_TIMEOUT", 0.01)
            for _ in range(3):
                with pytest.raises(Unreachable, match="timed out"):
                    await get(client)
            await until(lambda: not server.open)
        connections = client._pools[Pool.REQUESTS]
        connecting = asyncio.create_task(connections.get())
        await asyncio.sleep(0)
        connecting.cancel()
        await asyncio.wait([connecting])
        assert connections._slots is not None
        assert not connections._slots.locked()


async def test_a_refresh_that_hangs_does_not_hold_a_request_up():
    async def hangs():
        await asyncio.Event().wait()

    async with serving([answer(b"", status="401 Unauthorized")]) as server:
        client = Client(credentials(server.url, again=hangs, token="Bearer t"), in_flight=1)
        async with client:
            with pytest.raises(Unreachable, match="timed out"):
                await asyncio.wait_for(get(client, timeout=0.05), 20.0)
            await no_slot_is_lost(client, server, 1)


# -- streams --


async def test_a_slow_reader_makes_the_server_wait_and_gets_all(monkeypatch):
    monkeypatch.setattr(module, "READ_AHEAD", 2**16)
    line, number = b"x" * 1023 + b"\n", 20_000
    async with serving([b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (len(line) * number)]) as server:
        connections = Connections(server.url, None, 0)
        connection = await connections.get()
        await connection.ask_for_stream(connections.request("GET", "/x", "", None))
        sent = 0

        async def send():
            nonlocal sent
            for _ in range(number):
                server.writers[0].write(line)
                await server.writers[0].drain()
                sent += 1

        sending = asyncio.create_task(send())
        await until(lambda: connection._paused)
        most = connection._buffered
        taken = 0
        async for chunk in connection.chunks(30.0):
            taken += len(chunk)
            most = max(most, connection._buffered)
            await asyncio.sleep(0)
        await sending
        assert taken == len(line) * number
        # What one read brings may come on top.
        assert most < 2**16 + 2**19
        assert connection.reusable
        connections.put(connection)
        connections.close()


def test_reading_is_paused_at_the_limit_and_goes_on_below_it(monkeypatch):
    monkeypatch.setattr(module, "READ_AHEAD", 4)

    async def read():
        connection, wire = Connection(asyncio.get_running_loop()), Wire()
        connection.connection_made(wire)
        asked = asyncio.ensure_future(connection.ask_for_stream(b""))
        await asyncio.sleep(0)
        connection.data_received(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nabc")
        await asked
        assert wire.is_reading()
        connection.data_received(b"de")
        assert not wire.is_reading()
        async with aclosing(connection.chunks(9.0)) as chunks:
            assert await anext(chunks) == b"abc"
            assert wire.is_reading()
        connection.data_received(b"fgh")
        assert not wire.is_reading()
        assert connection.reusable
        connection.rest()
        assert wire.is_reading()
        asked = asyncio.ensure_future(connection.ask_for_stream(b""))
        await asyncio.sleep(0)
        connection.data_received(OK)
        await asked
        return [chunk async for chunk in connection.chunks(9.0)]

    with asyncio.Runner() as runner:
        assert runner.run(read()) == [b"ok"]


async def test_what_came_before_the_end_of_a_stream_is_told_before_it():
    connection = Connection(asyncio.get_running_loop())
    connection.connection_made(Wire())
    asked = asyncio.ensure_future(connection.ask_for_stream(b""))
    await asyncio.sleep(0)
    connection.data_received(CHUNKED)
    await asked
    async with aclosing(connection.chunks(9.0)) as chunks:
        waiting = asyncio.ensure_future(anext(chunks))
        await asyncio.sleep(0)
        connection.data_received(b"2\r\nok\r\n")
        connection.eof_received()
        connection.connection_lost(None)
        assert await waiting == b"ok"
        with pytest.raises(Unreachable, match="closed the connection"):
            await anext(chunks)


async def test_lines_come_as_the_server_sends_them_and_a_stream_that_ends_just_ends():
    async with (
        serving([CHUNKED + b"3\r\na\nb\r\n", b"4\r\nb\n\nc\r\n2\r\nc\n\r\n0\r\n\r\n"]) as server,
        client_of(server) as client,
    ):
        assert await lines_of(client) == [b"a", b"bb", b"cc"]
        assert await lines_of(client) == [b"a", b"bb", b"cc"]
        assert server.accepted == 1


async def test_a_stream_that_falls_silent_is_given_up():
    async with serving([CHUNKED + b"2\r\na\n\r\n", SILENCE]) as server, client_of(server) as client:
        lines = client.lines("/x", resource="x", query={}, read_timeout=0.02)
        assert await anext(lines) == b"a"
        with pytest.raises(Unreachable, match="nothing came"):
            await anext(lines)
        await until(lambda: not server.open)


async def test_a_stream_that_is_left_early_closes_its_connection():
    async with serving([CHUNKED + b"2\r\na\n\r\n", SILENCE]) as server, client_of(server) as client:
        async with aclosing(client.lines("/x", resource="x", query={}, read_timeout=9.0)) as lines:
            assert await anext(lines) == b"a"
        await until(lambda: not server.open)


@pytest.mark.parametrize("status", ["401 Unauthorized", "410 Gone", "500 Oops"])
async def test_the_body_of_a_refused_watch_is_no_part_of_the_next(status):
    refusal = answer(b'{"message": "no"}\n', status=status)
    async with serving([refusal], [CHUNKED + b"2\r\na\n\r\n0\r\n\r\n"]) as server, client_of(server) as client:
        if "401" not in status:
            with pytest.raises((Expired, ApiError)):
                await lines_of(client)
        client._credentials.refresh = lambda: asyncio.sleep(0)
        assert await lines_of(client) == [b"a"]


async def test_a_refusal_of_a_watch_that_has_no_end_is_given_up(monkeypatch):
    monkeypatch.setattr(client_module, "_LONGEST_REFUSAL", 1000)
    chunk = b"400\r\n" + b"x" * 1024 + b"\r\n"
    async with (
        serving([b"HTTP/1.1 500 Oops\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk, SILENCE]) as server,
        client_of(server) as client,
    ):
        with pytest.raises(ApiError) as told:
            await lines_of(client)
        assert told.value.status == 500
        await until(lambda: not server.open)
        monkeypatch.setattr(client_module, "_LONGEST_REFUSAL", 10**6)
        monkeypatch.setattr(client_module, "REQUEST_TIMEOUT", 0.02)
        with pytest.raises(Unreachable):
            await lines_of(client)


# -- what is sent, and what an answer means --


async def test_a_request_as_it_goes_over_the_wire():
    async with serving(path="/k8s/one/") as server, client_of(server) as client:
        await client.request("POST", "/x", resource="x", query={"a": "b c", "d": "é&="}, body=b"{}")
        await get(client)
        host = server.url.removeprefix("http://").partition("/")[0].encode()
        head, _, body = server.seen[0].partition(b"\r\n\r\n")
        first, *headers = head.split(b"\r\n")
        assert first == b"POST /k8s/one/x?a=b+c&d=%C3%A9%26%3D HTTP/1.1"
        assert sorted(headers) == [
            b"Accept: application/json",
            b"Authorization: Bearer t",
            b"Content-Length: 2",
            b"Content-Type: application/json",
            b"Host: " + host,
            b"User-Agent: turb-kub",
        ]
        assert body == b"{}"
        assert server.seen[1].startswith(b"GET /k8s/one/x HTTP/1.1\r\n")
        assert b"Content-Length" not in server.seen[1]


async def test_an_ipv6_server():
    async with serving(host="::1") as server, client_of(server) as client:
        assert await get(client) == b"ok"
        assert b"Host: " + server.url.removeprefix("http://").encode() + b"\r\n" in server.seen[0]


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "304 Not Modified", "307 Temporary", "308 Permanent"])
async def test_a_redirect_is_an_error_and_not_followed(status):
    async with serving() as elsewhere, serving() as server, client_of(server) as client:
        server.answers = [[answer(b"", f"Location: {elsewhere.url}", status=status)]]
        with pytest.raises(ApiError) as told:
            await get(client)
        assert told.value.status == int(status[:3])
        with pytest.raises(ApiError):
            await lines_of(client)
        assert not elsewhere.accepted


async def test_an_error_carries_what_the_server_said():
    body = b'{"kind": "Status", "reason": "TooManyRequests", "message": "slow down"}'
    async with (
        serving([answer(body, "Retry-After: 7", status="429 Too Many")]) as server,
        client_of(server) as client,
    ):
        with pytest.raises(ApiError) as told:
            await get(client)
        error = told.value
        assert (error.status, error.reason, error.message, error.retry_after) == (
            429,
            "TooManyRequests",
            "slow down",
            7.0,
        )


@pytest.mark.parametrize("watch", [False, True], ids=["request", "watch"])
async def test_after_a_401_the_token_is_read_again_once(watch):
    read = []

    async def again():
        read.append(1)
        return Identity(server="", token=f"Bearer {len(read)}")

    refused = answer(b'{"message": "who?"}', status="401 Unauthorized")
    async with serving([refused], [OK]) as server:
        client = Client(credentials(server.url, again=again, token="Bearer 0"))
        async with client:
            use = lines_of if watch else get
            await use(client)
            assert len(read) == 1
            server.answers = [[refused]]
            with pytest.raises(ApiError) as told:
                await use(client)
            assert told.value.status == 401
            assert len(read) == 2
            sent = [line for seen in server.seen for line in seen.split(b"\r\n") if line.startswith(b"Authorization")]
            assert [line[-1:] for line in sent] == [b"0", b"1", b"1", b"2"]


# -- TLS --


class Certificates:
    """An authority and what it signs, made for the tests."""

    def __init__(self, folder):
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "an authority")])
        made = self._made(self._name, self._key, x509.BasicConstraints(ca=True, path_length=None))
        self.ca = made.public_bytes(serialization.Encoding.PEM).decode()

    def _made(self, subject, key, extension):
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(self._name).public_key(key.public_key())
        builder = builder.serial_number(x509.random_serial_number())
        builder = builder.not_valid_before(now - datetime.timedelta(days=1))
        builder = builder.not_valid_after(now + datetime.timedelta(days=1))
        return builder.add_extension(extension, critical=False).sign(self._key, hashes.SHA256())

    def sign(self, common_name, *names):
        """Return certificate and key, PEM."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
        made = self._made(subject, key, x509.SubjectAlternativeName([*names] or [x509.DNSName(common_name)]))
        pem = serialization.Encoding.PEM
        private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        return made.public_bytes(pem).decode(), private.decode()

    def server(self, *names, client=False):
        """Return the context of a server of that name."""
        file = self.folder / "server.pem"
        file.write_text("".join(self.sign("server", *names)))
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(file)
        if client:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(cadata=self.ca)
        return context


HERE = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return Certificates(tmp_path_factory.mktemp("certificates"))


async def test_tls_connections_are_kept_too(certificates):
    async with serving(tls=certificates.server(HERE)) as server:
        client = Client(credentials(server.url, ca=certificates.ca), in_flight=1)
        async with client:
            for _ in range(5):
                assert await get(client) == b"ok"
            assert await lines_of(client) == []
            assert server.accepted == 2
            server.answers = [[b"HTTP/1.1 200 OK\r\n\r\nok", END]]
            assert await get(client) == b"ok"


@pytest.mark.parametrize("steps", [[OK[:-1], END], [OK[:-1], RESET], [OK[:-1] + b"kHT", SILENCE]])
async def test_tls_connections_that_break(certificates, steps):
    async with serving(steps, tls=certificates.server(HERE)) as server:
        client = Client(credentials(server.url, ca=certificates.ca), in_flight=2)
        async with client:
            for _ in range(3):
                if steps[1] == SILENCE:
                    assert await get(client) == b"ok"
                    continue
                with pytest.raises(Unreachable):
                    await get(client)
            assert server.accepted == 3
            await until(lambda: not server.open)
            await no_slot_is_lost(client, server, 2)


async def test_the_name_of_the_server_is_checked(certificates):
    async with serving(tls=certificates.server(x509.DNSName("elsewhere.example"))) as server:
        async with Client(credentials(server.url, ca=certificates.ca), in_flight=1) as client:
            for _ in range(2):
                with pytest.raises(Unreachable, match=r"cannot connect to .*127\.0\.0\.1") as told:
                    await get(client)
                assert "certificate" in str(told.value)
        async with Client(credentials(server.url, ca=certificates.ca, verify=False)) as client:
            assert await get(client) == b"ok"
        async with Client(credentials(server.url, ca=certificates.ca, server_name="elsewhere.example")) as client:
            assert await get(client) == b"ok"
        async with Client(credentials(server.url, ca=certificates.ca, server_name="other.example")) as client:
            with pytest.raises(Unreachable, match=r"other\.example"):
                await get(client)


async def test_a_server_of_another_authority(certificates, tmp_path):
    async with serving(tls=certificates.server(HERE)) as server:
        for ca in ("", Certificates(tmp_path).ca):
            async with Client(credentials(server.url, ca=ca)) as client:
                with pytest.raises(Unreachable, match="certificate verify failed"):
                    await get(client)


async def test_the_client_s_certificate_is_sent(certificates):
    certificate, key = certificates.sign("someone")
    async with serving(tls=certificates.server(HERE, client=True)) as server:
        identity = {"ca": certificates.ca, "certificate": certificate, "key": key}
        async with Client(credentials(server.url, **identity)) as client:
            assert await get(client) == b"ok"
        assert server.certificates[0]["subject"] == ((("commonName", "someone"),),)
        async with Client(credentials(server.url, ca=certificates.ca)) as client:
            with pytest.raises(Unreachable):
                await get(client)


async def test_a_key_with_a_password_is_told_and_nobody_is_asked_for_it(certificates):
    key = ec.generate_private_key(ec.SECP256R1())
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"secret")
    ).decode()
    with pytest.raises(CredentialsError, match="certificates of the kubeconfig could not be read"):
        credentials("https://127.0.0.1", certificate=certificates.sign("someone")[0], key=secret)


@pytest.mark.parametrize(
    "server",
    ["", "127.0.0.1:6443", "host", "https://", "https://host:99999", "https://host:x", "ftp://host", "http://["],
)
def test_a_server_that_is_no_url(server):
    with pytest.raises(CredentialsError, match="is not a URL like"):
        credentials(server)


async def test_a_host_that_there_can_t_be():
    async with Client(credentials("http://a..b")) as client:
        with pytest.raises(Unreachable, match="cannot connect to"):
            await get(client)


# -- the loop of `turb-kub run` --


@pytest.mark.parametrize(
    "test",
    [
        test_one_connection_carries_many_requests,
        test_no_more_connections_than_the_limit_and_the_rest_wait,
        test_who_waits_for_a_connection_in_vain_times_out,
        test_watches_take_no_connection_from_requests,
        test_a_connection_that_the_server_closed_while_idle_is_replaced,
        test_a_server_that_speaks_first_is_not_taken_for_an_answer,
        test_lines_come_as_the_server_sends_them_and_a_stream_that_ends_just_ends,
        test_a_stream_that_falls_silent_is_given_up,
        test_a_stream_that_is_left_early_closes_its_connection,
        test_an_ipv6_server,
        test_a_host_that_there_can_t_be,
    ],
    ids=lambda test: test.__name__.removeprefix("test_"),
)
def test_the_same_on_uvloop(test):
    uvloop.run(test())


def test_broken_answers_on_uvloop():
    for name in BROKEN:
        uvloop.run(test_a_broken_answer_is_told_in_one_line_and_costs_one_connection(name))


def test_tls_on_uvloop(certificates):
    uvloop.run(test_tls_connections_are_kept_too(certificates))
    uvloop.run(test_the_name_of_the_server_is_checked(certificates))
    uvloop.run(test_the_client_s_certificate_is_sent(certificates))
    for steps in ([OK[:-1], END], [OK[:-1], RESET]):
        uvloop.run(test_tls_connections_that_break(certificates, steps))


def test_a_slow_reader_on_uvloop(monkeypatch):
    uvloop.run(test_a_slow_reader_makes_the_server_wait_and_gets_all(monkeypatch))
