"""The cache's comparison with a fresh list: it mends what was lost, and takes nothing late for lost."""

import asyncio
import json

import pytest
from turb_kub.objects.pod import decode_pod

from tests.api.double import answers
from tests.api.running import Token, running, until
from tests.unit.objects import wire_node, wire_pod

THEIRS = "default-scheduler"


@pytest.fixture
async def double(double, monkeypatch):
    monkeypatch.setattr("turb_kub.loop.self_check.LOOK_EVERY", 0.005)
    double.put("pods", wire_pod("p", node="node-1", memory="1Gi"))
    return double


def differences(scheduler, kind):
    return scheduler.metrics.registry.get_sample_value("turb_kub_cache_differences_total", {"kind": kind}) or 0


def checks(scheduler, result):
    return scheduler.metrics.registry.get_sample_value("turb_kub_cache_checks_total", {"result": result}) or 0


def lose(double, kind, item):
    """Change an object without a watch hearing of it, now or when it is taken up again."""
    double.replace_unseen(kind, item)


def lose_deletion(double, kind, name):
    double.version += 1
    del double.objects[kind]["" if kind == "nodes" else "default", name]


def move_on(double):
    """Have both watches told of something later."""
    double.put("nodes", wire_node("later"))
    double.put("pods", wire_pod("later", scheduler=THEIRS))


async def checked(scheduler, double):
    """Run a check while the watches move on."""
    check = asyncio.create_task(scheduler.self_check.check())
    while not check.done():
        move_on(double)
        await asyncio.sleep(0.01)
    await check


async def test_a_pod_whose_deletion_was_lost_is_forgotten(double, caplog):
    async with running(Token(double.url)) as scheduler:
        lose_deletion(double, "pods", "p")
        await checked(scheduler, double)
        assert scheduler.cluster.placed("uid-default-p") is None
        assert scheduler.cluster.check() == []
        assert differences(scheduler, "pod") == 1
    lines = [record.message for record in caplog.records if "differed" in record.message]
    assert lines == ["the cache differed from the truth and was mended: 1 pod: uid-default-p is gone"]


async def test_a_waiting_pod_that_fits_once_the_lost_deletion_is_found_is_placed(double):
    double.delete("nodes", "node-2", "")
    double.put("pods", wire_pod("big", node="node-1", memory="15Gi"))
    async with running(Token(double.url)) as scheduler:
        double.put("pods", wire_pod("waits", memory="2Gi"))
        await until(lambda: double.patches)
        lose_deletion(double, "pods", "big")
        check = asyncio.create_task(scheduler.self_check.check())
        await until(lambda: double.requests["GET", "pods"] == 2)
        double.put("pods", wire_pod("later", scheduler=THEIRS))
        double.put("nodes", wire_node("node-1", labels={"later": "yes"}))
        await check
        await until(lambda: double.node_of("waits") == "node-1")
        assert scheduler.queue.rescued_by_flush == 0


@pytest.mark.parametrize(
    "lost",
    [
        wire_pod("new", node="node-2", memory="3Gi", scheduler=THEIRS),
        wire_pod("p", node="node-1", memory="3Gi"),
        wire_pod("p", node="node-1", memory="1Gi", status={"phase": "Succeeded"}),
        wire_pod("new", spec={"nodeSelector": {"no": "where"}}),
    ],
    ids=["a binding", "a resize", "an end", "a new pod of ours"],
)
async def test_a_state_of_a_pod_that_was_lost_is_taken(double, lost):
    async with running(Token(double.url)) as scheduler:
        lose(double, "pods", lost)
        await checked(scheduler, double)
        assert differences(scheduler, "pod") == 1
        await checked(scheduler, double)
        assert differences(scheduler, "pod") == 1
        held = {pod.name: pod.memory for name in ("node-1", "node-2") for pod in scheduler.cluster.pods_on(name)}
        truth = {
            state.name: state.memory
            for state in (decode_pod(json.dumps(item)) for item in double.objects["pods"].values())
            if state.node_name and not state.terminal
        }
        assert held == truth
        assert ("new" in [pod.name for pod in scheduler.queue.pods()]) == (
            lost["metadata"]["name"] == "new" and "nodeName" not in lost["spec"]
        )


