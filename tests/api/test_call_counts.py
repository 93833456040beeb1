"""What pods cost the API server, by verb and resource, as the server itself counts it.

Promised are two writes for each pod that is placed, two for each change of what one that waits is told, and one list
and one watch of each resource. Whatever is asked beyond that fails here, on however fast a machine. What a list costs
later is in tests/simulation/test_lists_over_hours.py.
"""

import asyncio
import json
from collections import Counter
from functools import partial

import pytest
from turb_kub.decision.decide import decide
from turb_kub.objects.node import decode_node

from tests.api.double import KINDS
from tests.api.running import Token, running, until
from tests.unit.objects import wire_node, wire_pod

THEIRS = "default-scheduler"
START = Counter({(verb, kind): 1 for verb in ("GET", "WATCH") for kind in KINDS})
LIST = ("GET", "pods")


@pytest.fixture
async def double(double):
    """20 nodes, 16 GiB each."""
    for number in range(3, 21):
        double.put("nodes", wire_node(f"node-{number}"))
    return double


@pytest.fixture
def decided(monkeypatch):
    """The names of the pods that were decided, in order."""
    names = []

    def counted(cluster, pod, *how, **more):
        names.append(pod.name)
        return decide(cluster, pod, *how, **more)

    monkeypatch.setattr("turb_kub.loop.scheduler.decide", counted)
    return names


def put_pods(double, prefix, count, **how):
    for number in range(count):
        double.put("pods", wire_pod(f"{prefix}{number}", **how))


def placed(count):
    """What it costs to place so many pods."""
    return Counter({("POST", "pods/binding"): count, ("POST", "events"): count})


def refused(count):
    """What it costs to tell so many pods, for the first time or anew, why they wait."""
    return Counter({("PATCH", "pods/status"): count, ("POST", "events"): count})


async def all_placed(double, prefix, count):
    await until(lambda: all(double.node_of(f"{prefix}{number}") for number in range(count)), 60.0)


async def all_heard(double, scheduler):
    """Wait until the watches of nodes and pods have told all that was done before. Costs one placed pod."""
    mark = f"mark-{double.version}"
    double.put("nodes", wire_node(mark, memory="8Mi", taints=[{"key": "mark", "effect": "NoSchedule"}]))
    await until(lambda: scheduler.cluster.node(mark))
    home = {"nodeSelector": {"kubernetes.io/hostname": mark}, "tolerations": [{"operator": "Exists"}]}
    double.put("pods", wire_pod(mark, spec=home, memory="1Mi"))
    await until(lambda: double.node_of(mark) and not scheduler.cluster.assumed_count)


def heartbeat(double):
    """All nodes say that they live."""
    for number in range(1, 21):
        node = double.objects["nodes"]["", f"node-{number}"]
        condition = node["status"]["conditions"][0] | {"lastHeartbeatTime": f"{double.version}"}
        double.put("nodes", node | {"status": node["status"] | {"conditions": [condition]}})


async def test_a_backlog_costs_one_binding_and_one_event_a_pod_and_one_list_and_watch_a_resource(double):
    put_pods(double, "p", 200, memory="64Mi", cpu="10m")
    async with running(Token(double.url)):
        await all_placed(double, "p", 200)
    assert double.requests == START + placed(200)


async def test_pods_that_come_one_after_the_other_cost_no_more_than_a_backlog(double):
    async with running(Token(double.url)):
        for number in range(50):
            double.put("pods", wire_pod(f"p{number}", memory="64Mi"))
            await until(partial(double.node_of, f"p{number}"))
    assert double.requests == START + placed(50)


async def test_pods_that_live_and_go_and_nodes_that_live_cost_nothing(double):
    put_pods(double, "p", 50, memory="64Mi")
    async with running(Token(double.url)) as scheduler:
        await all_placed(double, "p", 50)
        await all_heard(double, scheduler)
        await until(lambda: len(double.events) == 51)
        double.requests.clear()
        for phase in ("Running", "Succeeded"):
            for number in range(50):
                found = double.pod(f"p{number}")
                double.put("pods", found | {"status": found["status"] | {"phase": phase}})
            heartbeat(double)
        for number in range(50):
            double.delete("pods", f"p{number}")
        await all_heard(double, scheduler)
    assert double.requests == placed(1)


