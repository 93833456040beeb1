"""Replicas that elect one by a lease, on a real API server under the very roles that are deployed."""

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from turb_kub.api.client import Client
from turb_kub.api.credentials import load_credentials
from turb_kub.api.errors import ApiError
from turb_kub.cli.connect import probe_lease
from turb_kub.cli.errors import CommandError
from turb_kub.settings import Settings

from tests.api.conftest import NAMESPACE, rbac_objects
from tests.api.running import running, until

pytestmark = pytest.mark.cluster

LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/turb-kub"
ROLES = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/roles"
MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
#: Short, but long enough for a busy machine.
TIMES: dict[str, Any] = {
    "lease_duration_seconds": 6,
    "renew_deadline_seconds": 4.0,
    "retry_period_seconds": 0.4,
    "bind_timeout_seconds": 1.5,
}
MEBIBYTE = 2**20
PODS, MEMORY = 200, 100
#: So that the pods fill both nodes to the last: one pod more on either would be over.
CEILING = PODS // 2 * MEMORY
PATIENCE = 60.0


@pytest.fixture(autouse=True)
async def no_lease(admin):
    """Nobody's lease before, and none after."""
    await forget(admin)
    yield
    await forget(admin)


async def forget(admin):
    with suppress(ApiError):
        await admin.call("DELETE", LEASE)


async def lease(admin):
    return (await admin.call("GET", LEASE))["spec"]


async def test_the_server_takes_the_lease_as_it_is_written(admin, identity):
    credentials = await load_credentials(str(identity), None)
    async with running(credentials, leader_elect=True, **TIMES) as scheduler:
        await until(lambda: scheduler.leads)
        first = await lease(admin)
        assert scheduler.elector is not None
        assert first["holderIdentity"] == scheduler.elector.identity
        assert (first["leaseDurationSeconds"], first["leaseTransitions"]) == (6, 0)
        assert MICRO_TIME.fullmatch(first["acquireTime"])
        await admin.call("PATCH", LEASE, {"metadata": {"labels": {"example.com/kept": "yes"}}})

        async def renewed():
            found = await admin.call("GET", LEASE)
            return found["spec"]["renewTime"] > first["renewTime"] and found

        later = await admin.seen(renewed)
        assert later["metadata"]["labels"] == {"example.com/kept": "yes"}
        assert later["spec"]["acquireTime"] == first["acquireTime"]
    given_up = await lease(admin)
    assert (given_up["holderIdentity"], given_up["leaseDurationSeconds"]) == ("", 1)
    async with running(credentials, leader_elect=True, **TIMES) as scheduler:
        await until(lambda: scheduler.leads)
        assert (await lease(admin))["leaseTransitions"] == 1


async def test_an_identity_that_may_not_read_the_lease_is_told_so(admin, identity):
    (role,) = [item for item in rbac_objects() if item["kind"] == "Role"]
    await admin.call("DELETE", f"{ROLES}/turb-kub")
    try:
        async with Client(await load_credentials(str(identity), None)) as client:

            async def refused():
                try:
                    await probe_lease(client, Settings(leader_elect=True))
                except CommandError as error:
                    return str(error)
                return None

            told = await admin.seen(refused)
    finally:
        await admin.call("POST", ROLES, role)
    assert told.startswith("this identity may not get the lease kube-system/turb-kub (403): ")
    assert told.endswith("; grant it the Role turb-kub in namespace kube-system, or set TURB_KUB_LEADER_ELECT to false")


class Process:
    """`turb-kub run`, as users run it."""

    def __init__(self, kubeconfig: Path, log: Path) -> None:
        flags = {"node_mem_limit_mb": CEILING, "leader_elect": "true", "http_port": 0} | TIMES
        words = [word for name, value in flags.items() for word in (f"--{name.replace('_', '-')}", str(value))]
        self._log = log
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-B", "-m", "turb_kub", "run", "--kubeconfig", str(kubeconfig), *words],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env={"PATH": os.environ["PATH"]},
            )

    @property
    def log(self) -> str:
        return self._log.read_text()

    @property
    def identity(self) -> str:
        found = re.search(r"standing by for the lease kube-system/turb-kub as (\S+)", self.log)
        return found[1] if found else ""


@pytest.fixture
def processes(identity, tmp_path):
    started = [Process(identity, tmp_path / f"{number}.log") for number in (1, 2)]
    yield started
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
        one.process.wait()


async def bound(admin):
    return [pod for pod in await admin.pods() if pod["spec"].get("nodeName")]


async def test_the_active_one_is_killed_in_the_middle_of_a_burst_and_all_is_placed(admin, processes):
    await until(lambda: all(one.identity for one in processes), PATIENCE)

    async def holder():
        try:
            return (await lease(admin))["holderIdentity"]
        except ApiError:
            return ""

    name = await until(holder, PATIENCE)
    (active,), (standby,) = ([one for one in processes if (one.identity == name) is leads] for leads in (True, False))

    async def burst(first, last):
        requests = {"memory": f"{MEMORY}Mi"}
        await asyncio.gather(*(admin.create_pod(f"p{number}", requests=requests) for number in range(first, last)))

    await burst(0, PODS // 2)

    async def under_way():
        return len(await bound(admin)) >= 10

    more = asyncio.create_task(burst(PODS // 2, PODS))
    await until(under_way, PATIENCE)
    active.process.send_signal(signal.SIGKILL)
    await more

    async def all_placed():
        return len(await bound(admin)) == PODS

    await until(all_placed, PATIENCE)
    assert Counter(pod["spec"]["nodeName"] for pod in await bound(admin)) == {"node-1": PODS // 2, "node-2": PODS // 2}
    assert not [pod for pod in await admin.pods() if pod["status"]["phase"] == "Failed"]
    spec = await lease(admin)
    assert (spec["holderIdentity"], spec["leaseTransitions"]) == (standby.identity, 1)
    events = (await admin.call("GET", "/apis/events.k8s.io/v1/namespaces/default/events"))["items"]
    told = Counter(item["regarding"]["uid"] for item in events if item["reason"] == "Scheduled")
    assert max(told.values()) == 1

    standby.process.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(standby.process.wait, PATIENCE) == 0
    assert (await lease(admin))["holderIdentity"] == ""
    assert "this replica leads: it has taken the lease kube-system/turb-kub" in standby.log
    assert "the lease kube-system/turb-kub is given up" in standby.log
