"""Room that was made for a pod is left to it: by whom, for whom, and until when."""

import json

import msgspec
import pytest
from turb_kub.decision.decide import decide
from turb_kub.decision.explain import explain
from turb_kub.decision.policy import LeastRequestedMemory
from turb_kub.loop.ingest import PodSink
from turb_kub.loop.metrics import Metrics
from turb_kub.objects.pod import decode_pod
from turb_kub.queue.queue import SchedulingQueue

from tests.unit.objects import cluster_of, node, pod, wire_pod

MI = 2**20
POLICY = LeastRequestedMemory()
THEIRS = "default-scheduler"
WEB = {"app": "web"}
PORT_80 = {"containers": [{"name": "c", "image": "x", "ports": [{"containerPort": 80, "hostPort": 80}]}]}


def nominated(name, on="a", *, priority=0, spec=None, labels=None, **how):
    """A pod of another scheduler that waits for room on a node."""
    spec = {"priority": priority, **(spec or {})}
    made = wire_pod(name, scheduler=THEIRS, spec=spec, status={"nominatedNodeName": on}, **how)
    made["metadata"]["labels"] = labels or {}
    return decoded(made)


def decoded(wire):
    return decode_pod(json.dumps(wire))


def labelled(name, labels, spec=None, **how):
    made = wire_pod(name, spec=spec, **how)
    made["metadata"]["labels"] = labels
    return decoded(made)


def cluster_with(*waiting, nodes=None, pods=(), **accounting):
    cluster = cluster_of(*(nodes or (node("a", memory="2Gi"),)), pods=pods, **accounting)
    for one in waiting:
        cluster.nominate(one)
    return cluster


def message(cluster, wanted):
    return decide(cluster, wanted, POLICY).message


def affinity(kind, topology="kubernetes.io/hostname"):
    term = {"labelSelector": {"matchLabels": WEB}, "topologyKey": topology}
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


@pytest.mark.parametrize(
    ("theirs", "ours", "yields"),
    [(0, 0, True), (1, 0, True), (0, 1, False), (-5, 0, False)],
)
def test_room_is_left_to_pods_of_equal_or_higher_priority(theirs, ours, yields):
    cluster = cluster_with(nominated("n", priority=theirs, memory="1500Mi"))
    wanted = pod("p", memory="1Gi", spec={"priority": ours})
    assert (decide(cluster, wanted, POLICY).node is None) == yields


@pytest.mark.parametrize(
    ("waiting", "nodes", "wanted", "reason"),
    [
        (nominated("n", memory="1500Mi"), None, pod("p", memory="1Gi"), "Insufficient memory"),
        (nominated("n"), (node("a", pods="1"),), pod("p"), "Too many pods"),
        (
            nominated("n", spec=PORT_80),
            None,
            pod("p", spec=PORT_80),
            "node(s) didn't have free ports for the requested pod ports",
        ),
        (
            nominated("n", labels=WEB),
            None,
            pod("p", spec=affinity("podAntiAffinity")),
            "node(s) didn't match pod anti-affinity rules",
        ),
        (
            nominated("n", spec=affinity("podAntiAffinity")),
            None,
            labelled("p", WEB),
            "node(s) didn't satisfy existing pods anti-affinity rules",
        ),
    ],
    ids=["memory", "pod slots", "host ports", "anti-affinity of the pod", "anti-affinity of the nominated one"],
)
def test_what_the_nominated_pod_would_take_is_taken(waiting, nodes, wanted, reason):
    assert decide(cluster_with(nodes=nodes), wanted, POLICY).node == "a"
    assert message(cluster_with(waiting, nodes=nodes), wanted) == f"0/1 nodes are available: 1 {reason}."


def test_the_ceiling_counts_nominated_pods():
    cluster = cluster_with(nominated("n", memory="900Mi"), nodes=(node("a"),), node_memory_limit=1024 * MI)
    assert message(cluster, pod("p", memory="200Mi")) == (
        "0/1 nodes are available: 1 node(s) exceeded NODE_MEM_LIMIT_MB."
    )


def test_a_nominated_pod_is_no_company_yet():
    cluster = cluster_with(nominated("n", labels=WEB), nodes=(node("a"), node("b")))
    assert message(cluster, pod("p", spec=affinity("podAffinity"))) == (
        "0/2 nodes are available: 2 node(s) didn't match pod affinity rules."
    )


def test_pods_nominated_to_other_nodes_do_not_count():
    zone = {"labels": {"zone": "z"}}
    nodes = (node("a", **zone), node("b", **zone))
    cluster = cluster_with(nominated("n", labels=WEB), nodes=nodes)
    assert decide(cluster, pod("p", spec=affinity("podAntiAffinity", "zone")), POLICY).node == "b"


