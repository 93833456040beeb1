"""Which nodes count as filled by another scheduler too, and what room is left to it, and how long."""

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from turb_kub.cluster.cluster import Cluster
from turb_kub.decision.decide import decide
from turb_kub.decision.filters.shared_nodes import FILTER
from turb_kub.decision.policy import LeastRequestedMemory
from turb_kub.loop.arrivals import LONGEST, Arrivals
from turb_kub.loop.ingest import PodSink
from turb_kub.loop.metrics import Metrics
from turb_kub.loop.timers import Timers
from turb_kub.objects.pod import decode_pod
from turb_kub.queue.queue import SchedulingQueue

from tests.unit.objects import cluster_of, node, pod, raw, wire_pod

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
    assert cluster.others_on("a") == int(counts)


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
    assert cluster_of(node("a"), pods=(pod("p", node="a"),)).others_on("a") == 0


def test_pods_that_move_finish_or_go_count_no_more():
    cluster = cluster_of(node("a"), node("b"))
    for name in ("p", "q"):
        cluster.set_pod(pod(name, node="a", scheduler=THEIRS))
        cluster.set_pod(pod(name, node="a", scheduler=THEIRS))
    assert cluster.others_on("a") == 2
    cluster.set_pod(pod("q", node="b", scheduler=THEIRS))
    assert (cluster.others_on("a"), cluster.others_on("b")) == (1, 1)
    cluster.set_pod(pod("p", node="a", scheduler=THEIRS, status={"phase": "Succeeded"}))
    cluster.remove_pod("uid-default-q")
    assert (cluster.others_on("a"), cluster.others_on("b")) == (0, 0)


# What is left to other schedulers

SHORTEST_WINDOW = 1.0
UNSCHEDULABLE = {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}
FULL = "0/1 nodes are available: 1 node(s) are being filled by another scheduler."


class Parts:
    """A sink past its first list, on a clock that the test sets."""

    def __init__(self, *nodes, listed=()):
        self.now = 1000.0
        self.cluster = cluster_of(*(nodes or (node("a"),)))
        self.queue = SchedulingQueue(self.cluster)
        self.sink = PodSink(self.cluster, self.queue, Metrics("turb-kub"), lambda: self.now)
        self.timers = Timers()
        self.arrivals = Arrivals(self.cluster, lambda: self.now, self.timers)
        self.sink.arrived, self.sink.at_work = self.arrivals.note, self.arrivals.note_work
        self.sink.replace([raw(item) for item in listed])

    def theirs(self, name, **how):
        self.sink.changed(raw(wire_pod(name, scheduler=THEIRS, **how)))

    def gone(self, name):
        self.sink.deleted(raw(wire_pod(name, scheduler=THEIRS)))

    def decide(self, **how):
        return decide(self.cluster, pod("next", **how), LeastRequestedMemory())

    def park(self, **how):
        """A pod of ours is decided in vain."""
        self.queue.add(pod("next", **how), self.now)
        waits = self.queue.pop(self.now)
        assert waits is not None
        decision = self.decide(**how)
        assert decision.node is None
        self.queue.unschedulable(waits.uid, decision.filters, self.now)

    def woken(self):
        return self.queue.pop(self.now) is not None

    def wait(self, seconds):
        self.now += seconds
        self.timers.run(self.now)


def test_as_much_as_another_scheduler_has_just_taken_is_left_to_it_once_more():
    parts = Parts()
    parts.theirs("x", node="a", memory="5Gi")
    assert parts.decide(memory="6Gi").node == "a"
    decision = parts.decide(memory="7Gi")
    assert decision.message == FULL
    assert decision.nodes[0].refusals == ("11264Mi free < 7168Mi asked + 5120Mi left to another scheduler",)


