"""What the watches say, put where it belongs; what is stale, malformed or not ours, put nowhere."""

import json
import logging
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from turb_kub.cluster.accounting import Accounting
from turb_kub.cluster.cluster import Cluster
from turb_kub.decision.decide import decide
from turb_kub.decision.policy import LeastRequestedMemory
from turb_kub.loop.ingest import NodeSink, PodSink
from turb_kub.loop.metrics import Metrics
from turb_kub.objects.node import decode_node
from turb_kub.queue.queue import SchedulingQueue

from tests.unit.objects import node, pod, raw, wire_node, wire_pod


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


# Malformed objects


def malformed(item):
    """The same object with a quantity, or for a node its allocatable resources, that nobody understands."""
    broken = json.loads(json.dumps(item))
    if "containers" in broken["spec"]:
        broken["spec"]["containers"] = [{"name": "app", "resources": {"requests": {"memory": "lots"}}}]
    else:
        broken["status"]["allocatable"] = {"memory": "lots"}
    return broken


def chosen(parts, **asked):
    return decide(parts.cluster, pod("wanted", **asked), LeastRequestedMemory()).node


def test_a_waiting_pod_that_turns_malformed_waits_no_more_until_it_is_mended(parts):
    parts.pods.changed(raw(wire_pod("p")))
    parts.pods.changed(raw(malformed(wire_pod("p"))))
    assert len(parts.queue) == 0
    parts.pods.changed(raw(wire_pod("p")))
    assert [one.name for one in parts.queue.pods()] == ["p"]


def test_a_held_pod_that_turns_malformed_counts_as_it_was_known(parts):
    held = wire_pod("p", node="a", memory="1Gi")
    parts.pods.changed(raw(held))
    parts.pods.changed(raw(malformed(held)))
    assert [one.memory for one in parts.cluster.pods_on("a")] == [2**30]
    assert parts.cluster.why_closed("a") == []
    parts.pods.replace([raw(malformed(held))])
    assert len(parts.cluster.pods_on("a")) == 1
    parts.pods.deleted(raw(malformed(held)))
    assert parts.cluster.pods_on("a") == []


def test_an_assumed_pod_is_confirmed_by_a_malformed_state_that_is_bound(parts):
    parts.pods.changed(raw(wire_pod("p", memory="1Gi")))
    parts.cluster.assume(pod("p", memory="1Gi", node="a"))
    parts.pods.changed(raw(malformed(wire_pod("p"))))
    assert parts.cluster.is_assumed("uid-default-p")
    assert "uid-default-p" in parts.queue
    parts.pods.changed(raw(malformed(wire_pod("p", node="a"))))
    assert not parts.cluster.is_assumed("uid-default-p")
    assert [one.memory for one in parts.cluster.pods_on("a")] == [2**30]
    assert len(parts.queue) == 0


@pytest.mark.parametrize("end", ["mended", "deleted", "left out of a list", "finished"])
def test_a_node_that_holds_a_pod_that_was_never_understood_takes_no_more_until_that_is_over(parts, end):
    held = wire_pod("p", node="a")
    parts.pods.changed(raw(malformed(held)))
    assert chosen(parts) == "b"
    match end:
        case "mended":
            parts.pods.changed(raw(held))
            parts.cluster.remove_pod("uid-default-p")
        case "deleted":
            parts.pods.deleted(raw(malformed(held)))
        case "left out of a list":
            parts.pods.replace([])
        case "finished":
            parts.pods.changed(raw(malformed(held) | {"status": {"phase": "Failed"}}))
    assert chosen(parts) == "a"