def test_the_pod_itself_may_have_the_room_that_was_made_for_it():
    waits = decoded(wire_pod("p", memory="1500Mi", status={"nominatedNodeName": "a"}))
    assert decide(cluster_with(waits), waits, POLICY).node == "a"


def test_a_nominated_pod_that_is_placed_by_now_counts_once():
    cluster = cluster_with(nominated("n", memory="1Gi"))
    cluster.assume(pod("n", node="a", memory="1Gi", scheduler=THEIRS))
    assert decide(cluster, pod("p", memory="1Gi"), POLICY).node == "a"


def test_a_decision_leaves_the_cluster_as_it_was():
    cluster = cluster_with(nominated("n", memory="1Gi", spec=affinity("podAntiAffinity")))
    cluster.changes.take()
    before = (cluster.pod_count, cluster.requested.copy(), cluster.load.copy())
    decide(cluster, labelled("p", WEB, memory="1Mi"), POLICY)
    assert cluster.pod_count == before[0]
    assert (cluster.requested == before[1]).all()
    assert (cluster.load == before[2]).all()
    assert cluster.check() == []
    assert not cluster.changes


def test_an_explanation_names_the_pod_and_the_numbers():
    cluster = cluster_with(nominated("n", memory="1500Mi"))
    (report,) = explain(cluster, pod("p", memory="1Gi"), POLICY).nodes
    assert report.refusals == (
        "1500Mi requested + 1024Mi asked > 2048Mi allocatable, short by 476Mi (with default/n nominated to the node)",
    )


# As the watch tells it


class Parts:
    def __init__(self):
        self.cluster = cluster_of(node("a", memory="2Gi"))
        self.queue = SchedulingQueue(self.cluster)
        self.sink = PodSink(self.cluster, self.queue, Metrics("turb-kub"), lambda: 0.0)

    def hear(self, name="n", on="a", version=1, **how):
        status = {"nominatedNodeName": on} | how.pop("status", {})
        made = wire_pod(name, scheduler=THEIRS, memory="1500Mi", version=version, status=status, **how)
        self.sink.changed(self.raw(made))

    @staticmethod
    def raw(item):
        return msgspec.Raw(json.dumps(item).encode())

    def fits(self):
        return decide(self.cluster, pod("p", memory="1Gi"), POLICY).node is not None


@pytest.mark.parametrize(
    "then",
    [
        lambda parts: parts.hear(version=2, on=""),
        lambda parts: parts.hear(version=2, on="elsewhere"),
        lambda parts: parts.hear(version=2, deleting=True),
        lambda parts: parts.hear(version=2, status={"phase": "Failed"}),
        lambda parts: parts.hear(version=2, node="elsewhere"),
        lambda parts: parts.sink.deleted(parts.raw(wire_pod("n", scheduler=THEIRS))),
        lambda parts: parts.sink.replace([]),
        lambda parts: parts.hear(uid="made anew", version=2, on=""),
    ],
    ids=["cleared", "moved", "terminating", "failed", "bound elsewhere", "deleted", "not in a list", "made anew"],
)
def test_room_that_is_no_longer_reserved_wakes_the_pod_that_waits_for_it(then):
    parts = Parts()
    parts.hear()
    parts.queue.add(pod("p", memory="1Gi"), 0.0)
    parts.queue.pop(0.0)
    decision = decide(parts.cluster, pod("p", memory="1Gi"), POLICY)
    assert decision.node is None
    parts.queue.unschedulable("uid-default-p", decision.filters, 0.0)
    assert parts.queue.pop(100.0) is None
    then(parts)
    assert parts.fits()
    woken = parts.queue.pop(100.0)
    assert woken is not None
    assert woken.name == "p"


def test_a_pod_bound_where_it_was_nominated_counts_once():
    parts = Parts()
    parts.hear()
    parts.hear(version=2, node="a")
    assert not parts.cluster.nominated
    assert [one.name for one in parts.cluster.pods_on("a")] == ["n"]


def test_an_unbound_pod_of_others_that_is_not_nominated_is_left_out():
    parts = Parts()
    parts.hear(on="")
    assert not parts.cluster.nominated
    assert parts.fits()


def test_the_spec_of_a_nominated_pod_is_not_kept():
    parts = Parts()
    parts.hear()
    kept = parts.cluster.nominated.get("uid-default-n")
    assert kept is not None
    assert kept.raw_spec is None
