"""Pods that claim volumes: which nodes can have them, and why the others can't."""

from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from turb_kub.decision.decide import decide
from turb_kub.decision.explain import explain
from turb_kub.decision.feasibility import feasible, pod_refusal
from turb_kub.decision.policy import LeastRequestedMemory
from turb_kub.decision.volume_matching import plan_volumes
from turb_kub.loop.volumes import NotBound, VolumeBinder
from turb_kub.objects.claims import ClaimUse
from turb_kub.objects.storage import Attachment, Volume
from turb_kub.queue.queue import SchedulingQueue

from tests.unit.objects import cluster_of, node, pod
from tests.unit.storage import (
    decoded,
    using,
    wire_attachment,
    wire_capacity,
    wire_claim,
    wire_class,
    wire_csi_node,
    wire_driver,
    wire_volume,
)

POLICY = LeastRequestedMemory()
ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
OLD_ZONE = "failure-domain.beta.kubernetes.io/zone"
HOSTNAME = "kubernetes.io/hostname"


def storage(*items, nodes=("a", "b", "c"), labels=None):
    """A cluster of some nodes with these storage objects; `labels` are those of a node, by its name."""
    cluster = cluster_of(*(node(name, labels=(labels or {}).get(name)) for name in nodes))
    for item in items:
        cluster.volumes.put(decoded(item))
    return cluster


def takers(cluster, wanted):
    """The names of the nodes that may take a pod. An explanation must find something against all others."""
    explained = {report.name for report in explain(cluster, wanted, POLICY).nodes if not report.refusals}
    if pod_refusal(cluster, wanted) is None:
        assert explained == {cluster.node_at(int(slot)).name for slot in np.flatnonzero(feasible(cluster, wanted))}
    return explained


def planned(cluster, wanted, node_name):
    """What is to be done on a node: the volume of each claim that takes one, and the claims whose volume is made."""
    plan = plan_volumes(cluster, wanted, node_name)
    assert plan is not None
    assert plan.node == node_name
    return {claim.name: volume.name for volume, claim in plan.bindings}, [claim.name for claim in plan.provisions]


def message(cluster, wanted):
    return decide(cluster, wanted, POLICY).message.removeprefix("0/3 nodes are available: ").removesuffix(".")


def user(*claims, **how):
    return pod("p", spec=using(*claims or ("data",)), **how)


