"""Pods that the kubelet turned away: which they are, and how long their node is avoided for others like them."""

from typing import Any, cast

import pytest
from turb_kub.decision.decide import decide
from turb_kub.decision.policy import LeastRequestedMemory
from turb_kub.loop.ingest import PodSink
from turb_kub.loop.metrics import Metrics
from turb_kub.loop.rejections import Rejections
from turb_kub.loop.timers import Timers
from turb_kub.queue.queue import SchedulingQueue

from tests.unit.objects import cluster_of, node, pod

ZONE = {"nodeSelector": {"zone": "z"}}


def failed(reason, message="Pod was rejected: no"):
    return {"phase": "Failed", "reason": reason, "message": message}


class Notes:
    def __init__(self):
        self.told = []

    def rejected(self, pod, note):
        self.told.append((pod.name, note))


class Parts:
    """A sink whose pods get turned away, on a clock that the test sets."""

    def __init__(self):
        self.now = 1000.0
        self.cluster = cluster_of(node("a"), node("b", labels={"zone": "z"}))
        self.queue = SchedulingQueue(self.cluster)
        self.metrics = Metrics("turb-kub")
        self.notes = Notes()
        self.sink = PodSink(self.cluster, self.queue, self.metrics, lambda: self.now)
        self.timers = Timers()
        self.rejections = Rejections(self.cluster, cast(Any, self.notes), self.metrics, lambda: self.now, self.timers)
        self.sink.rejected = self.rejections.note

    def turn_away(self, name, on="a", reason="OutOfmemory", version=20, **how):
        """A pod is bound and then turned away."""
        self.sink.take(pod(name, node=on, version=10, **how))
        self.sink.take(pod(name, node=on, version=version, status=failed(reason), **how))

    def counted(self, reason="OutOfmemory"):
        return self.metrics.registry.get_sample_value("turb_kub_kubelet_rejections_total", {"reason": reason})

    def decide(self, name="next", **how):
        return decide(self.cluster, pod(name, **how), LeastRequestedMemory())

    def avoided_for(self):
        """How long the nodes are avoided from now on, by letting the time pass until they are not."""
        began = self.now
        while self.cluster.cooling:
            self.now += self.timers.due_in(self.now) or 0.0
            self.timers.run(self.now)
        return self.now - began


@pytest.fixture
def parts():
    return Parts()


@pytest.mark.parametrize(
    ("status", "label"),
    [
        (failed("OutOfmemory", ""), "OutOfmemory"),
        (failed("NodeAffinity", "Pod Predicate NodeAffinity failed"), "NodeAffinity"),
        (failed("OutOfexample.com/gpu"), "OutOfExtendedResources"),
        (failed("Evicted"), "Evicted"),
        (failed("NewInAnotherVersion"), "Other"),
        (failed(None), "Other"),
    ],
)
def test_what_the_kubelets_admission_writes_is_a_rejection_under_a_bounded_label(status, label):
    rejection = pod("p", node="a", status=status).rejection
    assert rejection is not None
    assert rejection.label == label


@pytest.mark.parametrize(
    "status",
    [
        {"phase": "Failed"},
        failed("Evicted", "The node was low on resource: memory."),
        failed("DeadlineExceeded", "Pod was active on the node longer than the specified deadline"),
        failed("NodeLost", ""),
        failed("OutOf", ""),
        {"phase": "Running", "reason": "OutOfmemory", "message": "Pod was rejected: odd"},
    ],
)
def test_a_pod_that_came_to_another_end_was_not_rejected(status):
    assert pod("p", node="a", status=status).rejection is None


def test_a_rejection_is_counted_and_told_with_node_reason_and_time(parts):
    parts.turn_away("p", memory="1Gi")
    assert parts.counted() == 1
    ((name, note),) = parts.notes.told
    assert name == "p"
    assert note == (
        "a turned the pod away: OutOfmemory (Pod was rejected: no). The node is avoided for pods like it for 10 s."
    )


def test_a_rejection_counts_once_however_often_it_is_seen(parts):
    parts.turn_away("p")
    for version in (20, 21):
        parts.sink.take(pod("p", node="a", version=version, status=failed("OutOfmemory")))
    assert parts.counted() == 1


