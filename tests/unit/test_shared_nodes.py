"""Which nodes count as filled by another scheduler too."""

import json

import pytest
from turb_kub.objects.pod import decode_pod

from tests.unit.objects import cluster_of, node, pod, wire_pod

THEIRS = "default-scheduler"


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
