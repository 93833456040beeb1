"""Readiness, taints and cordons under the running scheduler, where nothing reverts what a test writes on a node.

On simulated nodes these can't be tested: what simulates them sets each Ready again at once, and the node controller
writes taints of its own.
"""

from contextlib import asynccontextmanager

import pytest
from turb_kub.api.credentials import load_credentials

from tests.api.conftest import bare_node
from tests.api.running import running, until

pytestmark = pytest.mark.cluster

NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


@pytest.fixture
def scheduling(bare):
    """The scheduler running; at the end nothing has waited for the slow flush."""

    @asynccontextmanager
    async def scheduling():
        async with running(await load_credentials(str(bare.kubeconfig), None)) as scheduler:
            yield scheduler
            assert scheduler.queue.rescued_by_flush == 0

    return scheduling


async def set_ready(admin, scheduler, status, name="n"):
    """Set a node's Ready condition, or with "" remove it; return when the scheduler knows."""
    condition = {"type": "Ready", "status": status} if status else {"type": "Ready", "$patch": "delete"}
    await admin.call("PATCH", f"/api/v1/nodes/{name}/status", {"status": {"conditions": [condition]}})
    await until(lambda: scheduler.cluster.node(name).ready == status)


async def change(admin, scheduler, spec, name="n"):
    """Change a node's spec; return when the scheduler knows."""
    before = scheduler.cluster.node(name)
    await admin.call("PATCH", f"/api/v1/nodes/{name}", {"spec": spec})
    await until(lambda: scheduler.cluster.node(name) != before)


async def taint(admin, scheduler, *taints, name="n"):
    await change(admin, scheduler, {"taints": taints}, name)


async def refusal_of(admin, name):
    """What the pod's condition says, once it says that the pod fits nowhere."""

    async def look():
        conditions = (await admin.pod(name))["status"].get("conditions", ())
        return [one["message"] for one in conditions if one.get("reason") == "Unschedulable"]

    return (await admin.seen(look))[0]


async def home_of(admin, name):
    async def look():
        return (await admin.pod(name))["spec"].get("nodeName")

    return await admin.seen(look)


async def taints_of(admin, name="n"):
    return (await admin.call("GET", f"/api/v1/nodes/{name}"))["spec"].get("taints", [])


@pytest.mark.parametrize("status", ["False", "Unknown", ""], ids=["not ready", "unknown", "without the condition"])
async def test_a_node_that_stops_being_ready_takes_no_pod_until_it_is_again(admin, scheduling, status):
    await admin.call("POST", "/api/v1/nodes", bare_node("n"))
    async with scheduling() as scheduler:
        await admin.create_pod("before")
        assert await home_of(admin, "before") == "n"
        await set_ready(admin, scheduler, status)
        await admin.create_pod("after")
        assert await refusal_of(admin, "after") == "0/1 nodes are available: 1 node(s) were not ready."
        assert await taints_of(admin) == []
        await set_ready(admin, scheduler, "True")
        assert await home_of(admin, "after") == "n"


@pytest.mark.parametrize("status", ["False", "Unknown", ""], ids=["not ready", "unknown", "without the condition"])
async def test_a_pod_that_tolerates_the_taint_may_go_to_a_node_that_is_not_ready(admin, scheduling, status):
    await admin.call("POST", "/api/v1/nodes", bare_node("n", ready=status or None))
    key = NOT_READY["key"] if status == "False" else "node.kubernetes.io/unreachable"
    async with scheduling():
        await admin.create_pod("agent", tolerations=[{"key": key, "operator": "Exists", "effect": "NoSchedule"}])
        assert await home_of(admin, "agent") == "n"


async def test_a_node_with_condition_and_taint_takes_pods_when_both_are_gone(admin, scheduling):
    await admin.call("POST", "/api/v1/nodes", bare_node("n", ready="False", taints=[NOT_READY]))
    async with scheduling() as scheduler:
        await admin.create_pod("p")
        assert await refusal_of(admin, "p") == "0/1 nodes are available: 1 node(s) had untolerated taint(s)."
        await taint(admin, scheduler)
        await admin.create_pod("later")
        assert await refusal_of(admin, "later") == "0/1 nodes are available: 1 node(s) were not ready."
        await set_ready(admin, scheduler, "True")
        assert [await home_of(admin, name) for name in ("p", "later")] == ["n", "n"]


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
async def test_a_taint_keeps_pods_away_until_it_is_removed(admin, scheduling, effect):
    await admin.call("POST", "/api/v1/nodes", bare_node("n"))
    async with scheduling() as scheduler:
        await taint(admin, scheduler, {"key": "dedicated", "value": "a", "effect": effect})
        await admin.create_pod("waits")
        assert await refusal_of(admin, "waits") == "0/1 nodes are available: 1 node(s) had untolerated taint(s)."
        tolerations = [{"key": "dedicated", "value": "a", "effect": effect}]
        await admin.create_pod("tolerates", tolerations=tolerations)
        assert await home_of(admin, "tolerates") == "n"
        await taint(admin, scheduler)
        assert await home_of(admin, "waits") == "n"


async def test_a_taint_of_another_effect_than_tolerated_keeps_the_pod_away(admin, scheduling):
    taints = [{"key": "dedicated", "effect": effect} for effect in ("NoSchedule", "NoExecute")]
    await admin.call("POST", "/api/v1/nodes", bare_node("n", taints=taints))
    async with scheduling() as scheduler:
        await admin.create_pod("p", tolerations=[{"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}])
        assert "untolerated taint" in await refusal_of(admin, "p")
        await taint(admin, scheduler, taints[0])
        assert await home_of(admin, "p") == "n"


async def test_a_soft_taint_only_makes_other_nodes_preferable(admin, scheduling):
    soft = {"key": "slow", "effect": "PreferNoSchedule"}
    for name, taints in (("n", [soft]), ("other", [])):
        await admin.call("POST", "/api/v1/nodes", bare_node(name, taints=taints))
    async with scheduling() as scheduler:
        await admin.create_pod("free")
        assert await home_of(admin, "free") == "other"
        await change(admin, scheduler, {"unschedulable": True}, "other")
        await admin.create_pod("driven")
        assert await home_of(admin, "driven") == "n"


async def test_a_cordoned_node_takes_no_pod_until_it_is_uncordoned(admin, scheduling):
    await admin.call("POST", "/api/v1/nodes", bare_node("n"))
    async with scheduling() as scheduler:
        await change(admin, scheduler, {"unschedulable": True})
        await admin.create_pod("waits")
        assert await refusal_of(admin, "waits") == "0/1 nodes are available: 1 node(s) were unschedulable."
        assert await taints_of(admin) == []
        tolerations = [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]
        await admin.create_pod("tolerates", tolerations=tolerations)
        assert await home_of(admin, "tolerates") == "n"
        await change(admin, scheduler, {"unschedulable": False})
        assert await home_of(admin, "waits") == "n"
