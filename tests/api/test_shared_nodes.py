"""The real loop where another scheduler binds to the same nodes and the watch tells of it late."""

import asyncio
import json

import pytest
from aiohttp import web

from tests.api.double import answers, says
from tests.api.running import Token, running, until
from tests.api.truth import agrees
from tests.unit.objects import wire_pod

THEIRS = "default-scheduler"


@pytest.fixture
async def double(double):
    for name in ("node-1", "node-2"):
        double.put("pods", wire_pod(f"theirs-{name}", node=name, scheduler=THEIRS))
    return double


def count(scheduler, name, **labels):
    return scheduler.metrics.registry.get_sample_value(f"turb_kub_{name}_total", labels) or 0


def fills(double, name):
    """A fault: just before the request is answered another scheduler fills a node, and the watch is late to tell."""

    async def fault(_):
        double.muted.add("pods")
        double.put("pods", wire_pod(f"filler-{name}", node=name, scheduler=THEIRS, memory="16Gi"))
        double.muted.discard("pods")

    return fault


async def test_room_that_another_scheduler_has_taken_unseen_is_not_taken_again(double):
    async with running(Token(double.url)) as scheduler:
        double.fault("GET", "pods", fills(double, "node-1"))
        double.put("pods", wire_pod("p", memory="1Gi"))
        await until(lambda: double.node_of("p"))
        assert double.node_of("p") == "node-2"
        await until(lambda: agrees(scheduler, double))
        assert count(scheduler, "conflicts_avoided") == 1
        assert count(scheduler, "fresh_reads", result="done") == 2
        await until(lambda: double.events)
    assert [event["reason"] for event in double.events] == ["Scheduled"]
    assert double.requests["POST", "pods/binding"] == 1
    assert not double.patches


async def test_a_pod_whose_room_is_gone_everywhere_waits_and_is_placed_when_there_is_some(double):
    async with running(Token(double.url)) as scheduler:
        double.fault("GET", "pods", fills(double, "node-1"), fills(double, "node-2"))
        double.put("pods", wire_pod("p", memory="1Gi"))
        await until(lambda: double.patches)
        assert double.node_of("p") is None
        assert not scheduler.cluster.assumed_count
        double.delete("pods", "filler-node-2")
        await until(lambda: double.node_of("p") == "node-2")
        assert scheduler.queue.rescued_by_flush == 0


async def test_never_reads_nothing(double):
    async with running(Token(double.url), shared_node_guard="never") as scheduler:
        double.put("pods", wire_pod("p", memory="1Gi"))
        await until(lambda: double.node_of("p") and agrees(scheduler, double))
    assert double.requests["GET", "pods"] == 1