def test_a_node_that_turns_malformed_takes_no_more_until_it_is_mended_and_still_counts_its_pods(parts):
    parts.pods.changed(raw(wire_pod("p", node="a", memory="1Gi")))
    parts.nodes.changed(raw(malformed(wire_node("a"))))
    assert chosen(parts, memory="1Mi") == "b"
    parts.cluster.remove_node("b")
    refused = decide(parts.cluster, pod("wanted"), LeastRequestedMemory())
    assert refused.message == "0/1 nodes are available: 1 node(s) were malformed or held a malformed pod."
    assert refused.nodes[0].refusals == ("the node is malformed",)
    parts.nodes.changed(raw(wire_node("a")))
    assert chosen(parts, memory="16Gi") is None
    assert chosen(parts, memory="15Gi") == "a"


def test_a_list_with_an_item_that_nobody_can_name_frees_no_room(parts):
    parts.pods.changed(raw(wire_pod("p", node="a", memory="1Gi")))
    parts.pods.replace([msgspec.Raw(b'{"metadata": {"uid": 7, "name": null}}')])
    assert len(parts.cluster.pods_on("a")) == 1


def test_two_pods_that_change_uids_both_count(parts):
    for name, uid, home in (("p", "1", "a"), ("q", "2", "b"), ("p", "2", "a"), ("q", "1", "b")):
        parts.pods.changed(raw(wire_pod(name, uid=uid, node=home, memory="1Gi")))
    assert [one.uid for one in parts.cluster.pods_on("a")] == ["2"]
    assert [one.uid for one in parts.cluster.pods_on("b")] == ["1"]
    assert parts.cluster.check() == []


def paths_of(item, path=()):
    """Every place in an object."""
    if path:
        yield path
    pairs = item.items() if isinstance(item, dict) else enumerate(item) if isinstance(item, list) else ()
    for key, child in pairs:
        yield from paths_of(child, (*path, key))


FULL_POD = wire_pod(
    "p",
    node="a",
    memory="1Gi",
    spec={
        "priority": 1,
        "nodeSelector": {"zone": "z"},
        "tolerations": [{"key": "k", "operator": "Exists"}],
        "schedulingGates": [{"name": "g"}],
        "overhead": {"cpu": "1m"},
        "initContainers": [{"name": "i", "restartPolicy": "Always", "ports": [{"hostPort": 80, "protocol": "TCP"}]}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "z", "operator": "Gt", "values": ["1"]}]}]
                }
            }
        },
    },
    status={"conditions": [{"type": "PodScheduled", "status": "False", "reason": "r", "message": "m"}]},
)
FULL_NODE = wire_node(
    "a", taints=[{"key": "k", "effect": "NoSchedule"}], annotations={"turb-kub.io/node-mem-limit-mb": "9"}
)
ODD: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, 0, -1, 2**31, 2**63, 10**30, 1.5, 1e308, "", "x", "\x00", "é" * 300, "9" * 5000, "x" * 10**5, [], {}]
) | st.recursive(st.none() | st.text(max_size=3), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))


@settings(max_examples=100, deadline=None)
@given(
    which=st.sampled_from([FULL_POD, FULL_NODE]).flatmap(
        lambda item: st.tuples(st.just(item), st.sampled_from(list(paths_of(item))))
    ),
    odd=ODD,
    bound=st.booleans(),
)
def test_no_field_whatever_is_in_it_raises_or_gives_room_away(which, odd, bound):
    parts = Parts()
    (item, path), broken = which, json.loads(json.dumps(which[0]))
    if not bound:
        broken["spec"].pop("nodeName", None)
    at = broken
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = odd
    sink = parts.pods if item is FULL_POD else parts.nodes
    sink.changed(raw(broken))
    sink.changed(raw(item))
    sink.changed(raw(broken))
    sink.replace([raw(item), raw(broken)])
    sink.deleted(raw(broken))
    sink.replace([raw(item)])
    assert parts.cluster.check() == []
    if item is FULL_POD:
        assert [one.name for one in parts.cluster.pods_on("a")] == ["p"]
        assert parts.cluster.why_closed("a") == []
    else:
        assert parts.cluster.node("a") == decode_node(json.dumps(FULL_NODE))
