"""The in-memory cluster: whatever happens, its sums are those over its pods."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from turb_kub.cluster.cluster import MEMORY, PODS
from turb_kub.cluster.pod_counts import Holding, Matching, Spreading
from turb_kub.objects.affinity import PodTerm
from turb_kub.objects.selectors import Expression, Selector

from tests.unit.objects import cluster_of, node, pod
from tests.unit.storage import using

MI = 2**20
NAMES = st.sampled_from([f"n{number}" for number in range(20)])
UIDS = st.sampled_from([f"u{number}" for number in range(12)])


def row(cluster, name, column=MEMORY):
    return int(cluster.requested[cluster.slot(name), column])


def test_pods_that_came_before_their_node_are_counted_when_it_comes():
    cluster = cluster_of(pods=(pod("p", node="a", memory="1Gi"),))
    cluster.set_node(node("a"))
    assert row(cluster, "a") == 1024 * MI


def test_a_node_that_comes_back_still_holds_its_pods():
    cluster = cluster_of(node("a"), pods=(pod("p", node="a", memory="1Gi"),))
    cluster.remove_node("a")
    cluster.set_node(node("b"))
    assert row(cluster, "b") == 0
    cluster.set_node(node("a"))
    assert row(cluster, "a") == 1024 * MI


def test_a_finished_pod_holds_nothing_and_a_terminating_one_still_does():
    cluster = cluster_of(node("a"))
    cluster.set_pod(pod("p", node="a", memory="1Gi", deleting=True))
    assert row(cluster, "a") == 1024 * MI
    cluster.set_pod(pod("p", node="a", memory="1Gi", status={"phase": "Failed"}))
    assert row(cluster, "a") == row(cluster, "a", PODS) == 0


def test_an_assumed_pod_counts_once_before_and_after_its_confirmation():
    cluster = cluster_of(node("a"))
    cluster.assume(pod("p", node="a", memory="1Gi"))
    assert (row(cluster, "a"), cluster.assumed_count) == (1024 * MI, 1)
    cluster.set_pod(pod("p", node="a", memory="1Gi"))
    assert (row(cluster, "a"), cluster.assumed_count) == (1024 * MI, 0)


def test_the_nodes_that_may_take_more_than_before_are_told():
    cluster = cluster_of(node("a"), node("b"), default_request=64 * MI)

    def told():
        return {cluster.node_at(slot).name for slot in cluster.changes.take().slots}

    assert told() == {"a", "b"}
    cluster.set_node(node("b"))  # as it was
    cluster.assume(pod("p", node="a", memory="1Gi"))
    cluster.set_pod(pod("p", node="a", memory="1Gi"))
    cluster.set_pod(pod("p", node="a", memory="2Gi"))
    assert told() == set()
    cluster.set_pod(pod("p", node="a", memory="1Gi"))
    assert told() == {"a"}
    cluster.set_pod(pod("p", node="b", memory="1Gi"))
    assert told() == {"a"}
    cluster.set_pod(pod("p", node="b"))
    assert told() == {"b"}
    cluster.set_pod(pod("p", node="b", memory="1Mi"))  # it counted as 64 MiB while it stated nothing
    assert told() == {"b"}
    cluster.remove_pod("uid-default-p")
    assert told() == {"b"}
    cluster.remove_pod("uid-default-p")
    cluster.set_pod(pod("q", node="elsewhere", memory="1Mi"))
    cluster.remove_pod("uid-default-q")
    assert told() == set()
    cluster.set_node(node("b", labels={"zone": "z"}))
    assert told() == {"b"}


def test_a_heartbeat_is_no_change():
    cluster = cluster_of(node("a"))
    assert cluster.set_node(node("a")) is False
    assert cluster.set_node(node("a", labels={"zone": "z"})) is True


def test_check_finds_a_wrong_sum():
    cluster = cluster_of(node("a"), pods=(pod("p", node="a", memory="1Gi"),))
    assert cluster.check() == []
    cluster.requested[cluster.slot("a"), MEMORY] += 1
    cluster.load[cluster.slot("a")] += 1
    assert len(cluster.check()) == 2


def test_pods_that_stand_on_a_node_before_it_is_known_are_counted_when_it_comes_and_not_when_it_is_gone():
    cluster = cluster_of(node("a"), node("b"))
    web = Spreading("default", WEB)
    assert cluster.pod_counts.of(cluster, web).tolist() == [0, 0]
    cluster.set_pod(pod("p", node="late", labels={"app": "web"}))
    cluster.set_pod(pod("q", node="b", labels={"app": "web"}))
    assert cluster.pod_counts.of(cluster, web).tolist() == [0, 1]
    cluster.set_node(node("late"))
    assert cluster.pod_counts.of(cluster, web).tolist() == [0, 1, 1]
    cluster.remove_node("b")
    assert cluster.pod_counts.of(cluster, web).tolist() == [0, 0, 1]
    cluster.set_node(node("new"))  # takes the slot of b
    assert cluster.pod_counts.of(cluster, web).tolist() == [0, 0, 1]


@pytest.mark.parametrize("aside", ["without", "holding"])
def test_what_is_only_tried_is_noted_nowhere(aside):
    cluster = cluster_of(node("a"), pods=(pod("p", node="a", spec=using("data") | AVOIDS_WEB),))
    nominated = pod("n", spec=using("more") | AVOIDS_WEB, status={"nominatedNodeName": "a"})
    cluster.changes.take()
    with cluster.without("uid-default-p") if aside == "without" else cluster.holding([nominated]):
        assert len(cluster.pods_on("a")) == (0 if aside == "without" else 2)
    assert not cluster.changes
    assert [one.name for one in cluster.pods_on("a")] == ["p"]
    cluster.set_node(node("b"))
    with cluster.without("uid-default-p"):
        pass
    assert cluster.changes.slots == {1}


ZONES = st.sampled_from(["a", "b", ""])
WEB = Selector((Expression("app", "In", ("web",)),))
NEAR_WEB = PodTerm("zone", WEB, frozenset({"default"}))
NEAR_RED = PodTerm("zone", WEB, frozenset(), Selector((Expression("team", "In", ("red",)),)))
KINDS = (Matching((NEAR_WEB,)), Matching((NEAR_RED,)), Spreading("default", WEB), Holding(NEAR_WEB))
AVOIDS_WEB = {
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}}
            ]
        }
    }
}


class AnyOrder(RuleBasedStateMachine):
    """Nodes and pods come, change, move and go in any order."""

    def __init__(self):
        super().__init__()
        self.cluster = cluster_of(node_memory_limit=2048 * MI, default_request=64 * MI)
        self.truth = {}
        self.red = False

    @rule(name=NAMES, memory=st.integers(1, 4096), zone=ZONES)
    def node_comes_or_changes(self, name, memory, zone):
        self.cluster.set_node(node(name, memory=f"{memory}Mi", labels={"zone": zone} if zone else {}))

    @rule(name=NAMES)
    def node_goes(self, name):
        self.cluster.remove_node(name)

    @rule(uid=UIDS, name=NAMES, memory=st.integers(0, 900), gpus=st.integers(0, 2), assumed=st.booleans())
    def pod_comes_or_changes(self, uid, name, memory, gpus, assumed):
        asked = {"memory": f"{memory}Mi", "example.com/gpu": str(gpus)}
        put = self.cluster.assume if assumed else self.cluster.set_pod
        put(pod(uid, uid=uid, node=name, **asked))
        self.truth[uid] = (name, memory, False, False, False)

    @rule(uid=UIDS, name=NAMES, web=st.booleans(), deleting=st.booleans(), avoids=st.booleans())
    def pod_with_labels_comes_or_changes(self, uid, name, web, deleting, avoids):
        labels, spec = {"app": "web"} if web else {"app": "db"}, AVOIDS_WEB if avoids else {}
        self.cluster.set_pod(pod(uid, uid=uid, node=name, labels=labels, deleting=deleting, spec=spec))
        self.truth[uid] = (name, 0, web, deleting, avoids)

    @rule(red=st.booleans())
    def namespace_is_relabelled(self, red):
        self.cluster.namespaces.put("default", {"team": "red" if red else "blue"})
        self.red = red

    @rule(uid=UIDS)
    def pod_goes(self, uid):
        self.cluster.remove_pod(uid)
        self.truth.pop(uid, None)

    @rule(kind=st.sampled_from(KINDS))
    def pods_of_a_kind_are_counted(self, kind):
        """A rule, not an invariant, so that any number of changes lies between two looks."""
        counts = self.cluster.pod_counts.of(self.cluster, kind)
        for slot, one in self.cluster.each_node():
            here = [(web, gone, avoids) for name, _, web, gone, avoids in self.truth.values() if name == one.name]
            expected = {
                KINDS[0]: sum(web for web, _, _ in here),
                KINDS[1]: sum(web and self.red for web, _, _ in here),
                KINDS[2]: sum(web and not gone for web, gone, _ in here),
                KINDS[3]: sum(avoids for _, _, avoids in here),
            }
            assert counts[slot] == expected[kind]

    @rule()
    def domains_are_those_of_the_labels(self):
        numbers, count = self.cluster.topology.domains(self.cluster, "zone")
        by_zone: dict[str | None, set[int]] = {}
        for slot, one in self.cluster.each_node():
            by_zone.setdefault(one.labels.get("zone"), set()).add(int(numbers[slot]))
        assert by_zone.pop(None, {-1}) == {-1}
        assert all(len(found) == 1 and 0 <= min(found) < count for found in by_zone.values())
        assert len(set.union(set(), *by_zone.values())) == len(by_zone)

    @rule()
    def who_avoids_whom_is_known(self):
        web = pod("asks", labels={"app": "web"})
        avoided = any(avoids for *_, avoids in self.truth.values())
        assert self.cluster.standing_terms.meaning(web) == ((NEAR_WEB,) if avoided else ())

    @invariant()
    def sums_are_those_of_the_pods(self):
        assert self.cluster.check() == []
        for slot, one in self.cluster.each_node():
            here = [memory for name, memory, *_ in self.truth.values() if name == one.name]
            assert self.cluster.requested[slot, MEMORY] == sum(here) * MI
            assert self.cluster.requested[slot, PODS] == len(here)
            assert self.cluster.budgeted[slot] == sum(memory or 64 for memory in here) * MI
            assert self.cluster.load[slot] == sum(memory or 200 for memory in here) * MI

    @invariant()
    def names_are_ranked(self):
        ranks = self.cluster.ranks()
        names = [one.name for _, one in self.cluster.each_node()]
        assert [names[ranks[self.cluster.slot(name)]] for name in names] == names


class AnyOrderWithShortMemory(AnyOrder):
    """What counts pods must begin anew where it has missed some."""

    def __init__(self):
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr("turb_kub.cluster.cluster._LONGEST_MOVES", 4)

    def teardown(self):
        self.patch.undo()


for machine in (AnyOrder, AnyOrderWithShortMemory):
    machine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestAnyOrder = AnyOrder.TestCase
TestAnyOrderWithShortMemory = AnyOrderWithShortMemory.TestCase