async def test_auto_reads_nothing_where_only_static_and_daemon_pods_are_anothers(double):
    for name in ("node-1", "node-2"):
        double.delete("pods", f"theirs-{name}")
        static, daemon = wire_pod(f"s-{name}", node=name, scheduler=THEIRS), wire_pod(f"d-{name}", node=name)
        static["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
        daemon["spec"]["schedulerName"] = THEIRS
        daemon["metadata"]["ownerReferences"] = [{"kind": "DaemonSet", "name": "d", "controller": True}]
        double.put("pods", static)
        double.put("pods", daemon)
    async with running(Token(double.url)) as scheduler:
        double.put("pods", wire_pod("p"))
        await until(lambda: double.node_of("p") and agrees(scheduler, double))
    assert double.requests["GET", "pods"] == 1


async def test_always_reads_where_no_other_scheduler_is(double):
    for name in ("node-1", "node-2"):
        double.delete("pods", f"theirs-{name}")
    async with running(Token(double.url), shared_node_guard="always") as scheduler:
        double.put("pods", wire_pod("p"))
        await until(lambda: double.node_of("p") and agrees(scheduler, double))
    assert double.requests["GET", "pods"] == 2


async def test_auto_reads_nodes_that_hold_nothing_while_another_scheduler_has_pods_to_place(double):
    for name in ("node-1", "node-2"):
        double.delete("pods", f"theirs-{name}")
    double.put("pods", wire_pod("theirs", scheduler=THEIRS))
    async with running(Token(double.url)) as scheduler:
        double.put("pods", wire_pod("p"))
        await until(lambda: double.node_of("p") and agrees(scheduler, double))
    assert double.requests["GET", "pods"] == 2


async def test_binds_to_one_node_that_wait_at_once_share_a_read(double):
    double.delete("nodes", "node-2", "")
    go_on = asyncio.Event()

    async def waits(_):
        await go_on.wait()

    async with running(Token(double.url)) as scheduler:
        double.fault("GET", "pods", waits)
        for number in range(5):
            double.put("pods", wire_pod(f"p{number}", memory="1Gi"))
        await until(lambda: scheduler.cluster.assumed_count == 5)
        go_on.set()
        await until(lambda: agrees(scheduler, double) and scheduler.cluster.pod_count == 7)
    assert count(scheduler, "fresh_reads", result="done") == 1


async def test_of_binds_that_share_a_read_as_many_are_sent_as_there_is_room_for(double):
    double.delete("nodes", "node-2", "")
    go_on = asyncio.Event()

    async def fills_most_of_it(_):
        await go_on.wait()
        double.muted.add("pods")
        double.put("pods", wire_pod("filler", node="node-1", scheduler=THEIRS, memory="13Gi"))
        double.muted.discard("pods")

    async with running(Token(double.url)) as scheduler:
        double.fault("GET", "pods", fills_most_of_it)
        for number in range(5):
            double.put("pods", wire_pod(f"p{number}", memory="1Gi"))
        await until(lambda: scheduler.cluster.assumed_count == 5)
        go_on.set()
        await until(lambda: double.patches and agrees(scheduler, double))
        await until(lambda: scheduler.queue.counts()["unschedulable"] == 2)
    assert sum(bool(double.node_of(f"p{number}")) for number in range(5)) == 3


@pytest.mark.parametrize(
    "fault",
    [answers(503, "ServiceUnavailable", "busy"), says(b"{broken"), says(b"[" * 100_000)],
    ids=["503", "broken JSON", "nesting without end"],
)
async def test_a_node_that_cannot_be_read_is_not_bound_to_until_it_can(double, fault, caplog):
    async with running(Token(double.url)) as scheduler:
        double.fault("GET", "pods", fault)
        double.put("pods", wire_pod("p", memory="1Gi"))
        await until(lambda: count(scheduler, "fresh_reads", result="failed") == 1)
        assert double.requests["POST", "pods/binding"] == 0
        await until(lambda: double.node_of("p") and agrees(scheduler, double))
        await until(lambda: double.events)
    assert [event["reason"] for event in double.events] == ["Scheduled"]
    assert sum("cannot be read before binding" in record.message for record in caplog.records) == 1


async def test_a_pod_deleted_after_the_read_was_made_is_not_brought_back_by_its_answer(double):
    async with running(Token(double.url)) as scheduler:

        async def answers_late(request):
            node = request.query["fieldSelector"].split(",")[0].partition("=")[2]
            version, items = (
                double.version,
                [p for p in double.objects["pods"].values() if p["spec"].get("nodeName") == node],
            )
            body = json.dumps({"metadata": {"resourceVersion": str(version)}, "items": items})
            double.delete("pods", f"theirs-{node}")
            await until(lambda: scheduler.cluster.placed(f"uid-default-theirs-{node}") is None)
            return web.Response(text=body, content_type="application/json")

        double.fault("GET", "pods", answers_late)
        double.put("pods", wire_pod("p", memory="1Gi"))
        await until(lambda: double.node_of("p") and agrees(scheduler, double))
        assert scheduler.cluster.pod_count == 2


async def test_a_pod_deleted_while_its_node_is_read_is_not_bound(double):
    async def deleted_meanwhile(_):
        double.delete("pods", "p")
        await until(lambda: not len(scheduler.queue))

    async with running(Token(double.url)) as scheduler:
        double.fault("GET", "pods", deleted_meanwhile)
        double.put("pods", wire_pod("p", memory="1Gi"))
        await until(lambda: count(scheduler, "fresh_reads", result="done") == 1)
        await until(lambda: agrees(scheduler, double))
    assert double.requests["POST", "pods/binding"] == 0


async def takes_half_before_a_bind(double):
    """Another scheduler takes half of the only node just before our look at it. Returns ours when p is bound."""
    double.delete("nodes", "node-2", "")
    double.delete("pods", "theirs-node-1")

    async def takes_half(_):
        double.muted.add("pods")
        double.put("pods", wire_pod("filler", node="node-1", scheduler=THEIRS, memory="8Gi"))
        double.muted.discard("pods")

    async with running(Token(double.url), shared_node_guard="always") as scheduler:
        double.fault("GET", "pods", takes_half)
        double.put("pods", wire_pod("p", memory="1Gi"))
        await until(lambda: double.node_of("p"))
        await until(lambda: agrees(scheduler, double))
        await until(lambda: [event for event in double.events if event["reason"] == "Scheduled"])
        assert scheduler.queue.rescued_by_flush == 0
        return scheduler


async def test_a_pod_that_would_take_what_another_scheduler_is_about_to_waits_a_moment_and_is_bound_once(double):
    scheduler = await takes_half_before_a_bind(double)
    (refused, _) = double.events
    assert refused["reason"] == "FailedScheduling"
    assert refused["note"] == "0/1 nodes are available: 1 node(s) are being filled by another scheduler."
    assert count(scheduler, "conflicts_avoided") == 1
    # It was turned back once, and not tried again before the time was over.
    assert double.requests["GET", "pods"] == 3
    assert double.requests["POST", "pods/binding"] == 1


async def test_never_leaves_nothing_to_another_scheduler(double):
    double.delete("nodes", "node-2", "")
    async with running(Token(double.url), shared_node_guard="never") as scheduler:
        double.put("pods", wire_pod("filler", node="node-1", scheduler=THEIRS, memory="8Gi"))
        double.put("pods", wire_pod("next", scheduler=THEIRS, memory="8Gi"))
        await until(lambda: scheduler.cluster.placed("uid-default-filler"))
        double.put("pods", wire_pod("p", memory="8Gi"))
        await until(lambda: double.node_of("p") and agrees(scheduler, double))
        assert not scheduler.cluster.foreign.active