async def test_pods_of_other_schedulers_cost_nothing(double):
    async with running(Token(double.url)) as scheduler:
        put_pods(double, "theirs", 50, scheduler=THEIRS, memory="64Mi")
        for number in range(50):
            found = double.pod(f"theirs{number}")
            double.put("pods", found | {"spec": found["spec"] | {"nodeName": f"node-{number % 20 + 1}"}})
        await until(lambda: scheduler.cluster.pod_count == 50)
        for number in range(50):
            double.delete("pods", f"theirs{number}")
        await until(lambda: scheduler.cluster.pod_count == 0)
    assert double.requests == START


@pytest.mark.parametrize("alike", [True, False], ids=["alike", "each otherwise"])
async def test_pods_that_fit_nowhere_cost_one_condition_and_one_event_each_whatever_else_happens(
    double, decided, alike
):
    for number in range(40):
        spec = {} if alike else {"nodeSelector": {"disk": f"d{number}"}}
        double.put("pods", wire_pod(f"w{number}", memory="64Gi", spec=spec))
    async with running(Token(double.url)) as scheduler:
        await until(lambda: len(double.patches) == 40 and len(double.events) == 40)
        assert double.requests == START + refused(40)
        double.requests.clear()
        decided.clear()
        put_pods(double, "p", 20, memory="64Mi")
        double.put("nodes", wire_node("node-21", memory="32Gi"))
        for round_ in range(10):
            heartbeat(double)
            double.put("nodes", wire_node("node-22", memory="1Gi", labels={"round": f"{round_}"}))
        await all_placed(double, "p", 20)
        put_pods(double, "p", 20, memory="64Mi")
        for number in range(20):
            double.delete("pods", f"p{number}")
        await all_heard(double, scheduler)
        # Nothing of all that lets one of them in, and so none was tried again.
        assert not [name for name in decided if name.startswith("w")]
    assert double.requests == placed(21)


async def test_a_pod_that_is_refused_again_and_again_for_the_same_reasons_is_told_once_and_for_others_anew(
    double, decided
):
    double.put("pods", wire_pod("w", memory="64Gi"))
    async with running(Token(double.url)) as scheduler:

        async def changed(what):
            """Have it decided afresh, as it asks something else than before."""
            before = len(decided)
            found = double.pod("w")
            double.put("pods", found | {"metadata": found["metadata"] | {"labels": {"now": what}}})
            await until(lambda: len(decided) > before)

        await until(lambda: double.pod("w")["status"].get("conditions"))
        for number in range(10):
            # Their number is in the message, and no change of verdict.
            double.put("nodes", wire_node(f"new-{number}"))
            await until(partial(scheduler.cluster.node, f"new-{number}"))
            await changed(f"{number}")
        assert len(decided) == 11
        await all_heard(double, scheduler)
        await until(lambda: len(double.events) == 2)
        assert double.requests == START + refused(1) + placed(1)
        double.requests.clear()
        cordoned = double.put("nodes", wire_node("node-1", unschedulable=True))
        await until(lambda: scheduler.cluster.node("node-1") == decode_node(json.dumps(cordoned)))
        await changed("reasons")
        await until(lambda: double.requests == refused(1))


# The guard of shared nodes. One bind at a time, so that none shares another's read.


async def test_always_costs_one_list_of_a_nodes_pods_before_each_bind(double):
    put_pods(double, "p", 60, memory="64Mi")
    async with running(Token(double.url), shared_node_guard="always", binds_in_flight=1):
        await all_placed(double, "p", 60)
    assert double.requests == START + placed(60) + Counter({LIST: 60})


async def test_auto_costs_a_list_only_before_binds_to_nodes_that_hold_pods_of_another_scheduler(double):
    double.put("pods", wire_pod("theirs", node="node-1", scheduler=THEIRS, memory="64Mi"))
    for number in range(20):
        home = {"nodeSelector": {"kubernetes.io/hostname": f"node-{number % 2 + 1}"}}
        double.put("pods", wire_pod(f"p{number}", memory="64Mi", spec=home))
    async with running(Token(double.url), binds_in_flight=1):
        await all_placed(double, "p", 20)
    assert double.requests == START + placed(20) + Counter({LIST: 10})


async def test_binds_of_a_burst_share_reads(double):
    """While a node is read all others that are to be bound there wait for that answer."""
    go_on = asyncio.Event()

    async def waits(_):
        await go_on.wait()

    async with running(Token(double.url), shared_node_guard="always", binds_in_flight=40) as scheduler:
        double.fault(*LIST, *[waits] * 20)
        put_pods(double, "p", 40, memory="1Gi")
        await until(lambda: scheduler.cluster.assumed_count == 40)
        go_on.set()
        await all_placed(double, "p", 40)
    assert double.requests == START + placed(40) + Counter({LIST: 20})
