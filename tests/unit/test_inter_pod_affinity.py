"""Required inter-pod affinity and anti-affinity, in both directions."""

import pytest
from turb_kub.cluster.cluster import Cluster
from turb_kub.decision.decide import decide
from turb_kub.decision.feasibility import feasible
from turb_kub.decision.policy import LeastRequestedMemory

from tests.unit.objects import cluster_of, node, pod

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
POLICY = LeastRequestedMemory()


def term(key="zone", *, labels=None, **more):
    return {"topologyKey": key, "labelSelector": {"matchLabels": labels or {"app": "db"}}} | more


def near(*terms):
    return {"affinity": {"podAffinity": {REQUIRED: list(terms)}}}


def apart(*terms):
    return {"affinity": {"podAntiAffinity": {REQUIRED: list(terms)}}}


def four_nodes(*pods) -> Cluster:
    """a1, a2 in zone a, b1 in zone b, and one without a zone."""
    nodes = [node(name, labels={"zone": name[0]}) for name in ("a1", "a2", "b1")]
    return cluster_of(*nodes, node("nowhere"), pods=pods)


def homes(cluster, asked) -> set[str]:
    return {cluster.nodes[slot].name for slot in feasible(cluster, asked).nonzero()[0]}


def db(name="db", node="a1", app="db", **how):
    """A pod of others that requests nothing, and so adds nothing to its node's load."""
    return pod(name, node=node, labels={"app": app}, scheduler="default-scheduler", **how)


class TestAffinity:
    def test_the_whole_domain_of_a_matching_pod_will_do(self):
        assert homes(four_nodes(db()), pod("p", spec=near(term()))) == {"a1", "a2"}

    def test_without_a_matching_pod_no_node_will_do(self):
        assert homes(four_nodes(), pod("p", spec=near(term()))) == set()

    def test_the_first_of_pods_that_want_each_other_goes_to_any_node_with_the_label(self):
        assert homes(four_nodes(), pod("p", labels={"app": "db"}, spec=near(term()))) == {"a1", "a2", "b1"}

    def test_the_second_of_them_joins_the_first(self):
        assert homes(four_nodes(db(node="b1")), pod("p", labels={"app": "db"}, spec=near(term()))) == {"b1"}

    def test_a_matching_pod_outside_all_domains_makes_no_company(self):
        asked = pod("p", labels={"app": "db"}, spec=near(term()))
        assert homes(four_nodes(db(node="nowhere")), asked) == {"a1", "a2", "b1"}

    def test_one_pod_must_meet_all_terms(self):
        terms = near(term(), term(labels={"tier": "1"}))
        apart_from_each_other = four_nodes(db(), pod("tier", node="a2", labels={"tier": "1"}))
        assert homes(apart_from_each_other, pod("p", spec=terms)) == set()
        together = four_nodes(pod("both", node="a2", labels={"tier": "1", "app": "db"}))
        assert homes(together, pod("p", spec=terms)) == {"a1", "a2"}

    def test_each_term_has_its_own_domains(self):
        terms = near(term(), term("kubernetes.io/hostname"))
        assert homes(four_nodes(db()), pod("p", spec=terms)) == {"a1"}

    def test_a_terminating_pod_is_company_and_a_finished_one_is_not(self):
        asked = pod("p", spec=near(term()))
        assert homes(four_nodes(db(deleting=True)), asked) == {"a1", "a2"}
        assert homes(four_nodes(db(status={"phase": "Succeeded"})), asked) == set()

    def test_no_selector_means_no_pod_and_an_empty_one_every_pod(self):
        cluster = four_nodes(db())
        assert homes(cluster, pod("p", spec=near({"topologyKey": "zone"}))) == set()
        assert homes(cluster, pod("p", spec=near({"topologyKey": "zone", "labelSelector": {}}))) == {"a1", "a2"}


