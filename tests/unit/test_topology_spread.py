"""Topology spread constraints: those that must hold, and those that decide among tied nodes."""

import pytest
from turb_kub.decision.decide import decide
from turb_kub.decision.feasibility import feasible
from turb_kub.decision.policy import LeastRequestedMemory

from tests.unit.objects import cluster_of, node, pod

POLICY = LeastRequestedMemory()
WEB = {"app": "web"}


def constraint(key="zone", skew=1, **more):
    return {
        "topologyKey": key,
        "maxSkew": skew,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": WEB},
    } | more


def asked(*constraints, labels=WEB, **spec):
    return pod("asked", labels=labels, spec={"topologySpreadConstraints": list(constraints)} | spec)


def cluster(counts, *more_nodes, pods=()):
    """One node a zone, named like it, with so many matching pods on it."""
    nodes = [node(zone, labels={"zone": zone}) for zone in counts]
    held = [pod(f"{zone}{n}", node=zone, labels=WEB) for zone, count in counts.items() for n in range(count)]
    return cluster_of(*nodes, *more_nodes, pods=(*held, *pods))


def homes(made, one) -> set[str]:
    return {made.nodes[slot].name for slot in feasible(made, one).nonzero()[0]}


@pytest.mark.parametrize(
    ("counts", "skew", "expected"),
    [
        ({"a": 0, "b": 0}, 1, "ab"),
        ({"a": 1, "b": 0}, 1, "b"),
        ({"a": 1, "b": 0}, 2, "ab"),
        ({"a": 3, "b": 1, "c": 2}, 1, "b"),
        ({"a": 3, "b": 1, "c": 2}, 2, "bc"),
        ({"a": 5, "b": 5, "c": 5}, 1, "abc"),
    ],
)
def test_no_domain_may_exceed_the_least_filled_one_by_more_than_the_skew(counts, skew, expected):
    assert homes(cluster(counts), asked(constraint(skew=skew))) == set(expected)


def test_a_pod_that_does_not_match_its_own_selector_adds_nothing():
    made = cluster({"a": 1, "b": 0})
    assert homes(made, asked(constraint(), labels={"app": "other"})) == {"a", "b"}


def test_a_node_without_the_label_is_refused_and_makes_no_domain():
    made = cluster({"a": 1, "b": 1}, node("nowhere"))
    assert homes(made, asked(constraint())) == {"a", "b"}
    decision = decide(cluster({}, node("nowhere")), asked(constraint()), POLICY)
    assert decision.message == (
        "0/1 nodes are available: 1 node(s) didn't match pod topology spread constraints (missing required label)."
    )


def test_too_great_a_skew_is_told_in_kube_schedulers_words_and_with_numbers():
    made = cluster({"a": 2, "b": 0})
    made.set_node(node("b", labels={"zone": "b"}, unschedulable=True))
    decision = decide(made, asked(constraint()), POLICY)
    assert decision.message == (
        "0/2 nodes are available: 1 node(s) didn't match pod topology spread constraints, 1 node(s) were unschedulable."
    )
    assert decision.nodes[0].refusals == (
        "zone=a holds 2 pods app=web, the least filled holds 0: 3 would exceed that by more than maxSkew 1",
    )


def test_pods_of_other_namespaces_and_terminating_ones_do_not_count():
    others = (
        pod("foreign", node="a", namespace="other", labels=WEB),
        pod("leaving", node="a", labels=WEB, deleting=True),
    )
    assert homes(cluster({"a": 0, "b": 0}, pods=others), asked(constraint())) == {"a", "b"}


def test_a_pod_that_begins_to_terminate_stops_counting():
    made = cluster({"a": 1, "b": 0})
    assert homes(made, asked(constraint())) == {"b"}
    made.set_pod(pod("a0", node="a", labels=WEB, deleting=True))
    assert homes(made, asked(constraint())) == {"a", "b"}