async def test_a_node_whose_change_addition_or_deletion_was_lost_is_mended(double):
    async with running(Token(double.url)) as scheduler:
        lose(double, "nodes", wire_node("node-1", memory="1Gi"))
        lose(double, "nodes", wire_node("node-3"))
        lose_deletion(double, "nodes", "node-2")
        await checked(scheduler, double)
        assert differences(scheduler, "node") == 3
        assert {node.name for _, node in scheduler.cluster.each_node()} == {"node-1", "node-3", "later"}
        changed = scheduler.cluster.node("node-1")
        assert changed is not None
        assert dict(changed.allocatable)["memory"] == 2**30


async def test_what_is_only_late_is_no_difference(double):
    async with running(Token(double.url)) as scheduler:
        double.muted |= {"pods", "nodes"}
        double.put("pods", wire_pod("late", node="node-2", memory="1Gi"))
        double.put("nodes", wire_node("node-1", memory="8Gi"))
        double.delete("pods", "p")
        double.delete("nodes", "node-2", "")
        check = asyncio.create_task(scheduler.self_check.check())
        await until(lambda: double.requests["GET", "nodes"] == 2)
        double.muted.clear()
        for kind in ("nodes", "pods"):
            # The watch is taken up where it ended, and tells what was late.
            double.close_watches(kind)
        await until(lambda: scheduler.cluster.slot("node-2") is None)
        move_on(double)
        await check
        assert checks(scheduler, "done") == 1
        assert differences(scheduler, "pod") == differences(scheduler, "node") == 0
        assert scheduler.cluster.placed("uid-default-late") is not None


async def test_a_busy_cluster_that_lost_nothing_shows_no_difference(double):
    async with running(Token(double.url)) as scheduler:
        done = asyncio.Event()

        async def be_busy():
            number = 0
            while not done.is_set():
                number += 1
                double.put("pods", wire_pod(f"ours-{number}", memory="1Mi"))
                double.put("pods", wire_pod(f"theirs-{number}", node="node-2", memory="1Mi", scheduler=THEIRS))
                double.put("nodes", wire_node("node-2", labels={"number": str(number)}))
                if number > 20:
                    double.delete("pods", f"theirs-{number - 20}")
                    double.put("pods", double.pod(f"ours-{number - 20}") | {"status": {"phase": "Succeeded"}})
                if number > 40:
                    double.delete("pods", f"ours-{number - 40}")
                await asyncio.sleep(0)

        busy = asyncio.create_task(be_busy())
        for _ in range(5):
            await scheduler.self_check.check()
        done.set()
        await busy
        assert checks(scheduler, "done") == 5
        for kind in ("pod", "node", "sums"):
            assert differences(scheduler, kind) == 0


async def test_a_watch_that_does_not_get_there_leaves_the_check_undone_and_all_as_it_is(double, monkeypatch):
    monkeypatch.setattr("turb_kub.loop.self_check.CATCH_UP_WITHIN", 0.05)
    async with running(Token(double.url)) as scheduler:
        lose_deletion(double, "pods", "p")
        await scheduler.self_check.check()
        assert checks(scheduler, "given up") == 1
        assert differences(scheduler, "pod") == 0
        assert scheduler.cluster.placed("uid-default-p") is not None


async def test_wrong_sums_are_counted_and_set_right(double):
    async with running(Token(double.url)) as scheduler:
        cluster = scheduler.cluster
        slot = cluster.slot("node-1")
        cluster.requested[slot, 1] += 7
        cluster.headroom[slot] -= 7
        cluster.load[slot] += 7
        assert cluster.check()
        await scheduler.self_check.check()
        assert differences(scheduler, "sums") == 3
        assert cluster.check() == []
        assert cluster.requested[slot, 1] == cluster.load[slot] == 2**30


async def test_a_malformed_object_is_left_to_whoever_set_it_aside(double):
    async with running(Token(double.url)) as scheduler:
        double.put("pods", wire_pod("odd", node="node-1", memory="lots"))
        double.put("nodes", wire_node("node-2", memory="lots"))
        await checked(scheduler, double)
        assert differences(scheduler, "pod") == differences(scheduler, "node") == 0


async def test_a_check_whose_list_fails_changes_nothing_and_is_made_again(double, monkeypatch, caplog):
    monkeypatch.setattr("turb_kub.loop.self_check.CHECK_EVERY", 0.05)
    async with running(Token(double.url)) as scheduler:
        double.fault("GET", "nodes", answers(503, "ServiceUnavailable", "busy"))
        await until(lambda: checks(scheduler, "failed") == 1)
        assert scheduler.cluster.node_count == 2
        await until(lambda: checks(scheduler, "done"))
    assert sum("could not be compared" in record.message for record in caplog.records) == 1
