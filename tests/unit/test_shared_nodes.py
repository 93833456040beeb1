"""Which nodes count as filled by another scheduler too."""

import json
from typing import Any

import msgspec
import pytest
from turb_kub.loop.ingest import PodSink
from turb_kub.loop.metrics import Metrics
from turb_kub.objects.pod import decode_pod
from turb_kub.queue.queue import SchedulingQueue

from tests.unit.objects import cluster_of, node, pod, wire_pod

THEIRS = "default-scheduler"


def raw(item):
    return msgspec.Raw(json.dumps(item).encode())


def owned(kind, *, controller=True):
    return {"ownerReferences": [{"kind": kind, "name": "x", "controller": controller}]}


def decoded(meta, scheduler=THEIRS):
    wire = wire_pod("p", node="a", scheduler=scheduler)
    wire["metadata"].update(meta)
    return decode_pod(json.dumps(wire))


@pytest.mark.parametrize(
    ("meta", "counts"),
    [
        ({}, True),
        (owned("ReplicaSet"), True),
        (owned("DaemonSet", controller=False), True),
        (owned("DaemonSet"), False),
        ({"annotations": {"kubernetes.io/config.mirror": "abc"}}, False),
        ({"annotations": None, "ownerReferences": None}, True),
    ],
)
def test_pods_of_another_scheduler_count_unless_every_node_has_them(meta, counts):
    cluster = cluster_of(node("a"), pods=(decoded(meta),))
    assert cluster.foreign.on("a") == int(counts)


def test_unbound_pods_of_another_scheduler_wait_until_they_are_bound_gated_finished_or_gone():
    cluster = cluster_of(node("a"))
    sink = PodSink(cluster, SchedulingQueue(cluster), Metrics("turb-kub"), lambda: 0.0)
    ends: dict[str, dict[str, Any]] = {
        "bound": {"node": "a"},
        "gated": {"spec": {"schedulingGates": [{"name": "g"}]}},
        "failed": {"status": {"phase": "Failed"}},
        "leaving": {"deleting": True},
    }
    for name in (*ends, "deleted", "unlisted", "stays"):
        sink.changed(raw(wire_pod(name, scheduler=THEIRS)))
    sink.changed(raw(wire_pod("ours")))
    assert len(cluster.foreign.waiting) == 7
    for name, how in ends.items():
        sink.changed(raw(wire_pod(name, scheduler=THEIRS, **how)))
    sink.deleted(raw(wire_pod("deleted", scheduler=THEIRS)))
    assert cluster.foreign.waiting == {"uid-default-unlisted", "uid-default-stays"}
    sink.replace([raw(wire_pod("stays", scheduler=THEIRS))])
    assert cluster.foreign.waiting == {"uid-default-stays"}


def test_pods_of_ours_do_not_count():
    assert cluster_of(node("a"), pods=(pod("p", node="a"),)).foreign.on("a") == 0


def test_pods_that_move_finish_or_go_count_no_more():
    cluster = cluster_of(node("a"), node("b"))
    for name in ("p", "q"):
        cluster.set_pod(pod(name, node="a", scheduler=THEIRS))
        cluster.set_pod(pod(name, node="a", scheduler=THEIRS))
    assert cluster.foreign.on("a") == 2
    cluster.set_pod(pod("q", node="b", scheduler=THEIRS))
    assert (cluster.foreign.on("a"), cluster.foreign.on("b")) == (1, 1)
    cluster.set_pod(pod("p", node="a", scheduler=THEIRS, status={"phase": "Succeeded"}))
    cluster.remove_pod("uid-default-q")
    assert (cluster.foreign.on("a"), cluster.foreign.on("b")) == (0, 0)
