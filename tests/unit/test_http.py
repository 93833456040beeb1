"""The server of health and metrics, and that no client holds it up or leaves something behind."""

import asyncio
from contextlib import asynccontextmanager, suppress

import pytest
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.parser import text_string_to_metric_families
from turb_kub.loop import http as module
from turb_kub.loop.http import PortInUse, serve

from tests.api.running import until


class Health:
    """A server under test, and what it says of itself."""

    def __init__(self):
        self.ready = self.stuck = False
        self.registry = CollectorRegistry()
        self.host, self.port = "", 0

    async def send(self, raw, *, end=True):
        """Send bytes and return all that comes back until the server closes."""
        reader, writer = await asyncio.open_connection(self.host, self.port)
        try:
            writer.write(raw)
            if end:
                writer.write_eof()
            return await reader.read()
        except ConnectionResetError:
            return b""
        finally:
            writer.close()

    async def get(self, path, verb="GET"):
        """Return status, headers and body of an answer."""
        head, _, body = (await self.send(f"{verb} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode(), end=False)).partition(
            b"\r\n\r\n"
        )
        first, *lines = head.decode().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines)
        assert headers["Connection"] == "close"
        return int(first.split(" ")[1]), headers, body


@asynccontextmanager
async def serving(host="127.0.0.1"):
    health = Health()
    health.host = host
    troubles: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: troubles.append(context))
    async with serve(host, 0, health.registry, lambda: health.ready, lambda: health.stuck) as health.port:
        yield health
    await until(lambda: not handlers())
    assert not troubles


def handlers():
    return [task for task in asyncio.all_tasks() if "handle" in getattr(task.get_coro(), "__qualname__", "")]


@pytest.mark.parametrize("path", ["/livez", "/healthz", "/livez?verbose=1"])
async def test_it_lives_until_the_election_is_stuck(path):
    async with serving() as health:
        assert (await health.get(path))[::2] == (200, b"ok")
        health.stuck = True
        assert (await health.get(path))[::2] == (503, b"the leader election is stuck")


async def test_it_is_ready_once_all_is_known():
    async with serving() as health:
        assert (await health.get("/readyz"))[::2] == (503, b"nodes, pods and storage are not all known yet")
        health.ready = True
        assert (await health.get("/readyz"))[::2] == (200, b"ok")


async def test_the_metrics_are_such_that_prometheus_reads_them():
    async with serving() as health:
        Counter("things", "All of them.", ["kind"], registry=health.registry).labels('a "b"\n').inc(3)
        status, headers, body = await health.get("/metrics")
        assert status == 200
        assert headers["Content-Type"].startswith("text/plain; version=")
        (family,) = [each for each in text_string_to_metric_families(body.decode()) if each.name == "things"]
        (sample,) = [each for each in family.samples if each.name == "things_total"]
        assert (sample.labels, sample.value) == ({"kind": 'a "b"\n'}, 3.0)


@pytest.mark.parametrize("path", ["/livez", "/metrics", "/none"])
async def test_head_is_get_without_the_body(path):
    async with serving() as health:
        status, headers, body = await health.get(path)
        assert int(headers["Content-Length"]) == len(body)
        assert await health.get(path, "HEAD") == (status, headers, b"")


@pytest.mark.parametrize("path", ["/", "/none", "/livez/", "//livez", "*", "http://x/livez"])
async def test_unknown_paths(path):
    async with serving() as health:
        assert (await health.get(path))[0] == 404


@pytest.mark.parametrize("verb", ["POST", "PUT", "DELETE", "OPTIONS", "get"])
async def test_other_verbs(verb):
    async with serving() as health:
        status, headers, _ = await health.get("/livez", verb)
        assert status == 405
        assert headers["Allow"] == "GET, HEAD"


@pytest.mark.parametrize(
    "raw", [b"garbage", b"GET /livez", b"\x16\x03\x01\x02\x00", b"PRI * HTTP/2.0", b" ", b"GET  / HTTP/1.1"]
)
async def test_what_is_not_http(raw):
    async with serving() as health:
        assert (await health.send(raw + b"\r\n\r\n")).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("raw", [b"", b"GET /livez HT", b"GET /livez HTTP/1.1\r\nHost: x\r\n"])
async def test_a_client_that_leaves_in_the_middle(raw):
    async with serving() as health:
        assert await health.send(raw) == b""
        await until(lambda: not handlers())
        assert (await health.get("/livez"))[0] == 200


@pytest.mark.parametrize("raw", [b"GET /" + b"x" * 100_000, b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 20_000])
async def test_a_request_without_end_is_cut_off(raw, monkeypatch):
    monkeypatch.setattr(module, "PATIENCE", 600.0)
    async with serving() as health:
        assert await asyncio.wait_for(health.send(raw, end=False), 20.0) == b""
        await until(lambda: not handlers())


async def test_half_a_request_and_then_silence(monkeypatch):
    monkeypatch.setattr(module, "PATIENCE", 600.0)
    async with serving() as health:
        silent = [await asyncio.open_connection(health.host, health.port) for _ in range(20)]
        for _, writer in silent:
            writer.write(b"GET /livez HTTP/1.1\r\n")
        await until(lambda: len(handlers()) == 20)
        # Those do not hold up others.
        assert (await health.get("/livez"))[0] == 200
        assert len(handlers()) == 20
        monkeypatch.setattr(module, "PATIENCE", 0.01)
        assert await health.send(b"GET /livez HTTP/1.1\r\n", end=False) == b""
        assert len(handlers()) == 20
    # They end with the server, not when their time is over.
    for reader, writer in silent:
        with pytest.raises((ConnectionResetError, EOFError)):
            await reader.readexactly(1)
        writer.close()


async def test_a_client_that_does_not_read_is_forgotten(monkeypatch):
    monkeypatch.setattr(module, "PATIENCE", 0.05)
    monkeypatch.setattr(module, "generate_latest", lambda registry: b"x" * 2**26)
    async with serving() as health:
        reader, writer = await asyncio.open_connection(health.host, health.port, limit=1)
        writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
        await until(handlers)
        await until(lambda: not handlers())
        # The rest is not kept for it: the connection was cut off.
        got = 0
        with suppress(ConnectionResetError):
            while chunk := await reader.read(2**20):
                got += len(chunk)
        assert got < 2**26
        writer.close()


async def test_a_thousand_requests():
    async with serving() as health:
        for _ in range(20):
            answers = await asyncio.gather(*(health.get("/livez") for _ in range(50)))
            assert {status for status, _, _ in answers} == {200}
        await until(lambda: not handlers())


async def test_a_port_that_is_taken():
    async with serving() as health:
        with pytest.raises(PortInUse, match=rf"cannot listen on 127\.0\.0\.1 port {health.port}: .*--http-port"):
            async with serve(health.host, health.port, health.registry, lambda: True):
                pass


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", 70_000), ("203.0.113.1", 0), ("a..b", 0)])
async def test_an_address_that_is_not_ours(host, port):
    with pytest.raises(PortInUse, match=f"cannot listen on {host} port {port}: ."):
        async with serve(host, port, CollectorRegistry(), lambda: True):
            pass


async def test_nothing_listens_once_it_is_closed():
    async with serving() as health:
        pass
    with pytest.raises(ConnectionRefusedError):
        await health.get("/livez")


async def test_an_ipv6_host():
    async with serving("::1") as health:
        assert (await health.get("/livez"))[::2] == (200, b"ok")
