"""The election over HTTP, against the server that misbehaves. Its times are tested in `tests/simulation`."""

import asyncio
import os
import subprocess
import sys
from typing import Any, cast

import aiohttp
import pytest
from prometheus_client import CollectorRegistry
from turb_kub.api.client import Client
from turb_kub.api.errors import Unreachable
from turb_kub.api.leases import read_lease
from turb_kub.loop.http import serve

from tests.api.double import answers, hangs, says
from tests.api.running import Token, running, until
from tests.unit.objects import wire_pod

KEY = ("kube-system", "turb-kub")
OFTEN: dict[str, Any] = {"retry_period_seconds": 0.05}
KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: c
contexts: [{{name: c, context: {{cluster: c, user: u}}}}]
clusters: [{{name: c, cluster: {{server: "{url}"}}}}]
users: [{{name: u, user: {{}}}}]
"""


def renewals(double):
    return double.requests["PUT", "leases"]


async def test_a_renewal_does_not_wait_behind_bindings_that_hang(double):
    async with running(Token(double.url), leader_elect=True, binds_in_flight=1, **OFTEN) as scheduler:
        await until(lambda: scheduler.leads)
        double.fault("POST", "pods/binding", hangs())
        double.put("pods", wire_pod("p"))
        await until(lambda: not double.faults_left)
        before = renewals(double)
        await until(lambda: renewals(double) > before + 3)
        assert double.node_of("p") is None
    # Ten watches, the lease, and one for all else.
    assert double.most_open <= 12


async def test_several_connections_are_no_more_with_a_lease(double):
    async with running(Token(double.url), leader_elect=True, binds_in_flight=8, **OFTEN):
        for number in range(60):
            double.put("pods", wire_pod(f"p{number}", memory="1Mi"))
        await until(lambda: all(double.node_of(f"p{number}") for number in range(60)))
    assert double.most_open <= 8 + 8


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"{}", b'{"metadata":{"resourceVersion":""}}', b"[" * 100_000])
async def test_an_answer_that_is_no_lease_is_none(double, body):
    double.fault("GET", "leases", says(body))
    async with Client(cast(Any, Token(double.url))) as client:
        with pytest.raises(Unreachable, match="the answer is no Lease"):
            await read_lease(client, *KEY, 5.0)


async def test_what_knows_nothing_of_leases_does_not_say_that_there_is_none(double):
    double.put_lease(
        {"metadata": {"namespace": KEY[0], "name": KEY[1], "uid": "u"}, "spec": {"holderIdentity": "other"}}
    )
    double.fault("GET", "leases", says(b"<html>404</html>", 404), answers(403, "Forbidden"), answers(503, "Trouble"))
    async with running(Token(double.url), leader_elect=True, **OFTEN) as scheduler:
        await until(lambda: not double.faults_left)
        await until(lambda: double.requests["GET", "leases"] >= 5)
        assert not scheduler.leads
    assert not double.requests["POST", "leases"]
    assert double.leases[KEY]["spec"]["holderIdentity"] == "other"


async def test_a_request_without_any_time_left_is_not_sent(double):
    async with Client(cast(Any, Token(double.url))) as client:
        with pytest.raises(Unreachable, match="timed out"):
            await read_lease(client, *KEY, 0.0)
    assert not double.requests


async def test_a_process_whose_lease_another_holds_ends_with_1_and_one_line(double, tmp_path):
    config = tmp_path / "config"
    config.write_text(KUBECONFIG.format(url=double.url))
    flags = ["--leader-elect", "true", "--retry-period-seconds", "0.1", "--http-port", "0"]
    process = await asyncio.to_thread(
        subprocess.Popen,
        [sys.executable, "-B", "-m", "turb_kub", "run", "--kubeconfig", str(config), *flags],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={"PATH": os.environ["PATH"]},
    )
    try:
        await until(lambda: renewals(double))
        lease = double.leases[KEY]
        double.put_lease(lease | {"spec": lease["spec"] | {"holderIdentity": "somebody"}})
        _, told = await asyncio.to_thread(process.communicate, timeout=60)
    finally:
        process.kill()
    assert process.returncode == 1
    assert [line.split(maxsplit=1)[1] for line in told.splitlines() if "ERROR" in line] == [
        "ERROR   the lease kube-system/turb-kub is held by somebody; "
        "this replica ends, and is of use again once it is started anew"
    ]
    assert "Traceback" not in told


async def test_livez_says_that_the_election_is_stuck_and_readyz_does_not():
    stuck = [False, True]
    async with (
        serve("127.0.0.1", 0, CollectorRegistry(), lambda: True, lambda: stuck.pop(0)) as port,
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session,
    ):
        for path, code in (("/livez", 200), ("/livez", 503), ("/readyz", 200)):
            async with session.get(path) as answer:
                assert answer.status == code
    assert not stuck
