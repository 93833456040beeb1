"""What the watches say, put where it belongs; what is stale, malformed or not ours, put nowhere."""

import json
import logging

import msgspec
import pytest
from turb_kub.cluster.accounting import Accounting
from turb_kub.cluster.cluster import Cluster
from turb_kub.loop.ingest import NodeSink, PodSink
from turb_kub.loop.metrics import Metrics
from turb_kub.queue.queue import SchedulingQueue

from tests.unit.objects import node, pod, wire_node, wire_pod


class Parts:
    def __init__(self):
        self.cluster = Cluster(Accounting())
        self.queue = SchedulingQueue(self.cluster)
        self.metrics = Metrics("turb-kub")
        self.pods = PodSink(self.cluster, self.queue, self.metrics, lambda: 0.0)
        self.nodes = NodeSink(self.cluster, self.metrics)
        for name in ("a", "b"):
            self.cluster.set_node(node(name))

    def set_aside(self, kind):
        return self.metrics.registry.get_sample_value("turb_kub_objects_set_aside_total", {"kind": kind})


@pytest.fixture
def parts():
    return Parts()


def raw(item):
    return msgspec.Raw(json.dumps(item).encode())


def test_a_bound_pod_goes_to_the_cluster_and_one_of_ours_that_waits_to_the_queue(parts):
    parts.pods.changed(raw(wire_pod("bound", node="a", scheduler="default-scheduler")))
    parts.pods.changed(raw(wire_pod("ours")))
    parts.pods.changed(raw(wire_pod("theirs", scheduler="default-scheduler")))
    parts.pods.changed(raw(wire_pod("finished", status={"phase": "Failed"})))
    parts.pods.changed(raw(wire_pod("leaving", deleting=True)))
    assert [one.name for one in parts.cluster.pods_on("a")] == ["bound"]
    assert [one.name for one in parts.queue.pods()] == ["ours"]


def test_an_unbound_state_that_comes_after_we_read_the_pod_as_bound_is_stale(parts):
    waiting, bound = wire_pod("p", version=900), wire_pod("p", version=910, node="a", memory="1Gi")
    parts.pods.changed(raw(waiting))
    parts.pods.take(pod("p", version=910, node="a", memory="1Gi"))
    parts.pods.changed(raw(waiting | {"metadata": waiting["metadata"] | {"resourceVersion": "905"}}))
    assert len(parts.queue) == 0
    assert len(parts.cluster.pods_on("a")) == 1
    parts.pods.changed(raw(bound))
    assert parts.cluster.check() == []


def test_an_older_bound_state_does_not_bring_back_what_was_freed(parts):
    parts.pods.take(pod("p", version=910, node="a", memory="1Gi"))
    parts.pods.changed(raw(wire_pod("p", version=905, node="a", memory="4Gi")))
    assert parts.cluster.pods_on("a")[0].memory == 2**30


def test_a_pod_that_is_no_longer_ours_leaves_the_queue(parts):
    parts.pods.changed(raw(wire_pod("p")))
    parts.pods.changed(raw(wire_pod("p", deleting=True)))
    assert len(parts.queue) == 0


def test_the_deletion_of_an_older_pod_of_the_same_name_does_not_touch_the_new_one(parts):
    parts.pods.changed(raw(wire_pod("p", uid="new", node="a")))
    parts.pods.deleted(raw(wire_pod("p", uid="old", node="a")))
    assert parts.cluster.placed("new") is not None


def test_a_late_state_of_an_older_pod_does_not_touch_the_new_one_of_its_name_that_a_read_has_found(parts):
    parts.pods.changed(raw(wire_pod("p", uid="old", node="a", version=900)))
    parts.pods.take(pod("p", uid="new", node="b", version=920))
    parts.pods.changed(raw(wire_pod("p", uid="old", node="a", version=910, deleting=True)))
    assert parts.cluster.placed_uids() == {"new"}


def test_a_list_is_the_whole_truth(parts):
    parts.pods.changed(raw(wire_pod("waits")))
    parts.pods.changed(raw(wire_pod("bound", node="a")))
    parts.pods.replace([raw(wire_pod("other", node="b"))])
    parts.nodes.replace([raw(wire_node("b"))])
    assert len(parts.queue) == 0
    assert parts.cluster.placed_uids() == {"uid-default-other"}
    assert [one.name for _, one in parts.cluster.each_node()] == ["b"]


def test_a_malformed_object_is_logged_once_counted_once_and_keeps_its_last_good_state(parts, caplog):
    parts.nodes.changed(raw(wire_node("a", memory="8Gi")))
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            parts.nodes.changed(raw(wire_node("a", memory="lots")))
    assert len(caplog.records) == 1
    assert "node a is set aside until it is mended: 'lots' is not a quantity" in caplog.text
    assert parts.set_aside("node") == 1
    kept = parts.cluster.node("a")
    assert kept is not None
    assert dict(kept.allocatable)["memory"] == 8 * 2**30
    parts.nodes.changed(raw(wire_node("a")))
    parts.nodes.changed(raw(wire_node("a", memory="lots")))
    assert parts.set_aside("node") == 2


@pytest.mark.parametrize(
    "item",
    [
        b"[]",
        b"{}",
        b'{"metadata": 3}',
        b'{"metadata": {"name": "p", "uid": "u"}, "spec": 7}',
        b'{"metadata": {"name": "p", "uid": "u"}, "spec": {"priority": "high"}}',
        b'{"metadata": {"name": "p", "uid": "u"}, "spec": {"priority": 99999999999999999999999999}}',
        json.dumps(wire_pod("p", memory="-1Gi")).encode(),
        b"[" * 100_000,
    ],
)
def test_no_object_whatever_is_in_it_raises(parts, item):
    for sink in (parts.pods, parts.nodes):
        sink.changed(msgspec.Raw(item))
        sink.deleted(msgspec.Raw(item))
        sink.replace([msgspec.Raw(item)])
    assert len(parts.queue) == 0


def test_a_limit_that_is_not_understood_is_told_once(parts, caplog):
    odd = wire_node("a", annotations={"turb-kub.io/node-mem-limit-mb": "plenty"})
    with caplog.at_level(logging.WARNING):
        parts.nodes.changed(raw(odd))
        parts.nodes.changed(raw(odd))
    assert len(caplog.records) == 1
    assert "node a: annotation turb-kub.io/node-mem-limit-mb: 'plenty' is not a whole number of MiB" in caplog.text