def test_a_rejection_that_a_read_found_before_the_watch_counts_once(parts):
    parts.sink.take(pod("p", node="a", version=10))
    parts.sink.read(pod("p", node="a", version=20, status=failed("OutOfmemory")))
    parts.sink.take(pod("p", node="a", version=15))
    assert parts.cluster.pods_on("a") == []
    parts.sink.take(pod("p", node="a", version=20, status=failed("OutOfmemory")))
    assert parts.counted() == 1


def test_a_pod_that_had_failed_before_it_was_first_seen_is_no_news(parts):
    parts.sink.take(pod("p", node="a", status=failed("OutOfmemory")))
    assert parts.counted() is None
    assert not parts.cluster.cooling


def test_a_pod_of_another_scheduler_is_none_of_our_business(parts):
    parts.turn_away("p", scheduler="default-scheduler")
    assert parts.counted() is None
    assert not parts.cluster.cooling


def test_a_pod_turned_away_before_its_binding_was_confirmed_counts(parts):
    waiting = pod("p", version=10)
    parts.sink.take(waiting)
    parts.sink.take(pod("p", node="a", version=20, status=failed("OutOfpods")))
    assert parts.counted("OutOfpods") == 1
    assert len(parts.queue) == 0


def test_the_node_is_avoided_for_pods_of_the_same_shape_only(parts):
    parts.turn_away("p", memory="1Gi")
    assert parts.decide(memory="1Gi").node == "b"
    assert parts.decide(memory="2Gi").node == "a"
    assert parts.decide(memory="1Gi", spec={"tolerations": [{"key": "k", "operator": "Exists"}]}).node == "a"
    port = {"containers": [{"name": "app", "ports": [{"hostPort": 80}], "resources": {"requests": {"memory": "1Gi"}}}]}
    assert parts.decide(spec=port).node == "a"


def test_constraints_belong_to_the_shape_of_a_rejected_pod(parts):
    parts.turn_away("p", on="b", spec=ZONE)
    decision = parts.decide(spec=ZONE)
    assert decision.node is None
    assert decision.message == (
        "0/2 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, "
        "1 node(s) turned away a pod like this one lately."
    )
    assert "its kubelet turned away a pod like this one lately: OutOfmemory" in {
        line for report in decision.nodes for line in report.refusals
    }


def test_the_time_doubles_with_each_repetition_up_to_five_minutes(parts):
    times = []
    for number in range(7):
        parts.turn_away(f"p{number}")
        times.append(parts.avoided_for())
    assert times == [10, 20, 40, 80, 160, 300, 300]


def test_the_time_begins_anew_when_all_went_well_for_five_minutes(parts):
    for number in range(2):
        parts.turn_away(f"p{number}")
        parts.avoided_for()
    while (due := parts.timers.due_in(parts.now)) is not None:
        parts.now += due
        parts.timers.run(parts.now)
    parts.turn_away("later")
    assert parts.avoided_for() == 10


def test_pods_bound_before_the_cool_down_do_not_make_it_longer(parts):
    parts.turn_away("first")
    parts.now += 4
    parts.turn_away("second")
    assert parts.notes.told[-1][1].endswith("for 6 s.")
    assert parts.avoided_for() == 6
    assert parts.counted() == 2


def test_a_waiting_pod_is_woken_when_the_node_comes_back(parts):
    parts.turn_away("p", on="b", spec=ZONE)
    parts.queue.add(pod("next", spec=ZONE), parts.now)
    parts.queue.pop(parts.now)
    parts.queue.unschedulable("uid-default-next", parts.decide(spec=ZONE).filters, parts.now)
    parts.now += 9.9
    parts.timers.run(parts.now)
    assert parts.queue.pop(parts.now) is None
    parts.now += 0.2
    parts.timers.run(parts.now)
    assert parts.queue.pop(parts.now).name == "next"


def test_a_cool_down_of_a_node_that_is_gone_harms_nothing(parts):
    parts.turn_away("p")
    parts.cluster.remove_node("a")
    assert parts.decide().node == "b"
    assert parts.avoided_for() == 10
