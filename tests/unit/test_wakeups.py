"""Which change of the cluster gets which waiting pod moving, and what that costs."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from turb_kub.decision.decide import decide
from turb_kub.decision.fits import fits
from turb_kub.decision.policy import LeastRequestedMemory
from turb_kub.queue.queue import LOOKS_A_DECISION, SchedulingQueue
from turb_kub.queue.signature import asks
from turb_kub.queue.wakeups import could_help

from tests.unit.objects import cluster_of, node, pod
from tests.unit.storage import decoded, using, wire_claim, wire_volume

ZONE = {"nodeSelector": {"zone": "z"}}
PORT_80 = {"containers": [{"name": "c", "image": "x", "ports": [{"containerPort": 80, "hostPort": 80}]}]}
NOT_KNOWN = {"nothingWeKnow": {"a": "b"}}


class Loop:
    """The scheduling loop without its wire: whatever is due is decided, and bound at once. Counts the decisions."""

    def __init__(self, *nodes, pods=(), **accounting):
        self.cluster = cluster_of(*nodes, pods=pods, **accounting)
        self.queue = SchedulingQueue(self.cluster)
        self.now = 0.0
        self.decided = []

    def add(self, *pods):
        for one in pods:
            self.queue.add(one, self.now)

    def run(self):
        """Decide until nothing is due; return the names of those decided, in order, and of those placed."""
        decided, placed = [], []
        while (found := self.queue.pop(self.now)) is not None:
            decided.append(found.name)
            decision = decide(self.cluster, found, LeastRequestedMemory())
            if decision.node is None:
                self.queue.unschedulable(found.uid, decision.filters, self.now)
                continue
            placed.append(found.name)
            self.cluster.assume(pod(found.name, node=decision.node, memory=f"{found.memory}"))
            self.queue.assumed(found.uid)
            self.queue.placed(found.uid)
        return decided, placed


FULL = node("full", memory="1Gi"), pod("big", node="full", memory="1Gi")


@pytest.mark.parametrize(
    ("asked", "change", "helps"),
    [
        ({"memory": "1Gi"}, lambda c: c.set_node(node("new")), True),
        ({"memory": "1Gi"}, lambda c: c.set_node(node("new", ready="False")), False),
        ({"memory": "1Gi"}, lambda c: c.set_node(node("new", unschedulable=True)), False),
        ({"memory": "1Gi"}, lambda c: c.set_node(node("new", memory="1Mi")), False),
        ({"memory": "1Gi"}, lambda c: c.set_node(node("full", memory="2Gi")), True),
        ({"memory": "1Gi"}, lambda c: c.set_node(node("full", memory="1Gi", labels={"a": "b"})), False),
        ({"memory": "1Gi"}, lambda c: c.remove_pod("uid-default-big"), True),
        ({"memory": "2Gi"}, lambda c: c.remove_pod("uid-default-big"), False),
        ({"memory": "1Gi"}, lambda c: c.set_pod(pod("big", node="full", status={"phase": "Succeeded"})), True),
        ({"memory": "1Gi"}, lambda c: c.set_pod(pod("big", node="full", memory="1Mi")), False),
        ({"memory": "1000Mi"}, lambda c: c.set_pod(pod("big", node="full", memory="1Mi")), True),
        ({"memory": "1Gi"}, lambda c: c.set_pod(pod("big", node="gone", memory="1Gi")), True),
        ({"memory": "1Gi"}, lambda c: c.set_pod(pod("other", node="full", memory="1Mi")), False),
        ({"memory": "1Gi"}, lambda c: c.remove_node("full"), False),
        ({"spec": ZONE}, lambda c: c.remove_pod("uid-default-big"), False),
        ({"spec": ZONE}, lambda c: c.set_node(node("full", memory="1Gi", labels={"zone": "z"})), True),
        ({"spec": ZONE}, lambda c: c.set_node(node("full", memory="1Gi", labels={"zone": "y"})), False),
        ({"spec": PORT_80}, lambda c: c.set_node(node("new")), True),
        ({"spec": PORT_80}, lambda c: c.set_node(node("full", memory="1Gi", labels={"a": "b"})), False),
        ({"spec": NOT_KNOWN}, lambda c: c.set_node(node("new")), False),
    ],
)
def test_a_pod_is_tried_again_when_and_only_when_a_change_helps_it(asked, change, helps):
    holder = pod("holder", node="full", spec=PORT_80)
    loop = Loop(FULL[0], pods=(FULL[1], holder))
    loop.add(pod("p", **asked))
    assert loop.run() == (["p"], [])
    change(loop.cluster)
    assert loop.run() == ((["p"], ["p"]) if helps else ([], []))


def test_a_taken_port_that_is_released_helps():
    loop = Loop(node("a"), pods=(pod("holder", node="a", spec=PORT_80),))
    loop.add(pod("p", spec=PORT_80), pod("q", spec=ZONE))
    loop.run()
    loop.cluster.remove_pod("uid-default-holder")
    assert loop.run() == (["p"], ["p"])


def test_a_ceiling_that_is_raised_helps_those_who_fit_under_it():
    loop = Loop(node("a", memory="8Gi"), node_memory_limit=2**30)
    loop.add(pod("fits", memory="2Gi"), pod("does-not", memory="4Gi"))
    loop.run()
    loop.cluster.set_node(node("a", memory="8Gi", annotations={"turb-kub.io/node-mem-limit-mb": "3072"}))
    assert loop.run() == (["fits"], ["fits"])


def test_ten_thousand_pods_that_ask_the_same_cost_one_decision_for_each_that_is_placed_and_none_where_nothing_helps():
    loop = Loop(FULL[0], pods=(FULL[1],))
    loop.add(*(pod(f"p{number}", memory="100Mi") for number in range(10_000)))
    loop.run()
    for flap in range(50):  # a full node that comes and goes helps nobody
        loop.cluster.set_node(node("full", memory="1Gi", ready="False" if flap % 2 else "True"))
        assert loop.run() == ([], [])
    loop.cluster.set_node(node("new", memory="1Gi"))
    first_ten = [f"p{number}" for number in range(10)]
    assert loop.run() == (first_ten, first_ten)
    loop.cluster.remove_pod("uid-default-p3")
    assert loop.run() == (["p10"], ["p10"])
    assert loop.queue.counts()["unschedulable"] == 10_000 - 11
    assert loop.queue.rescued_by_flush == 0


@pytest.fixture
def looks(monkeypatch):
    """What waiting pods were looked at for, one entry a look."""
    found = []

    def counted(*asked):
        found.append(asked)
        return fits(*asked)

    monkeypatch.setattr("turb_kub.queue.wakeups.fits", counted)
    return found


def test_an_event_costs_a_look_at_each_signature_and_not_at_each_pod(looks):
    loop = Loop(FULL[0], pods=(FULL[1],))
    loop.add(*(pod(f"p{number}", memory=f"{900 + number % 3}Mi") for number in range(300)))
    loop.run()
    looks.clear()
    loop.cluster.set_node(node("full", memory="1Gi", labels={"a": "b"}))
    loop.run()
    assert len(looks) == 3


def test_a_pod_whose_claim_appears_is_tried_again_once_although_it_still_fits_nowhere():
    """It must not go on to say that there is no claim."""
    loop = Loop(FULL[0], pods=(FULL[1],))
    loop.add(pod("p", memory="2Gi", spec=using("data")))
    assert loop.run()[0] == ["p"]
    loop.cluster.set_node(node("full", memory="1Gi", labels={"a": "b"}))
    assert loop.run()[0] == []
    for one in (wire_volume("pv"), wire_claim("data", volume="pv")):
        loop.cluster.volumes.put(decoded(one))
        loop.cluster.changes.everywhere = True  # what the sink of storage notes
    assert loop.run()[0] == ["p"]
    loop.cluster.set_node(node("full", memory="1Gi"))
    assert loop.run()[0] == []


def test_a_pod_that_is_placed_costs_no_look_at_those_that_lack_room(looks):
    loop = Loop(FULL[0], node("roomy"), pods=(FULL[1],))
    loop.add(*(pod(f"p{number}", memory=f"{900 + number}Gi") for number in range(50)))
    loop.run()
    looks.clear()
    loop.add(*(pod(f"q{number}", memory="1Mi") for number in range(5)))
    assert len(loop.run()[1]) == 5
    assert not looks


def test_a_burst_of_pods_does_not_wait_for_a_look_at_thousands_that_ask_different_things(looks):
    loop = Loop(node("roomy"))
    waiting, burst = 1000, 100
    # Each one that is placed is what all of them look for, but there are no zones.
    loop.add(
        *(pod(f"p{number}", labels={"n": f"{number}"}, spec=near("podAffinity", "x")) for number in range(waiting))
    )
    loop.run()
    assert loop.queue.counts()["unschedulable"] == waiting
    looks.clear()
    loop.add(*(pod(f"q{number}", labels={"app": "x"}) for number in range(burst)))
    assert len(loop.run()[1]) == burst
    assert waiting <= len(looks) <= 2 * waiting + burst * LOOKS_A_DECISION


def test_the_first_of_a_signature_is_the_one_of_highest_priority_then_age():
    loop = Loop(FULL[0], pods=(FULL[1],))
    for name, priority in (("old", 0), ("young", 0), ("urgent", 9)):
        loop.now += 1
        loop.add(pod(name, memory="600Mi", spec={"priority": priority}))
    loop.run()
    loop.now += 100
    order = []
    for number in range(3):
        loop.cluster.set_node(node(f"new-{number}", memory="600Mi"))
        order += loop.run()[1]
    assert order == ["urgent", "old", "young"]


def test_as_long_as_the_first_of_a_signature_is_woken_and_not_decided_no_other_is():
    loop = Loop(FULL[0], pods=(FULL[1],))
    loop.add(*(pod(f"p{number}", memory="600Mi") for number in range(3)))
    loop.run()
    for size in ("1Gi", "1100Mi"):
        loop.cluster.set_node(node("new", memory=size))
        loop.queue.due_in(loop.now)
    assert loop.queue.counts()["unschedulable"] == 2
    assert loop.run() == (["p0"], ["p0"])


@pytest.mark.parametrize(
    "leave",
    [
        lambda queue, uid: queue.remove(uid),
        lambda queue, uid: queue.retry(uid, 0.0),
        lambda queue, uid: queue.add(pod("p0", memory="20Gi"), 0.0),
    ],
    ids=["deleted", "failed", "changed"],
)
def test_where_the_first_of_a_signature_drops_out_after_it_was_woken_the_next_takes_its_place(leave):
    loop = Loop(FULL[0], pods=(FULL[1],))
    loop.add(*(pod(f"p{number}", memory="600Mi") for number in range(2)))
    loop.run()
    loop.cluster.set_node(node("new", memory="1Gi"))
    assert loop.queue.due_in(loop.now) == 0
    leave(loop.queue, "uid-default-p0")
    assert "p1" in loop.run()[1]


def test_what_changes_between_a_decision_and_its_verdict_is_not_lost():
    loop = Loop(FULL[0], pods=(FULL[1],))
    loop.add(pod("p", memory="600Mi"))
    found = loop.queue.pop(0)
    assert found is not None
    decision = decide(loop.cluster, found, LeastRequestedMemory())
    loop.cluster.set_node(node("new"))
    assert loop.queue.pop(0) is None
    loop.queue.unschedulable(found.uid, decision.filters, 0)
    assert loop.run() == (["p"], ["p"])


def test_a_verdict_on_what_a_pod_no_longer_asks_does_not_park_it():
    loop = Loop(FULL[0], node("free", memory="600Mi"), pods=(FULL[1],))
    loop.add(pod("p", memory="900Mi"))
    found = loop.queue.pop(0)
    assert found is not None
    loop.add(pod("p", memory="600Mi"))
    loop.queue.unschedulable(found.uid, frozenset({"NodeResourcesFit"}), 0)
    assert loop.run() == (["p"], ["p"])


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({"memory": "1Gi"}, {"memory": "1024Mi"}, True),
        ({"memory": "1Gi"}, {"memory": "2Gi"}, False),
        ({}, {"status": {"conditions": [{"type": "PodScheduled", "status": "False"}]}}, True),
        ({}, {"namespace": "other"}, False),
        ({}, {"spec": ZONE}, False),
        ({}, {"spec": PORT_80}, False),
        ({}, {"spec": {"priority": 1}}, False),
        ({}, {"spec": {"schedulingGates": [{"name": "g"}]}}, False),
        ({}, {"version": 5, "uid": "u"}, True),
    ],
)
def test_pods_have_one_signature_when_they_ask_the_same(one, other, same):
    assert (asks(pod("p", **one)) == asks(pod("q", **other))) is same


def near(kind, app, key="zone"):
    """Required inter-pod affinity or anti-affinity to the pods of an app."""
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key}
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def spread(taints, domains=None):
    """Apps of the name "x" no more than one apart between zones."""
    constraint = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "x"}},
        "nodeTaintsPolicy": taints,
    }
    return {"topologySpreadConstraints": [constraint | ({"minDomains": domains} if domains else {})]}


NODES = st.sampled_from("abc")
SHAPES = [
    pod(f"{kind}-{size}", memory=size, spec=spec)
    for size in ("100Mi", "700Mi")
    for kind, spec in (
        ("plain", {}),
        ("zone", ZONE),
        ("tolerant", {"tolerations": [{"operator": "Exists"}]}),
        ("gpu", {"overhead": {"example.com/gpu": "1"}}),
    )
] + [
    pod("port", spec=PORT_80),
    pod("nothing"),
    pod("x", labels={"app": "x"}),
    pod("near", spec=near("podAffinity", "x")),
    pod("near-itself", labels={"app": "x"}, spec=near("podAffinity", "x")),
    pod("apart", spec=near("podAntiAffinity", "x")),
    pod("even", labels={"app": "x"}, spec=spread("Ignore")),
    pod("even-honouring-taints", labels={"app": "x"}, spec=spread("Honor")),
    pod("even-over-two", labels={"app": "x"}, spec=spread("Ignore", domains=2)),
]


class AnyChange(RuleBasedStateMachine):
    """Whatever happens to the cluster: the pods that it helps are those that `could_help` names."""

    def __init__(self):
        super().__init__()
        self.cluster = cluster_of(node_memory_limit=900 * 2**20, default_request=64 * 2**20)
        self.cluster.changes.take()
        self.fitted = {one.uid: False for one in SHAPES}

    @rule(
        name=NODES,
        memory=st.sampled_from(["200Mi", "1Gi"]),
        slots=st.integers(0, 3),
        zone=st.sampled_from("yz"),
        ready=st.sampled_from(["True", "True", "True", "False", None]),
        cordoned=st.sampled_from([False, False, True]),
        taints=st.sampled_from([[], [], [{"key": "k", "value": "v", "effect": "NoSchedule"}]]),
        limit=st.sampled_from([{}, {"turb-kub.io/node-mem-limit-mb": "2000"}]),
        gpus=st.sampled_from([{}, {"example.com/gpu": "1"}]),
    )
    def node_comes_or_changes(self, name, memory, slots, zone, ready, cordoned, taints, limit, gpus):
        how = {"labels": {"zone": zone}, "taints": taints, "annotations": limit, "unschedulable": cordoned, **gpus}
        self.cluster.set_node(node(name, memory=memory, pods=str(slots), ready=ready, **how))

    @rule(name=NODES)
    def node_goes(self, name):
        self.cluster.remove_node(name)

    @rule(
        uid=st.sampled_from("pq"),
        name=NODES,
        memory=st.sampled_from([{}, {"memory": "1Mi"}, {"memory": "600Mi"}]),
        spec=st.sampled_from([{}, PORT_80, {"overhead": {"example.com/gpu": "1"}}, near("podAntiAffinity", "x")]),
        labels=st.sampled_from([{}, {"app": "x"}, {"app": "y"}]),
        deleting=st.sampled_from([False, False, True]),
        phase=st.sampled_from(["Running", "Running", "Succeeded"]),
        assumed=st.booleans(),
    )
    def pod_comes_or_changes(self, uid, name, memory, spec, labels, deleting, phase, assumed):
        put = self.cluster.assume if assumed and phase == "Running" else self.cluster.set_pod
        put(
            pod(uid, uid=uid, node=name, spec=spec, status={"phase": phase}, **({} if "containers" in spec else memory))
        )

    @rule(uid=st.sampled_from("pq"))
    def pod_goes(self, uid):
        self.cluster.remove_pod(uid)

    @invariant()
    def exactly_what_fits_now_and_did_not_before_is_helped(self):
        changes = self.cluster.changes.take()
        for one in SHAPES:
            before = self.fitted[one.uid]
            now = decide(self.cluster, one, LeastRequestedMemory()).node is not None
            assert fits(self.cluster, one) == now
            if not before:
                assert could_help(self.cluster, changes, one) == now, one.name
            self.fitted[one.uid] = now


AnyChange.TestCase.settings = settings(
    max_examples=60, stateful_step_count=30, report_multiple_bugs=False, deadline=None
)
TestAnyChange = AnyChange.TestCase