def ephemeral(uid="uid-default-p"):
    return pod("p", uid=uid, spec={"volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}]})


# What a pod uses


def test_claims_are_those_that_volumes_name_and_those_made_for_the_pod_each_once():
    volumes = [
        {"name": "one", "persistentVolumeClaim": {"claimName": "data", "readOnly": True}},
        {"name": "two", "emptyDir": {}},
        {"name": "three", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
        {"name": "four", "persistentVolumeClaim": {"claimName": "data"}},
    ]
    assert pod("p", spec={"volumes": volumes}).claims == (ClaimUse("data"), ClaimUse("p-three", ephemeral=True))
    assert pod("p").claims == ()


# The pod as a whole


@pytest.mark.parametrize(
    ("claim", "why"),
    [
        (wire_claim("other"), 'persistentvolumeclaim "data" not found'),
        (wire_claim("data", namespace="other"), 'persistentvolumeclaim "data" not found'),
        (wire_claim("data", deleting=True, volume="v"), 'persistentvolumeclaim "data" is being deleted'),
        (
            wire_claim("data", phase="Lost", volume="v"),
            'persistentvolumeclaim "data" bound to non-existent persistentvolume "v"',
        ),
        (wire_claim("data", storage_class="at-once"), "pod has unbound immediate PersistentVolumeClaims"),
        (wire_claim("data", storage_class="no-such-class"), "pod has unbound immediate PersistentVolumeClaims"),
        (wire_claim("data", storage_class=None), "pod has unbound immediate PersistentVolumeClaims"),
        # One that names its volume is bound by the controller alone, whatever its class says.
        (wire_claim("data", volume="v", bound=False), "pod has unbound immediate PersistentVolumeClaims"),
        (wire_claim("data", volume="gone"), 'persistentvolume "gone" not found'),
    ],
)
def test_a_claim_that_can_not_be_had_on_any_node_refuses_the_pod(claim, why):
    cluster = storage(claim, wire_class(), wire_class("at-once", mode="Immediate"), wire_volume("v"))
    assert message(cluster, user()) == why


@pytest.mark.parametrize(
    ("claim", "why"),
    [
        (
            wire_claim("other"),
            'waiting for ephemeral volume controller to create the persistentvolumeclaim "p-scratch"',
        ),
        (
            wire_claim("p-scratch", owner="uid-of-another", volume="v"),
            "PVC default/p-scratch was not created for pod default/p (pod is not owner)",
        ),
        (
            wire_claim("p-scratch", owner="uid-default-p", volume="gone"),
            "3 node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
        ),
        (wire_claim("p-scratch", owner="uid-default-p", volume="v"), ""),
    ],
)
def test_the_claim_of_an_ephemeral_volume_must_be_the_pods_own(claim, why):
    assert message(storage(claim, wire_class(), wire_volume("v")), ephemeral()) == why


def test_while_storage_can_not_be_read_only_pods_with_claims_wait():
    cluster = storage(wire_claim("data", volume="v"), wire_volume("v"))
    cluster.volumes.unread["csinodes"] = "for a reason"
    assert message(cluster, user()) == "pod claims volumes, and these could not be read: csinodes (for a reason)"
    assert decide(cluster, pod("q"), POLICY).node == "a"


# Bound claims


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        (None, {"a", "b", "c"}),
        ([], set()),
        ([{}], set()),
        ([{"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["z1"]}]}], {"a", "b"}),
        ([{"matchExpressions": [{"key": ZONE, "operator": "NotIn", "values": ["z1"]}]}], {"c"}),
        ([{"matchExpressions": [{"key": ZONE, "operator": "DoesNotExist"}]}], {"c"}),
        (
            [
                {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": ["c"]}]},
                {
                    "matchExpressions": [
                        {"key": ZONE, "operator": "Exists"},
                        {"key": HOSTNAME, "operator": "In", "values": ["b", "c", "x"]},
                    ]
                },
            ],
            {"b", "c"},
        ),
    ],
)
def test_a_bound_claim_goes_where_the_node_affinity_of_its_volume_allows(terms, expected):
    cluster = storage(
        wire_claim("data", volume="v"),
        wire_volume("v", terms=terms, phase="Bound"),
        labels={"a": {ZONE: "z1"}, "b": {ZONE: "z1"}},
    )
    assert takers(cluster, user()) == expected
    if not expected:
        assert message(cluster, user()) == "3 node(s) didn't match PersistentVolume's node affinity"


def test_a_node_that_gets_the_label_later_is_seen():
    cluster = storage(wire_claim("data", volume="v"), wire_volume("v", nodes=("d",)))
    assert takers(cluster, user()) == set()
    cluster.set_node(node("d"))
    assert takers(cluster, user()) == {"d"}
    cluster.remove_node("d")
    cluster.set_node(node("e"))
    assert takers(cluster, user()) == set()


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({}, {"a", "b", "c"}),
        ({ZONE: "z1"}, {"a", "c"}),
        ({ZONE: "z1__z2"}, {"a", "b", "c"}),
        ({ZONE: " z2 "}, {"b", "c"}),
        ({ZONE: "z1__"}, {"a", "b", "c"}),
        ({OLD_ZONE: "z1"}, {"a", "c"}),
        ({ZONE: "z1", REGION: "r2"}, {"c"}),
        ({REGION: "r1"}, {"a", "c"}),
    ],
)
def test_zone_and_region_labels_of_a_volume_bind_nodes_that_are_in_any(labels, expected):
    cluster = storage(
        wire_claim("data", volume="v"),
        wire_volume("v", labels=labels, phase="Bound"),
        labels={"a": {ZONE: "z1", REGION: "r1"}, "b": {ZONE: "z2"}},
    )
    assert takers(cluster, user()) == expected


def test_a_volume_in_no_zone_of_the_cluster_is_told():
    cluster = storage(
        wire_claim("data", volume="v"),
        wire_volume("v", labels={ZONE: "z9"}, phase="Bound"),
        labels={name: {ZONE: "z1"} for name in "abc"},
    )
    assert message(cluster, user()) == "3 node(s) had no available volume zone"
    assert explain(cluster, user(), POLICY).nodes[0].refusals == (f"its volume is in {ZONE} z9",)


# Volumes that exist


@pytest.mark.parametrize(
    ("claim", "volume", "fits"),
    [
        ({}, {}, True),
        ({"storage": "1Gi"}, {"storage": "1023Mi"}, False),
        ({"storage": "1"}, {"storage": "999m"}, False),
        ({"storage": "1Ei"}, {"storage": "2Ei"}, True),
        ({"storage": None}, {"storage": "1"}, True),
        ({}, {"phase": "Released"}, False),
        ({}, {"phase": "Pending"}, False),
        ({}, {"deleting": True}, False),
        ({}, {"storage_class": "other"}, False),
        ({}, {"storage_class": None}, False),
        ({}, {"volumeMode": "Block"}, False),
        ({"volumeMode": "Block"}, {"volumeMode": "Block"}, True),
        ({"volumeMode": None}, {}, True),
        ({"accessModes": ["ReadWriteMany"]}, {}, False),
        ({"accessModes": ["ReadOnlyMany"]}, {"accessModes": ["ReadWriteOnce", "ReadOnlyMany"]}, True),
        ({"selector": {"matchLabels": {"disk": "fast"}}}, {}, False),
        ({"selector": {"matchLabels": {"disk": "fast"}}}, {"labels": {"disk": "fast"}}, True),
        ({"selector": {"matchExpressions": [{"key": "disk", "operator": "NotIn", "values": ["slow"]}]}}, {}, True),
        ({"selector": {}}, {}, True),
        ({"volumeAttributesClassName": "gold"}, {}, False),
        ({"volumeAttributesClassName": "gold"}, {"volumeAttributesClassName": "gold"}, True),
        ({}, {"claim": {"namespace": "default", "name": "another"}}, False),
        ({}, {"claim": {"namespace": "default", "name": "data"}, "phase": "Bound"}, True),
        ({}, {"claim": {"namespace": "default", "name": "data", "uid": "uid-data"}}, True),
        ({}, {"claim": {"namespace": "default", "name": "data", "uid": "uid-of-an-older-one"}}, False),
    ],
)
def test_a_volume_fits_a_claim_or_not(claim, volume, fits):
    cluster = storage(wire_claim("data", **claim), wire_class(), wire_volume("v", nodes=("b",), **volume))
    assert takers(cluster, user()) == ({"b"} if fits else set())
    if not fits:
        assert message(cluster, user()) == "3 node(s) didn't find available persistent volumes to bind"


def test_of_the_volumes_of_a_node_the_smallest_that_fits_is_taken():
    cluster = storage(
        wire_claim("data", storage="2Gi"),
        wire_class(),
        *(wire_volume(f"v{size}", storage=f"{size}Gi", nodes=("a",)) for size in (1, 8, 2, 4)),
        wire_volume("elsewhere", storage="3Gi", nodes=("b",)),
        wire_volume("anywhere", storage="5Gi"),
    )
    assert planned(cluster, user(), "a") == ({"data": "v2"}, [])
    assert planned(cluster, user(), "b") == ({"data": "elsewhere"}, [])
    assert planned(cluster, user(), "c") == ({"data": "anywhere"}, [])


def test_a_volume_kept_for_the_claim_is_taken_before_a_smaller_one_and_only_where_it_is():
    kept = wire_volume("kept", storage="9Gi", nodes=("b",), claim={"namespace": "default", "name": "data"})
    cluster = storage(wire_claim("data"), wire_class(), wire_volume("small"), kept)
    assert takers(cluster, user()) == {"b"}
    assert planned(cluster, user(), "b") == ({"data": "kept"}, [])


def test_two_claims_of_a_pod_do_not_share_a_volume():
    cluster = storage(
        wire_claim("one"),
        wire_claim("two"),
        wire_class(),
        wire_volume("a1", nodes=("a",)),
        wire_volume("b1", nodes=("b",)),
        wire_volume("b2", nodes=("b",)),
        wire_volume("shared", terms=[{"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": ["c"]}]}]),
    )
    assert takers(cluster, user("one", "two")) == {"b"}
    assert takers(cluster, user("one")) == {"a", "b", "c"}


def test_the_smaller_claim_chooses_first():
    cluster = storage(
        wire_claim("large", storage="4Gi"),
        wire_claim("small", storage="1Gi"),
        wire_class(),
        wire_volume("v5", storage="5Gi"),
        wire_volume("v4", storage="4Gi"),
    )
    assert planned(cluster, user("large", "small"), "a") == ({"small": "v4", "large": "v5"}, [])


def test_many_volumes_for_the_same_nodes_serve_as_many_claims():
    names = [f"claim{number}" for number in range(4)]
    volumes = [wire_volume(f"v{number}", nodes=("a", "b")) for number in range(4)]
    cluster = storage(*(wire_claim(name) for name in names), wire_class(), *volumes)
    assert takers(cluster, user(*names)) == {"a", "b"}
    taken, made_anew = planned(cluster, user(*names), "a")
    assert sorted(taken) == names
    assert len(set(taken.values())) == 4
    assert made_anew == []
    cluster.volumes.drop(type(decoded(volumes[0])), ("", "v2"))
    assert takers(cluster, user(*names)) == set()


# Volumes made on demand


def made(**how):
    """A class that makes volumes."""
    return wire_class(provisioner="example.com/disk", **how)


@pytest.mark.parametrize(
    ("topologies", "expected"),
    [
        (None, {"a", "b", "c"}),
        ([], {"a", "b", "c"}),
        ([{}], set()),
        ([{ZONE: ["z1"]}], {"a"}),
        ([{ZONE: ["z1", "z2"]}], {"a", "b"}),
        ([{ZONE: ["z1", "z2"], HOSTNAME: ["b"]}, {HOSTNAME: ["c"]}], {"b", "c"}),
    ],
)
def test_a_volume_can_be_made_where_the_allowed_topologies_of_the_class_are(topologies, expected):
    cluster = storage(
        wire_claim("data"),
        made(topologies=topologies),
        labels={"a": {ZONE: "z1"}, "b": {ZONE: "z2"}},
    )
    assert takers(cluster, user()) == expected


def test_a_node_with_a_volume_takes_it_and_on_others_one_is_made():
    cluster = storage(wire_claim("data"), made(), wire_volume("v", nodes=("b",)))
    assert takers(cluster, user()) == {"a", "b", "c"}
    assert planned(cluster, user(), "a") == ({}, ["data"])
    assert planned(cluster, user(), "b") == ({"data": "v"}, [])


def test_a_claim_with_a_selected_node_waits_for_its_volume_there_and_takes_no_other():
    cluster = storage(wire_claim("data", selected="b"), made(), wire_volume("v"))
    assert takers(cluster, user()) == {"b"}
    assert planned(cluster, user(), "b") == ({}, ["data"])
    refusals = {report.name: report.refusals for report in explain(cluster, user(), POLICY).nodes}
    assert refusals["a"] == ("claim data: its volume is to be made for node b",)


def test_a_claim_whose_selected_node_is_gone_finds_none():
    cluster = storage(wire_claim("data", selected="gone"), made())
    assert message(cluster, user()) == "3 node(s) didn't find available persistent volumes to bind"


def test_bound_claims_ask_for_nothing_to_be_done():
    cluster = storage(wire_claim("data", volume="v"), wire_volume("v", phase="Bound"))
    assert plan_volumes(cluster, user(), "a") is None
    assert plan_volumes(cluster, pod("p"), "a") is None


@pytest.mark.parametrize(
    ("capacity", "expected"),
    [
        ({"capacity": "1Gi", "nodeTopology": {}}, {"a", "b", "c"}),
        ({"capacity": "1023Mi", "nodeTopology": {}}, set()),
        ({"capacity": "9Gi", "maximumVolumeSize": "1Mi", "nodeTopology": {}}, set()),
        ({"capacity": "1", "maximumVolumeSize": "1Gi", "nodeTopology": {}}, {"a", "b", "c"}),
        ({"nodeTopology": {}}, set()),
        ({"capacity": "1Gi"}, set()),
        ({"capacity": "1Gi", "nodeTopology": {"matchLabels": {HOSTNAME: "b"}}}, {"b"}),
        ({"capacity": "1Gi", "nodeTopology": {}, "storage_class": "other"}, set()),
    ],
)
def test_a_driver_that_says_where_there_is_room_is_believed(capacity, expected):
    cluster = storage(
        wire_claim("data"),
        made(),
        wire_driver("example.com/disk", tracks_capacity=True),
        wire_capacity("room", **capacity),
    )
    assert takers(cluster, user()) == expected
    if not expected:
        assert message(cluster, user()) == "3 node(s) did not have enough free storage"
    cluster.volumes.put(decoded(wire_driver("example.com/disk", tracks_capacity=False)))
    assert takers(cluster, user()) == {"a", "b", "c"}


def test_room_is_of_no_matter_to_a_volume_that_exists():
    cluster = storage(
        wire_claim("data"),
        made(),
        wire_driver("example.com/disk", tracks_capacity=True),
        wire_volume("v", nodes=("b",)),
    )
    assert takers(cluster, user()) == {"b"}


def test_the_reasons_of_a_node_are_all_told_as_kube_scheduler_does():
    cluster = storage(
        wire_claim("old", volume="v"), wire_claim("new"), wire_class(), wire_volume("v", nodes=("x",), phase="Bound")
    )
    assert message(cluster, user("old", "new")) == (
        "3 node(s) didn't find available persistent volumes to bind, "
        "3 node(s) didn't match PersistentVolume's node affinity"
    )


# Choices of pods that are being bound


def test_a_volume_reserved_by_one_pod_is_not_there_for_another_claim_until_it_is_let_go():
    cluster = storage(wire_claim("one"), wire_claim("two"), wire_class(), wire_volume("v", nodes=("b",)))
    cluster.volumes.reserve("uid-first", plan_volumes(cluster, user("one"), "b"))
    assert takers(cluster, user("two")) == set()
    # A second pod that uses the same claim goes to the same volume.
    assert takers(cluster, user("one")) == {"b"}
    assert cluster.volumes.release("uid-first")
    assert not cluster.volumes.release("uid-first")
    assert takers(cluster, user("two")) == {"b"}


def test_a_node_selected_by_one_pod_holds_for_others_that_use_the_claim():
    cluster = storage(wire_claim("data"), made())
    cluster.volumes.reserve("uid-first", plan_volumes(cluster, user(), "b"))
    cluster.volumes.reserve("uid-second", plan_volumes(cluster, user(), "b"))
    cluster.volumes.release("uid-first")
    assert takers(cluster, user()) == {"b"}
    cluster.volumes.release("uid-second")
    assert takers(cluster, user()) == {"a", "b", "c"}


# One pod a volume


def test_a_claim_for_one_pod_is_not_given_to_a_second():
    claim = wire_claim("data", volume="v", accessModes=["ReadWriteOncePod"])
    cluster = storage(claim, wire_volume("v", phase="Bound"))
    first, reader = pod("first", node="a", spec=using("data")), pod("reader", node="a", spec=using("data"))
    cluster.set_pod(first)
    assert message(cluster, user()) == (
        "3 node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by "
        "another pod"
    )
    cluster.set_pod(reader)
    cluster.remove_pod(first.uid)
    assert takers(cluster, user()) == set()
    cluster.set_pod(pod("reader", node="a", spec=using("data"), status={"phase": "Succeeded"}))
    assert takers(cluster, user()) == {"a", "b", "c"}


def test_a_claim_that_several_pods_may_use_is_given_to_a_second():
    cluster = storage(wire_claim("data", volume="v"), wire_volume("v", phase="Bound"))
    cluster.set_pod(pod("first", node="a", spec=using("data")))
    assert takers(cluster, user()) == {"a", "b", "c"}


def test_a_pod_of_the_same_claim_name_in_another_namespace_is_of_no_matter():
    claim = wire_claim("data", volume="v", accessModes=["ReadWriteOncePod"])
    cluster = storage(claim, wire_volume("v", phase="Bound"))
    cluster.set_pod(pod("first", node="a", namespace="other", spec=using("data")))
    assert takers(cluster, user()) == {"a", "b", "c"}


def test_the_claim_of_an_ephemeral_volume_does_not_count_as_used_by_its_name():
    claim = wire_claim("x-scratch", volume="v", owner="uid-default-x", accessModes=["ReadWriteOncePod"])
    cluster = storage(claim, wire_volume("v", phase="Bound"))
    own = {"volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}]}
    cluster.set_pod(pod("x", node="a", spec=own))
    assert takers(cluster, user("x-scratch")) == {"a", "b", "c"}


def test_the_last_user_of_a_claim_that_leaves_may_let_a_pod_in_on_any_node():
    cluster = storage(wire_claim("data", volume="v"))
    for name in ("first", "second"):
        cluster.set_pod(pod(name, node="a", spec=using("data")))
    cluster.changes.take()
    cluster.remove_pod("uid-default-first")
    assert not cluster.changes.take().everywhere
    cluster.remove_pod("uid-default-second")
    assert cluster.changes.take().everywhere


def test_a_reservation_that_is_let_go_may_let_a_pod_in_on_any_node():
    cluster = storage(wire_claim("data"), made())
    cluster.volumes.reserve("uid-first", plan_volumes(cluster, user(), "b"))
    cluster.changes.take()
    cluster.volumes.release("uid-first")
    assert cluster.changes.take().everywhere


# Limits of attached volumes


def disk(name, handle=None, **how):
    """A volume of the driver `disk.example`."""
    csi = {"driver": "disk.example", "volumeHandle": handle or f"handle-{name}"}
    return wire_volume(name, phase="Bound", csi=csi, claim={"namespace": "default", "name": f"c-{name}"}, **how)


def limited(*items, **limits):
    """Nodes that may attach so many volumes of `disk.example`; claim `c-v1` has volume `v1`, and so on."""
    names = [f"v{number}" for number in range(1, 6)]
    claims = [wire_claim(f"c-{name}", volume=name) for name in names]
    csi_nodes = [wire_csi_node(name, disk_example=limit) for name, limit in limits.items()]
    return storage(*claims, *map(disk, names), *csi_nodes, *items)


def holding(cluster, node_name, name, *claims):
    cluster.set_pod(pod(name, node=node_name, spec=using(*claims)))


def test_a_node_takes_as_many_volumes_of_a_driver_as_it_states_and_one_that_states_none_any_number():
    cluster = limited(a=2, b=1)
    holding(cluster, "a", "x", "c-v1")
    holding(cluster, "b", "y", "c-v2")
    holding(cluster, "c", "z", "c-v3")
    assert takers(cluster, user("c-v4")) == {"a", "c"}
    assert takers(cluster, user("c-v4", "c-v5")) == {"c"}
    refusals = {report.name: report.refusals for report in explain(cluster, user("c-v4", "c-v5"), POLICY).nodes}
    assert refusals["a"] == ("1 volumes of disk.example attached + 2 asked > limit of 2",)
    cluster.volumes.put(decoded(wire_csi_node("c", disk_example=1)))
    assert message(cluster, user("c-v4", "c-v5")) == "3 node(s) exceed max volume count"


def test_a_volume_that_another_pod_of_the_node_uses_is_not_counted_again():
    cluster = limited(a=1, b=0, c=0)
    holding(cluster, "a", "x", "c-v1")
    assert takers(cluster, user("c-v1")) == {"a"}
    assert takers(cluster, user("c-v2")) == set()


def test_two_volumes_of_one_handle_are_one():
    same = [disk("v1", handle="same"), disk("v2", handle="same")]
    cluster = limited(*same, a=1, b=0, c=0)
    holding(cluster, "a", "x", "c-v1")
    assert takers(cluster, user("c-v2")) == {"a"}


def test_a_pod_that_leaves_frees_what_only_it_used():
    cluster = limited(a=2, b=0, c=0)
    holding(cluster, "a", "x", "c-v1", "c-v2")
    holding(cluster, "a", "y", "c-v2")
    assert takers(cluster, user("c-v3")) == set()
    cluster.remove_pod("uid-default-x")
    assert takers(cluster, user("c-v3")) == {"a"}


def test_what_is_attached_and_used_by_no_pod_counts_until_it_is_detached():
    attached = wire_attachment("att", node="a", volume="v1")
    cluster = limited(attached, wire_attachment("inline", node="a", volume=None), a=1, b=0, c=0)
    assert takers(cluster, user("c-v2")) == set()
    holding(cluster, "a", "x", "c-v1")
    cluster.remove_pod("uid-default-x")
    cluster.volumes.drop(Attachment, ("", "att"))
    assert takers(cluster, user("c-v2")) == {"a"}


def test_a_volume_both_used_and_attached_counts_once():
    cluster = limited(wire_attachment("att", node="a", volume="v1"), a=2, b=0, c=0)
    holding(cluster, "a", "x", "c-v1")
    assert takers(cluster, user("c-v2")) == {"a"}


def test_a_volume_that_is_still_to_be_made_counts_by_the_class_of_its_claim():
    cluster = limited(wire_class(provisioner="disk.example"), wire_claim("new"), wire_claim("newer"), a=1, b=0, c=0)
    assert takers(cluster, user("new")) == {"a"}
    holding(cluster, "a", "x", "new")
    assert takers(cluster, user("newer")) == set()


def test_a_volume_that_appears_late_is_counted_by_its_own_handle():
    late = wire_claim("late", volume="late", storage_class="made")
    cluster = limited(wire_class("made", provisioner="disk.example"), late, a=1, b=0, c=0)
    holding(cluster, "a", "x", "late")
    assert takers(cluster, user("c-v1")) == set()
    cluster.volumes.put(decoded(disk("late", handle="handle-v1")))
    assert takers(cluster, user("c-v1")) == {"a"}


def test_volumes_of_plugins_that_a_csi_driver_stands_in_for_count_as_its_own():
    old = wire_volume("old", phase="Bound", gcePersistentDisk={"pdName": "x"})
    cluster = storage(
        wire_claim("data", volume="old"), old, *(wire_csi_node(name, pd_csi_storage_gke_io=0) for name in "ab")
    )
    assert takers(cluster, user()) == {"c"}


def test_a_volume_that_no_driver_attaches_is_not_limited():
    cluster = limited(wire_claim("data"), wire_class(), wire_volume("v", nodes=("a",)), a=0)
    assert takers(cluster, user()) == {"a"}


_steps = st.lists(
    st.one_of(
        st.tuples(st.just("pod"), st.sampled_from("pqr"), st.sampled_from("ab"), st.sets(st.sampled_from("123"))),
        st.tuples(st.just("remove"), st.sampled_from("pqr")),
        st.tuples(st.just("claim"), st.sampled_from("123"), st.sampled_from(["", "v1", "v2"])),
        st.tuples(st.just("volume"), st.sampled_from(["v1", "v2"]), st.sampled_from("123"), st.sampled_from("xy")),
        st.tuples(st.just("drop volume"), st.sampled_from(["v1", "v2"])),
        st.tuples(st.just("attach"), st.sampled_from("mn"), st.sampled_from("ab"), st.sampled_from(["v1", "v2"])),
        st.tuples(st.just("detach"), st.sampled_from("mn")),
        st.tuples(st.just("class"), st.sampled_from(["disk.example", "kubernetes.io/no-provisioner"])),
    ),
    max_size=20,
)


@given(_steps)
def test_what_is_counted_of_a_node_is_what_would_be_counted_afresh(steps):
    cluster = storage()
    attachments = cluster.volumes.attachments
    for step in steps:
        match step:
            case ("pod", name, where, claims):
                cluster.set_pod(pod(name, node=where, spec=using(*sorted(claims))))
            case ("remove", name):
                cluster.remove_pod(f"uid-default-{name}")
            case ("claim", name, volume):
                cluster.volumes.put(decoded(wire_claim(name, volume=volume or None)))
            case ("volume", name, claim, handle):
                reference = {"namespace": "default", "name": claim}
                csi = {"driver": "disk.example", "volumeHandle": handle}
                cluster.volumes.put(decoded(wire_volume(name, claim=reference, csi=csi)))
            case ("drop volume", name):
                cluster.volumes.drop(Volume, ("", name))
            case ("attach", name, where, volume):
                cluster.volumes.put(decoded(wire_attachment(name, node=where, volume=volume)))
            case ("detach", name):
                cluster.volumes.drop(Attachment, ("", name))
            case ("class", provisioner):
                cluster.volumes.put(decoded(wire_class(provisioner=provisioner)))
        kept = [attachments.on(name, "disk.example") for name in "ab"]
        attachments.all_changed()
        assert kept == [attachments.on(name, "disk.example") for name in "ab"]


# Only the active replica writes


@pytest.mark.parametrize("claims", [("kept",), ("made",)])
async def test_a_replica_that_may_not_write_has_no_volume_bound(claims):
    cluster = storage(
        wire_claim("kept"),
        wire_class(),
        wire_volume("v", nodes=("b",)),
        wire_claim("made", storage_class="made"),
        wire_class("made", provisioner="example.com/disk"),
    )
    client = NoClient()
    binder = VolumeBinder(cast(Any, client), cluster, SchedulingQueue(cluster), lambda: 0.0, lambda: False)
    pod = user(*claims)
    plan = plan_volumes(cluster, pod, "b")
    assert plan is not None
    cluster.volumes.reserve(pod.uid, plan)
    with pytest.raises(NotBound):
        await binder.bind(pod, plan, wrote=lambda: pytest.fail("it wrote"))
    assert not client.asked
    assert len(binder) == 0


class NoClient:
    """In the place of the API client: remembers what it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def request(self, verb: str, *_: Any, **__: Any) -> bytes:
        self.asked.append(verb)
        return b'{"metadata":{"resourceVersion":"9"}}'
