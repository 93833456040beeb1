"""Which change of a node's surroundings gets a pod moving that fits nowhere for the sake of its neighbours."""

import pytest
from turb_kub.decision.fits import fits
from turb_kub.queue.wakeups import could_help

from tests.unit.objects import cluster_of, node, pod
from tests.unit.test_inter_pod_affinity import apart, near, term

WEB = {"app": "web"}
DB = {"app": "db"}
RED = {"namespaceSelector": {"matchLabels": {"team": "red"}}}
EVEN = {
    "topologySpreadConstraints": [
        {
            "topologyKey": "zone",
            "maxSkew": 1,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": WEB},
        }
    ]
}


def nodes():
    """Two in zone a, and in zone b one that is cordoned."""
    return (
        *(node(name, labels={"zone": "a"}) for name in ("a1", "a2")),
        node("b1", labels={"zone": "b"}, unschedulable=True),
    )


def db(name="db", at="a1", **how):
    return pod(name, node=at, labels=DB, **how)


#: Leaves no room on a1, so that only the rest of its zone can be freed.
FILLER = pod("filler", node="a1", cpu="8")
KEEPER = pod("keeper", node="a1", spec=apart(term(labels=WEB)))


@pytest.mark.parametrize(
    ("there", "asked", "change", "helps"),
    [
        # Near a pod that is not there.
        ((), {"spec": near(term())}, lambda c: c.set_pod(db()), True),
        ((), {"spec": near(term())}, lambda c: c.assume(db()), True),
        ((), {"spec": near(term())}, lambda c: c.set_pod(pod("web", node="a1", labels=WEB)), False),
        ((), {"spec": near(term())}, lambda c: c.set_pod(db(namespace="other")), False),
        ((), {"spec": near(term())}, lambda c: c.set_pod(db(at="b1")), False),
        ((pod("db", node="a1"),), {"spec": near(term())}, lambda c: c.set_pod(db()), True),
        ((db(at="b1"),), {"spec": near(term())}, lambda c: c.set_node(node("b1", labels={"zone": "a"})), True),
        (
            (db(namespace="other"),),
            {"spec": near(term(**RED))},
            lambda c: c.set_namespace("other", {"team": "red"}),
            True,
        ),
        (
            (db(namespace="other"),),
            {"spec": near(term(**RED))},
            lambda c: c.set_namespace("other", {"team": "blue"}),
            False,
        ),
        # Apart from a pod that is there.
        ((db(), FILLER), {"spec": apart(term()), "cpu": "1"}, lambda c: c.remove_pod("uid-default-db"), True),
        ((db(),), {"spec": apart(term())}, lambda c: c.set_pod(pod("db", node="a1", labels=WEB)), True),
        ((db(), db("db2")), {"spec": apart(term())}, lambda c: c.remove_pod("uid-default-db"), False),
        ((db(),), {"spec": apart(term())}, lambda c: c.set_node(node("a2", labels={"zone": "c"})), True),
        # Kept away by one that is there.
        ((KEEPER, FILLER), {"labels": WEB, "cpu": "1"}, lambda c: c.remove_pod("uid-default-keeper"), True),
        ((KEEPER,), {"labels": WEB}, lambda c: c.set_pod(db()), False),
        # Too many in zone a for the empty zone b, which takes none.
        ((pod("w", node="a1", labels=WEB),), {"labels": WEB, "spec": EVEN}, lambda c: c.remove_node("b1"), True),
        (
            (pod("w", node="a1", labels=WEB),),
            {"labels": WEB, "spec": EVEN},
            lambda c: c.set_pod(pod("w2", node="b1", labels=WEB)),
            True,
        ),
        (
            (pod("w", node="a1", labels=WEB),),
            {"labels": WEB, "spec": EVEN},
            lambda c: c.set_pod(pod("w2", node="b1", labels=WEB, namespace="other")),
            False,
        ),
        (
            (pod("w", node="a1", labels=WEB),),
            {"labels": WEB, "spec": EVEN},
            lambda c: c.set_pod(pod("w", node="a1", labels=WEB, deleting=True)),
            True,
        ),
        (
            (pod("w", node="a1", labels=WEB),),
            {"labels": WEB, "spec": EVEN},
            lambda c: c.set_node(node("b1", labels={"zone": "a"}, unschedulable=True)),
            True,
        ),
    ],
)
def test_a_change_of_neighbours_helps_whom_it_lets_in_and_nobody_else(there, asked, change, helps):
    cluster = cluster_of(*nodes(), pods=there)
    waiting = pod("waiting", **asked)
    assert not fits(cluster, waiting)
    cluster.changes.take()
    change(cluster)
    assert could_help(cluster, cluster.changes.take(), waiting) is helps
    assert fits(cluster, waiting) is helps


def test_pods_that_come_concern_only_those_that_look_at_neighbours():
    """A pod that only lacks room is not asked about again for every pod that somebody places."""
    cluster = cluster_of(node("a1", memory="1Gi"), node("a2", memory="1Gi"))
    waiting = pod("waiting", memory="2Gi")
    cluster.changes.take()
    cluster.set_pod(db())
    changes = cluster.changes.take()
    # What could never be: the node that did not change would take it, and is not looked at.
    cluster.set_node(node("a2", memory="4Gi"))
    assert could_help(cluster, changes, waiting) is False


BOTH = DB | {"tier": "1"}
NEAR_BOTH = near(term(labels=DB), term(labels={"tier": "1"}))


@pytest.mark.parametrize(
    ("there", "asked", "come", "then", "looked"),
    [
        ((db(),), apart(term()), db("db2"), {}, False),
        ((), NEAR_BOTH, db(), BOTH, False),
        ((), NEAR_BOTH, pod("both", node="a1", labels=BOTH), BOTH, True),
    ],
)
def test_a_pod_that_comes_has_nobody_looked_at_whom_it_keeps_away_or_is_no_company_for(
    there, asked, come, then, looked
):
    cluster = cluster_of(*nodes(), pods=there)
    waiting = pod("waiting", spec=asked)
    cluster.changes.take()
    cluster.set_pod(come)
    changes = cluster.changes.take()
    # What could never be: the pod would fit by now, and whoever looks finds out.
    for one in (*there, come):
        cluster.remove_pod(one.uid)
    cluster.set_pod(pod("then", node="a1", labels=then))
    assert fits(cluster, waiting)
    assert could_help(cluster, changes, waiting) is looked