def test_a_place_is_left_for_each_pod_that_has_just_come():
    parts = Parts(node("a", pods="5"))
    for name in ("x", "y"):
        parts.theirs(name, node="a")
    assert parts.decide().node == "a"
    parts.cluster.assume(pod("ours", node="a"))
    assert parts.decide().nodes[0].refusals == ("2 pods free < 1 asked + 2 left to another scheduler",)


def test_room_under_the_ceiling_is_left_too():
    parts = Parts(node("a", annotations={"turb-kub.io/node-mem-limit-mb": "8192"}))
    parts.theirs("x", node="a", memory="3Gi")
    assert parts.decide(memory="2Gi").node == "a"
    assert parts.decide(memory="3Gi").message == FULL


def test_what_ours_does_not_ask_for_is_not_short():
    parts = Parts()
    parts.theirs("x", node="a", memory="15Gi")
    assert parts.decide(cpu="1").node == "a"


def test_a_resource_that_a_node_brings_later_is_counted_from_then_on():
    parts = Parts()
    parts.theirs("x", node="a", memory="1Gi", **{"example.com/gpu": "1"})
    parts.cluster.set_node(node("b", **{"example.com/gpu": "4"}))
    parts.theirs("y", node="b", **{"example.com/gpu": "2"})
    assert parts.decide(**{"example.com/gpu": "1"}).node is None
    parts.wait(SHORTEST_WINDOW)
    assert parts.decide(**{"example.com/gpu": "2"}).node == "b"


@pytest.mark.parametrize(
    ("binds", "window"),
    [([], 1.0), ([0.1], 1.0), ([0.5, 0.2], 1.5), ([60.0], 10.0), ([60.0] + [0.1] * 64, 1.0)],
)
def test_it_is_left_for_three_times_as_long_as_the_slowest_of_the_last_binds_took(binds, window):
    parts = Parts()
    for seconds in binds:
        parts.arrivals.bind_took(seconds)
    parts.theirs("x", node="a", memory="9Gi")
    assert parts.timers.due_in(parts.now) == window
    parts.park(memory="6Gi")
    parts.wait(window - 0.01)
    assert not parts.woken()
    parts.wait(0.01)
    assert parts.woken()
    assert parts.decide(memory="6Gi").node == "a"
    assert parts.timers.due_in(parts.now) is None


@pytest.mark.parametrize(
    "how",
    [
        {"scheduler": "turb-kub"},
        {"spec": {"schedulerName": "turb-kub"}},
        {"status": {"phase": "Succeeded"}},
    ],
)
def test_pods_that_take_nothing_from_us_are_no_arrivals(how):
    parts = Parts()
    parts.sink.changed(raw(wire_pod("x", node="a", memory="15Gi", **{"scheduler": THEIRS} | how)))
    assert not parts.cluster.foreign.active


def test_static_and_daemon_pods_are_no_arrivals():
    parts = Parts()
    daemon = wire_pod("d", node="a", scheduler=THEIRS)
    daemon["metadata"].update(owned("DaemonSet"))
    parts.sink.changed(raw(daemon))
    assert not parts.cluster.foreign.active


def test_what_the_first_list_holds_has_not_just_come_but_what_a_later_one_brings_has():
    before = wire_pod("x", node="a", scheduler=THEIRS, memory="9Gi")
    parts = Parts(listed=[before, wire_pod("y", scheduler=THEIRS)])
    assert not parts.cluster.foreign.active
    parts.sink.replace([raw(before), raw(wire_pod("z", node="a", scheduler=THEIRS, memory="1Gi"))])
    assert parts.decide(memory="5Gi").node == "a"
    assert parts.decide(memory="6Gi").message == FULL


def test_a_pod_that_is_told_of_again_has_not_come_again():
    parts = Parts()
    for _ in range(2):
        parts.theirs("x", node="a", memory="5Gi")
        parts.wait(0.9)
    assert not parts.cluster.foreign.arrived(1, 1).any()


