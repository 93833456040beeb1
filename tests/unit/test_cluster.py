"""The in-memory cluster: whatever happens, its sums are those over its pods."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from turb_kub.cluster.cluster import MEMORY, PODS

from tests.unit.objects import cluster_of, node, pod

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


class AnyOrder(RuleBasedStateMachine):
    """Nodes and pods come, change, move and go in any order."""

    def __init__(self):
        super().__init__()
        self.cluster = cluster_of(node_memory_limit=2048 * MI, default_request=64 * MI)
        self.truth = {}

    @rule(name=NAMES, memory=st.integers(1, 4096))
    def node_comes_or_changes(self, name, memory):
        self.cluster.set_node(node(name, memory=f"{memory}Mi"))

    @rule(name=NAMES)
    def node_goes(self, name):
        self.cluster.remove_node(name)

    @rule(uid=UIDS, name=NAMES, memory=st.integers(0, 900), gpus=st.integers(0, 2), assumed=st.booleans())
    def pod_comes_or_changes(self, uid, name, memory, gpus, assumed):
        asked = {"memory": f"{memory}Mi", "example.com/gpu": str(gpus)}
        put = self.cluster.assume if assumed else self.cluster.set_pod
        put(pod(uid, uid=uid, node=name, **asked))
        self.truth[uid] = (name, memory)

    @rule(uid=UIDS)
    def pod_goes(self, uid):
        self.cluster.remove_pod(uid)
        self.truth.pop(uid, None)

    @invariant()
    def sums_are_those_of_the_pods(self):
        assert self.cluster.check() == []
        for slot, one in self.cluster.each_node():
            here = [memory for name, memory in self.truth.values() if name == one.name]
            assert self.cluster.requested[slot, MEMORY] == sum(here) * MI
            assert self.cluster.requested[slot, PODS] == len(here)
            assert self.cluster.budgeted[slot] == sum(memory or 64 for memory in here) * MI
            assert self.cluster.load[slot] == sum(memory or 200 for memory in here) * MI

    @invariant()
    def names_are_ranked(self):
        ranks = self.cluster.ranks()
        names = [one.name for _, one in self.cluster.each_node()]
        assert [names[ranks[self.cluster.slot(name)]] for name in names] == names


AnyOrder.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestAnyOrder = AnyOrder.TestCase
