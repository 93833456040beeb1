"""Pods that claim volumes, in the real loop against a server that misbehaves."""

import logging

import pytest

from tests.api.double import ApiDouble, answers
from tests.api.running import Token, running, until
from tests.unit.objects import wire_node, wire_pod
from tests.unit.storage import using, wire_claim, wire_volume


@pytest.fixture
async def double():
    async with ApiDouble().serve() as served:
        for name in ("node-1", "node-2"):
            served.put("nodes", wire_node(name))
        yield served


def conditions(double, name):
    return [c["message"] for c in double.pod(name)["status"].get("conditions", []) if c["type"] == "PodScheduled"]


# Reading


@pytest.mark.parametrize(("code", "reason"), [(403, "Forbidden"), (404, "NotFound")])
async def test_storage_that_may_not_be_read_holds_up_only_pods_with_claims_and_only_until_it_may(
    double, caplog, code, reason
):
    double.put("persistentvolumeclaims", wire_claim("data", volume="v"))
    double.put("persistentvolumes", wire_volume("v", nodes=("node-2",), phase="Bound"))
    double.fault("GET", "persistentvolumes", *[answers(code, reason)] * 2)
    double.put("pods", wire_pod("plain"))
    double.put("pods", wire_pod("stateful", spec=using("data")))
    with caplog.at_level(logging.WARNING):
        async with running(Token(double.url)) as scheduler:
            await until(lambda: double.node_of("plain"))
            await until(lambda: conditions(double, "stateful"))
            await until(lambda: double.node_of("stateful"))
            assert scheduler.queue.rescued_by_flush == 0
    assert double.node_of("stateful") == "node-2"
    told = double.patches[0]["status"]["conditions"][0]["message"]
    assert "these could not be read: persistentvolumes (the API server does not list them)" in told
    assert caplog.text.count("pods that claim volumes wait until persistentvolumes can be read") == 1


async def test_nothing_is_placed_before_storage_is_known(double):
    double.put("persistentvolumeclaims", wire_claim("data", volume="v"))
    double.put("persistentvolumes", wire_volume("v", phase="Bound"))
    double.put("pods", wire_pod("stateful", spec=using("data")))
    double.fault("GET", "persistentvolumeclaims", *[answers(500, "InternalError")] * 2)
    async with running(Token(double.url)):
        await until(lambda: double.node_of("stateful"))
    assert not double.patches


async def test_a_claim_that_comes_late_lets_its_pod_go(double):
    double.put("persistentvolumes", wire_volume("v", nodes=("node-2",), phase="Bound"))
    async with running(Token(double.url)) as scheduler:
        double.put("pods", wire_pod("stateful", spec=using("data")))
        await until(lambda: conditions(double, "stateful"))
        assert conditions(double, "stateful") == ['0/2 nodes are available: persistentvolumeclaim "data" not found.']
        double.put("persistentvolumeclaims", wire_claim("data", volume="v"))
        await until(lambda: double.node_of("stateful"))
        assert scheduler.queue.rescued_by_flush == 0
    assert double.node_of("stateful") == "node-2"