def test_a_node_that_goes_takes_along_what_came_to_it():
    parts = Parts()
    parts.theirs("x", node="a", memory="9Gi")
    parts.cluster.remove_node("a")
    parts.cluster.set_node(node("b", memory="8Gi"))
    assert parts.cluster.slot("b") == 0
    assert parts.decide(memory="8Gi").node == "b"
    parts.wait(SHORTEST_WINDOW)
    assert parts.decide(memory="8Gi").node == "b"
    assert not parts.cluster.foreign.arrived(1, 1).any()


def test_room_is_left_for_the_largest_pod_that_its_scheduler_has_not_tried_yet():
    parts = Parts()
    parts.theirs("small", memory="1Gi")
    parts.theirs("large", memory="3Gi")
    parts.theirs("too large", memory="64Gi")
    # Eight: of so many to come, rounded up, all may come here.
    assert parts.decide(memory="4Gi").node == "a"
    assert parts.decide(memory="5Gi").nodes[0].refusals == (
        "16384Mi free < 5120Mi asked + 12288Mi left to another scheduler",
    )


def test_nodes_share_what_is_to_come():
    parts = Parts(*(node(name, pods="10") for name in "abcd"))
    for number in range(16):
        parts.theirs(f"x{number}")
    parts.cluster.set_pod(pod("o", node="a", spec={"containers": []}))
    for number in range(5):
        parts.cluster.assume(pod(f"ours-{number}", node="a"))
    # Four for each node: a has four places left, the others ten.
    decision = parts.decide(spec={"nodeSelector": {"kubernetes.io/hostname": "a"}})
    assert decision.nodes[0].refusals == ("4 pods free < 1 asked + 4 left to another scheduler",)
    assert parts.decide().feasible == 3


@pytest.mark.parametrize(
    "how",
    [
        {"taints": [{"key": "ours", "value": "", "effect": "NoSchedule"}]},
        {"labels": {"disk": "slow"}},
        {"unschedulable": False, "memory": "1Gi"},
    ],
    ids=["taint", "label", "size"],
)
def test_nodes_where_what_waits_cannot_go_keep_their_room(how):
    parts = Parts(node("a", pods="1", **how))
    parts.theirs("x", memory="2Gi", spec={"nodeSelector": {"disk": "fast"}} if "labels" in how else {})
    tolerant = {"tolerations": [{"operator": "Exists"}]}
    assert parts.decide(spec=tolerant, memory="1Gi").node == "a"


@pytest.mark.parametrize(
    "end",
    [
        lambda parts: parts.theirs("x", memory="16Gi", status=UNSCHEDULABLE),
        lambda parts: parts.gone("x"),
        lambda parts: parts.theirs("x", memory="16Gi", spec={"schedulingGates": [{"name": "g"}]}),
        lambda parts: parts.wait(SHORTEST_WINDOW),
        lambda parts: parts.sink.replace([raw(wire_pod("next", memory="1Gi"))]),
    ],
    ids=["tried", "deleted", "gated", "nothing seen of its scheduler", "unlisted"],
)
def test_room_for_a_pod_that_waits_is_given_back_and_ours_is_woken(end):
    parts = Parts()
    parts.theirs("x", memory="16Gi")
    parts.park(memory="1Gi")
    assert not parts.woken()
    end(parts)
    assert parts.decide(memory="1Gi").node == "a"
    assert parts.woken()


def test_a_backlog_counts_for_as_long_as_anything_is_seen_of_its_scheduler():
    parts = Parts(node("a", pods="2"), node("b", pods="100", labels={"zone": "z"}))
    here = {"nodeSelector": {"kubernetes.io/hostname": "a"}}
    for number in range(6):
        parts.theirs(f"x{number}", spec=here)
    for number in range(20):
        parts.wait(0.5)
        parts.theirs(f"y{number}", node="b")
    assert parts.decide(spec=here).node is None
    parts.wait(SHORTEST_WINDOW)
    assert parts.decide(spec=here).node == "a"