def test_all_constraints_must_hold():
    made = cluster({"a": 0, "b": 0}, node("b2", labels={"zone": "b"}), pods=(pod("x", node="b", labels=WEB),))
    both = asked(constraint(skew=2), constraint("kubernetes.io/hostname"))
    assert homes(made, both) == {"a", "b2"}


@pytest.mark.parametrize(("least", "expected"), [(None, "ab"), (2, "ab"), (3, "")])
def test_with_fewer_domains_than_the_minimum_the_least_filled_counts_as_empty(least, expected):
    made = cluster({"a": 1, "b": 1})
    assert homes(made, asked(constraint(minDomains=least))) == set(expected)


class TestWhichNodesMakeDomains:
    def test_those_that_the_pod_may_not_choose_make_none(self):
        made = cluster({"a": 1, "b": 0})
        only_a = {"nodeSelector": {"zone": "a"}}
        assert homes(made, asked(constraint(), **only_a)) == {"a"}
        assert homes(made, asked(constraint(nodeAffinityPolicy="Ignore"), **only_a)) == set()

    def test_tainted_ones_do_unless_taints_are_to_be_honoured(self):
        tainted = node("b", labels={"zone": "b"}, taints=[{"key": "k", "effect": "NoSchedule"}])
        made = cluster({"a": 1}, tainted)
        assert homes(made, asked(constraint())) == set()
        assert homes(made, asked(constraint(nodeTaintsPolicy="Honor"))) == {"a"}
        tolerates = {"tolerations": [{"operator": "Exists"}]}
        assert homes(made, asked(constraint(nodeTaintsPolicy="Honor"), **tolerates)) == {"b"}

    def test_full_and_cordoned_ones_do(self):
        made = cluster({"a": 1}, node("b", labels={"zone": "b"}, unschedulable=True))
        assert homes(made, asked(constraint())) == set()


class TestSelectors:
    def test_none_matches_no_pod(self):
        assert homes(cluster({"a": 1, "b": 0}), asked(constraint(labelSelector=None))) == {"a", "b"}

    def test_an_empty_one_counts_no_pod_as_in_kube_scheduler(self):
        assert homes(cluster({"a": 1, "b": 0}), asked(constraint(labelSelector={}))) == {"a", "b"}

    def test_match_label_keys_tell_revisions_apart(self):
        old = tuple(pod(f"old{n}", node="a", labels=WEB | {"rev": "1"}) for n in range(3))
        made = cluster({"a": 0, "b": 0}, pods=old)
        keyed = constraint(matchLabelKeys=["rev", "absent"])
        assert homes(made, asked(keyed, labels=WEB | {"rev": "2"})) == {"a", "b"}
        assert homes(made, asked(keyed, labels=WEB | {"rev": "1"})) == {"b"}


def test_a_zone_that_loses_its_last_node_is_no_domain_any_more():
    made = cluster({"a": 1, "b": 0})
    assert homes(made, asked(constraint())) == {"b"}
    made.remove_node("b")
    assert homes(made, asked(constraint())) == {"a"}
    made.set_node(node("b", labels={"zone": "b"}))
    assert homes(made, asked(constraint())) == {"b"}


class TestScheduleAnyway:
    def test_it_refuses_nothing_and_decides_among_tied_nodes(self):
        anyway = constraint(whenUnsatisfiable="ScheduleAnyway")
        made = cluster({"a": 2, "b": 1, "c": 3})
        for name in ("a", "b", "c"):  # equal loads
            held = len(made.pods_on(name))
            made.set_pod(pod(f"fill-{name}", node=name, memory=f"{(3 - held) * 200 + 1}Mi"))
        decision = decide(made, asked(anyway), POLICY)
        assert decision.feasible == 3
        assert (decision.node, decision.tie) == ("b", "preference")

    def test_a_node_without_the_label_comes_last(self):
        anyway = constraint(whenUnsatisfiable="ScheduleAnyway")
        made = cluster({"z": 0}, node("a-nowhere"))
        assert decide(made, asked(anyway), POLICY).node == "z"