class TestNamespaces:
    @pytest.mark.parametrize(
        ("where", "found"),
        [
            ({}, False),
            ({"namespaces": ["other"]}, True),
            ({"namespaces": ["third"]}, False),
            ({"namespaceSelector": {}}, True),
            ({"namespaceSelector": {"matchLabels": {"team": "red"}}}, True),
            ({"namespaceSelector": {"matchLabels": {"team": "blue"}}}, False),
            ({"namespaces": ["third"], "namespaceSelector": {"matchLabels": {"team": "red"}}}, True),
        ],
    )
    def test_a_term_means_its_own_namespace_unless_it_names_others(self, where, found):
        cluster = four_nodes(db(namespace="other"))
        cluster.namespaces.put("other", {"team": "red"})
        assert homes(cluster, pod("p", spec=near(term(**where)))) == ({"a1", "a2"} if found else set())
        # The same from the other side: who stands there keeps the pod away.
        keeper = pod("keeper", node="a1", namespace="other", spec=apart(term(labels={"app": "web"}, **where)))
        cluster = four_nodes(keeper)
        cluster.namespaces.put("default", {"team": "red"})
        there = homes(cluster, pod("p", labels={"app": "web"}))
        meant = found and where.get("namespaces") != ["other"]
        assert there == ({"b1", "nowhere"} if meant else {"a1", "a2", "b1", "nowhere"})

    def test_a_namespace_selector_takes_the_place_of_the_own_namespace(self):
        cluster = four_nodes(db())
        cluster.set_namespace("default", {"team": "red"})
        blue, red = ({"namespaceSelector": {"matchLabels": {"team": colour}}} for colour in ("blue", "red"))
        assert homes(cluster, pod("p", spec=near(term(**blue)))) == set()
        assert homes(cluster, pod("p", spec=near(term(**red)))) == {"a1", "a2"}

    def test_who_is_kept_away_is_asked_again_when_namespaces_or_keepers_change(self):
        red = {"namespaceSelector": {"matchLabels": {"team": "red"}}}
        asked = pod("p", namespace="other", labels={"app": "db"})
        cluster = four_nodes(pod("keeper", node="a1", spec=apart(term(**red))))
        assert homes(cluster, asked) == {"a1", "a2", "b1", "nowhere"}
        cluster.set_namespace("other", {"team": "red"})
        assert homes(cluster, asked) == {"b1", "nowhere"}
        cluster.set_pod(pod("keeper2", node="b1", spec=apart(term(namespaces=["other"]))))
        assert homes(cluster, asked) == {"nowhere"}

    def test_labels_given_to_a_namespace_later_count(self):
        cluster = four_nodes(db(namespace="other"))
        asked = pod("p", spec=near(term(namespaceSelector={"matchLabels": {"team": "red"}})))
        assert homes(cluster, asked) == set()
        cluster.namespaces.put("other", {"team": "red"})
        assert homes(cluster, asked) == {"a1", "a2"}
        cluster.namespaces.remove("other")
        assert homes(cluster, asked) == set()


class TestAntiAffinity:
    def test_the_whole_domain_of_a_matching_pod_is_avoided(self):
        assert homes(four_nodes(db()), pod("p", spec=apart(term()))) == {"b1", "nowhere"}

    def test_any_term_that_is_met_is_enough(self):
        terms = apart(term(labels={"app": "none"}), term())
        assert homes(four_nodes(db()), pod("p", spec=terms)) == {"b1", "nowhere"}

    def test_it_holds_against_those_who_come_later(self):
        cluster = four_nodes(pod("keeper", node="b1", spec=apart(term())))
        assert homes(cluster, pod("p", labels={"app": "db"})) == {"a1", "a2", "nowhere"}
        assert homes(cluster, pod("p", labels={"app": "web"})) == {"a1", "a2", "b1", "nowhere"}

    def test_a_keeper_that_left_keeps_nobody_away(self):
        keeper = pod("keeper", node="b1", spec=apart(term()))
        cluster = four_nodes(keeper)
        asked = pod("p", labels={"app": "db"})
        assert "b1" not in homes(cluster, asked)
        cluster.remove_pod(keeper.uid)
        assert "b1" in homes(cluster, asked)

    def test_pods_that_avoid_their_own_kind_take_a_domain_each(self):
        cluster = four_nodes()
        placed = []
        for number in range(4):
            replica = pod(f"p{number}", labels={"app": "db"}, spec=apart(term()))
            decision = decide(cluster, replica, POLICY)
            if decision.node:
                placed.append(decision.node)
                cluster.set_pod(pod(f"p{number}", node=decision.node, labels={"app": "db"}, spec=apart(term())))
        # A node without the label is in nobody's way.
        assert placed == ["a1", "b1", "nowhere", "nowhere"]

    def test_a_relabelled_pod_is_seen_as_it_is_now(self):
        cluster = four_nodes(db())
        asked = pod("p", spec=apart(term()))
        assert homes(cluster, asked) == {"b1", "nowhere"}
        cluster.set_pod(pod("db", node="a1", labels={"app": "retired"}))
        assert homes(cluster, asked) == {"a1", "a2", "b1", "nowhere"}

    def test_a_node_that_moves_to_another_domain_takes_its_pods_along(self):
        cluster = four_nodes(db())
        asked = pod("p", spec=apart(term()))
        assert homes(cluster, asked) == {"b1", "nowhere"}
        cluster.set_node(node("a1", labels={"zone": "b"}))
        assert homes(cluster, asked) == {"a2", "nowhere"}