def test_what_waits_for_a_scheduler_of_which_nothing_is_seen_keeps_nothing_from_ours():
    parts = Parts(node("a", pods="5"), listed=[wire_pod("x", scheduler="absent")])
    for _ in range(3):
        parts.theirs("y", node="a")
    assert parts.decide().node == "a"


def test_of_a_scheduler_whose_pace_is_known_no_more_is_expected_than_it_places_in_the_time():
    parts = Parts(node("a", pods="10000"), node("b", pods="9", labels={"zone": "z"}))
    for number in range(1000):
        parts.theirs(f"x{number}")
    only_b = {"nodeSelector": {"zone": "z"}}
    assert parts.decide(spec=only_b).node is None
    for number in range(8 * 7):
        parts.theirs(f"x{number}", node="a")
        parts.wait(0.125)
    # Eight a second, and two nodes.
    assert parts.decide(spec=only_b).node == "b"
    for number in range(5):
        parts.cluster.assume(pod(f"ours-{number}", node="b"))
    assert parts.decide(spec=only_b).nodes[0].refusals == ("4 pods free < 1 asked + 4 left to another scheduler",)


def test_one_more_node_for_what_is_to_come_lets_ours_onto_the_others():
    parts = Parts(node("a", pods="4"))
    for number in range(4):
        parts.theirs(f"x{number}")
    parts.park(spec={"nodeSelector": {"kubernetes.io/hostname": "a"}})
    assert not parts.woken()
    parts.sink.notify()
    parts.cluster.set_node(node("b"))
    assert parts.woken()


def test_where_nothing_came_lately_the_filter_looks_at_nothing_else():
    quiet = SimpleNamespace(foreign=SimpleNamespace(active=False))
    assert FILTER.refused(cast(Cluster, quiet), pod("p")) is None


NAMES = st.sampled_from(["x", "y", "z"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("bound"), NAMES, st.sampled_from(["a", "b"]), st.sampled_from(["1Gi", "4Gi", "9Gi"])),
        st.tuples(st.just("waits"), NAMES, st.booleans(), st.sampled_from(["1Gi", "9Gi"])),
        st.tuples(st.just("gone"), NAMES, st.none(), st.none()),
        st.tuples(st.just("time"), st.none(), st.floats(0.01, 2.0), st.none()),
        st.tuples(st.just("slow"), st.none(), st.floats(0.01, 60.0), st.none()),
        st.tuples(st.just("node"), st.sampled_from(["a", "b"]), st.booleans(), st.none()),
        st.tuples(st.just("ours"), st.none(), st.none(), st.sampled_from(["2Gi", "8Gi"])),
    ),
    max_size=25,
)


@given(STEPS)
def test_no_room_is_lost_for_longer_than_the_longest_window(steps):
    parts = Parts(node("a"), node("b"))
    for what, name, value, memory in steps:
        match what:
            case "bound":
                parts.theirs(name, node=value, memory=memory)
            case "waits":
                parts.theirs(name, memory=memory, status=UNSCHEDULABLE if value else {})
            case "gone":
                parts.gone(name)
            case "time":
                parts.wait(value)
            case "slow":
                parts.arrivals.bind_took(value)
            case "node":
                parts.cluster.set_node(node(name)) if value else parts.cluster.remove_node(name)
            case "ours":
                if not len(parts.queue) and parts.decide(memory=memory).node is None:
                    parts.park(memory=memory)
    assert parts.cluster.check() == []
    parts.wait(LONGEST)
    assert parts.timers.due_in(parts.now) is None
    assert not parts.cluster.foreign.active
    assert FILTER.refused(parts.cluster, pod("p")) is None
    for column in range(4):
        assert not parts.cluster.foreign.arrived(column, parts.cluster.size).any()
    for waits in parts.queue.pods():
        fits = decide(parts.cluster, waits, LeastRequestedMemory()).node is not None
        assert parts.woken() == fits