def test_each_reason_is_kube_schedulers():
    keeper = pod("keeper", node="b1", spec=apart(term(labels={"app": "web"})))
    cluster = four_nodes(db(), keeper)
    cluster.remove_node("nowhere")
    decision = decide(cluster, pod("p", labels={"app": "web"}, spec=apart(term())), POLICY)
    assert decision.message == (
        "0/3 nodes are available: 1 node(s) didn't satisfy existing pods anti-affinity rules, "
        "2 node(s) didn't match pod anti-affinity rules."
    )
    assert {node.name: node.refusals for node in decision.nodes} == {
        "a1": ("zone=a holds a pod it avoids (app=db)",),
        "a2": ("zone=a holds a pod it avoids (app=db)",),
        "b1": ("zone=b holds a pod that avoids it (app=web)",),
    }
    decision = decide(cluster, pod("q", spec=near(term(labels={"app": "none"}))), POLICY)
    assert decision.message == "0/3 nodes are available: 3 node(s) didn't match pod affinity rules."
    assert decision.filters == {"InterPodAffinity"}


class TestPreferred:
    def prefers(self, kind, *weighted):
        terms = [{"weight": weight, "podAffinityTerm": one} for weight, one in weighted]
        return {"affinity": {kind: {PREFERRED: terms}}}

    def test_of_tied_nodes_the_one_near_the_pods_it_likes_wins(self):
        cluster = four_nodes(db(node="b1"))
        decision = decide(cluster, pod("p", spec=self.prefers("podAffinity", (1, term()))), POLICY)
        assert (decision.node, decision.tie) == ("b1", "preference")

    def test_of_tied_nodes_those_near_the_pods_it_dislikes_lose(self):
        cluster = four_nodes(db(node="a1"), db("db2", node="nowhere"))
        decision = decide(cluster, pod("p", spec=self.prefers("podAntiAffinity", (1, term()))), POLICY)
        assert (decision.node, decision.tie) == ("b1", "preference")

    def test_weights_add_up_over_terms_and_pods(self):
        cluster = four_nodes(db(node="b1"), *(db(f"web{n}", app="web") for n in range(3)))
        liked = self.prefers("podAffinity", (50, term()), (20, term(labels={"app": "web"})))
        assert decide(cluster, pod("p", spec=liked), POLICY).node == "a1"
        liked = self.prefers("podAffinity", (70, term()), (20, term(labels={"app": "web"})))
        assert decide(cluster, pod("p", spec=liked), POLICY).node == "b1"

    def test_nodes_without_the_label_are_near_nobody(self):
        cluster = four_nodes(db(node="nowhere"), db("db2", node="b1", app="web"))
        liked = self.prefers("podAffinity", (100, term()), (1, term(labels={"app": "web"})))
        assert decide(cluster, pod("p", spec=liked), POLICY).node == "b1"

    def test_load_comes_before_liking(self):
        cluster = four_nodes(db(node="b1", memory="8Gi"))
        decision = decide(cluster, pod("p", spec=self.prefers("podAffinity", (100, term()))), POLICY)
        assert decision.node == "a1"
