"""Pods that claim volumes, in the real loop against a server that misbehaves."""

import logging

import pytest
from turb_kub.loop import volumes

from tests.api.double import answers, cuts_off
from tests.api.running import Token, running, until
from tests.unit.objects import wire_pod
from tests.unit.storage import using, wire_claim, wire_class, wire_volume


@pytest.fixture(autouse=True)
def told_by_events_alone(monkeypatch):
    """A pod that waits is looked at only when the watches tell something that concerns it."""
    monkeypatch.setattr(volumes, "LOOK_EVERY", 3600.0)


def conditions(double, name):
    return [c["message"] for c in double.pod(name)["status"].get("conditions", []) if c["type"] == "PodScheduled"]


def claim_of(double, name="data"):
    return double.objects["persistentvolumeclaims"]["default", name]


def volume_of(double, name):
    return double.objects["persistentvolumes"]["", name]


def selected(double, name="data"):
    """The node for which the claim's volume is to be made, or None."""
    return claim_of(double, name)["metadata"]["annotations"].get("volume.kubernetes.io/selected-node")


def kept_for(double, name):
    """The name and uid of the claim that a volume is kept for, or None."""
    reference = volume_of(double, name)["spec"].get("claimRef")
    return reference and (reference["name"], reference["uid"])


def bind(double, claim, volume):
    """Do what the PersistentVolume controller does with a claim and the volume that is kept or made for it."""
    bound = volume_of(double, volume)
    meta = claim_of(double, claim)["metadata"]
    reference = {"namespace": "default", "name": claim, "uid": meta["uid"]}
    double.put(
        "persistentvolumes", bound | {"spec": bound["spec"] | {"claimRef": reference}, "status": {"phase": "Bound"}}
    )
    item = claim_of(double, claim)
    annotations = meta["annotations"] | {"pv.kubernetes.io/bind-completed": "yes"}
    changed = {"metadata": meta | {"annotations": annotations}, "spec": item["spec"] | {"volumeName": volume}}
    double.put("persistentvolumeclaims", item | changed | {"status": {"phase": "Bound"}})


def annotate(double, claim, **annotations):
    """Set (or, with None, take off) annotations of a claim as another would."""
    item = claim_of(double, claim)
    merged = {key: value for key, value in (item["metadata"]["annotations"] | annotations).items() if value is not None}
    double.put("persistentvolumeclaims", item | {"metadata": item["metadata"] | {"annotations": merged}})


def unselect(double, claim="data"):
    annotate(double, claim, **{"volume.kubernetes.io/selected-node": None})


def storage(double, *items):
    kinds = {
        "PersistentVolumeClaim": "persistentvolumeclaims",
        "PersistentVolume": "persistentvolumes",
        "StorageClass": "storageclasses",
    }
    for item in items:
        double.put(kinds[item["kind"]], item)


def made():
    """A class whose volumes are made on demand."""
    return wire_class(provisioner="example.com/disk")


async def writes(double, resource, number):
    """Wait for that many writes to a resource."""
    await until(lambda: double.requests["PATCH", resource] == number)


def at_rest(scheduler):
    """Nothing is assumed, reserved or waited for any more."""
    return not scheduler.cluster.assumed_count and not scheduler._volumes and not scheduler.cluster.volumes._plans


# Reading


@pytest.mark.parametrize(("code", "reason"), [(403, "Forbidden"), (404, "NotFound")])
async def test_storage_that_may_not_be_read_holds_up_only_pods_with_claims_and_only_until_it_may(
    double, caplog, code, reason
):
    double.put("persistentvolumeclaims", wire_claim("data", volume="v"))
    double.put("persistentvolumes", wire_volume("v", nodes=("node-2",), phase="Bound"))
    double.fault("GET", "persistentvolumes", *[answers(code, reason)] * 2)
    double.put("pods", wire_pod("plain"))
    double.put("pods", wire_pod("stateful", spec=using("data")))
    with caplog.at_level(logging.WARNING):
        async with running(Token(double.url)) as scheduler:
            await until(lambda: double.node_of("plain"))
            await until(lambda: conditions(double, "stateful"))
            await until(lambda: double.node_of("stateful"))
            assert scheduler.queue.rescued_by_flush == 0
    assert double.node_of("stateful") == "node-2"
    told = double.patches[0]["status"]["conditions"][0]["message"]
    assert "these could not be read: persistentvolumes (the API server does not list them)" in told
    assert caplog.text.count("pods that claim volumes wait until persistentvolumes can be read") == 1


async def test_nothing_is_placed_before_storage_is_known(double):
    double.put("persistentvolumeclaims", wire_claim("data", volume="v"))
    double.put("persistentvolumes", wire_volume("v", phase="Bound"))
    double.put("pods", wire_pod("stateful", spec=using("data")))
    double.fault("GET", "persistentvolumeclaims", *[answers(500, "InternalError")] * 2)
    async with running(Token(double.url)):
        await until(lambda: double.node_of("stateful"))
    assert not double.patches


async def test_a_claim_that_comes_late_lets_its_pod_go(double):
    double.put("persistentvolumes", wire_volume("v", nodes=("node-2",), phase="Bound"))
    async with running(Token(double.url)) as scheduler:
        double.put("pods", wire_pod("stateful", spec=using("data")))
        await until(lambda: conditions(double, "stateful"))
        assert conditions(double, "stateful") == ['0/2 nodes are available: persistentvolumeclaim "data" not found.']
        double.put("persistentvolumeclaims", wire_claim("data", volume="v"))
        await until(lambda: double.node_of("stateful"))
        assert scheduler.queue.rescued_by_flush == 0
    assert double.node_of("stateful") == "node-2"


# Binding


async def test_an_available_volume_is_kept_for_the_claim_and_the_pod_bound_once_both_are_bound(double):
    storage(double, wire_class(), wire_claim("data"), wire_volume("v2", nodes=("node-2",)))
    async with running(Token(double.url)) as scheduler:
        double.put("pods", wire_pod("p", spec=using("data")))
        await until(lambda: kept_for(double, "v2"))
        assert kept_for(double, "v2") == ("data", "uid-data")
        assert volume_of(double, "v2")["metadata"]["annotations"] == {"pv.kubernetes.io/bound-by-controller": "yes"}
        await until(lambda: scheduler._volumes)
        assert double.node_of("p") is None
        # Its room is taken for as long as it waits.
        assert [pod.name for pod in scheduler.cluster.pods_on("node-2")] == ["p"]
        bind(double, "data", "v2")
        await until(lambda: double.node_of("p"))
        await until(lambda: at_rest(scheduler))
    assert double.node_of("p") == "node-2"
    assert double.requests["PATCH", "persistentvolumes"] == 1
    assert double.requests["PATCH", "persistentvolumeclaims"] == 0
    assert not double.patches


async def test_a_volume_is_made_for_the_chosen_node_and_the_pod_bound_once_it_is(double):
    storage(double, made(), wire_claim("data"))
    double.put("pods", wire_pod("other", node="node-1", memory="1Gi"))
    async with running(Token(double.url)) as scheduler:
        double.put("pods", wire_pod("p", spec=using("data")))
        await until(lambda: selected(double))
        assert selected(double) == "node-2"
        storage(double, wire_volume("made", nodes=("node-2",), claim={"namespace": "default", "name": "data"}))
        bind(double, "data", "made")
        await until(lambda: double.node_of("p"))
        await until(lambda: at_rest(scheduler))
    assert double.node_of("p") == "node-2"
    assert double.requests["PATCH", "persistentvolumeclaims"] == 1
    assert not double.patches


async def test_a_pod_that_waits_for_its_volume_holds_up_nobody(double):
    storage(double, made(), *(wire_claim(f"data{number}") for number in range(5)))
    async with running(Token(double.url), binds_in_flight=1) as scheduler:
        for number in range(5):
            double.put("pods", wire_pod(f"waits{number}", spec=using(f"data{number}")))
        await until(lambda: len(scheduler._volumes) == 5)
        double.put("pods", wire_pod("plain"))
        await until(lambda: double.node_of("plain"))
        assert len(scheduler._volumes) == 5
    assert not any(double.node_of(f"waits{number}") for number in range(5))


async def test_a_provisioner_that_fails_has_the_pod_decided_again_and_the_pod_says_so_once(double):
    storage(double, made(), wire_claim("data"))
    async with running(Token(double.url)) as scheduler:
        double.put("pods", wire_pod("p", spec=using("data")))
        for number in (1, 2):
            await writes(double, "persistentvolumeclaims", number)
            await until(lambda: scheduler._volumes)
            unselect(double)
        await writes(double, "persistentvolumeclaims", 3)
        await until(lambda: selected(double) and conditions(double, "p"))
        (patch,) = double.patches
        (condition,) = patch["status"]["conditions"]
        assert condition["reason"] == "SchedulerError"
        assert condition["message"] == 'binding volumes: provisioning failed for PVC "data"'
        storage(double, wire_volume("made", claim={"namespace": "default", "name": "data"}))
        bind(double, "data", "made")
        await until(lambda: double.node_of("p"))
        await until(lambda: at_rest(scheduler))
    assert [event["reason"] for event in double.events].count("FailedScheduling") == 1


@pytest.mark.parametrize(
    ("happens", "why"),
    [
        (lambda double: double.delete("persistentvolumeclaims", "data"), 'persistentvolumeclaim "data" not found'),
        (
            lambda double: double.put("persistentvolumeclaims", wire_claim("data", deleting=True)),
            'persistentvolumeclaim "data" is being deleted',
        ),
        (
            lambda double: double.put("persistentvolumeclaims", wire_claim("data", uid="made-anew", storage="9Gi")),
            'persistentvolumeclaim "data" not found',
        ),
        (lambda double: double.delete("persistentvolumes", "v"), 'persistentvolume "v" not found'),
        (
            lambda double: double.put("persistentvolumes", wire_volume("v", storage="1")),
            'ClaimRef got reset for pv "v"',
        ),
    ],
)
async def test_what_goes_or_is_taken_away_while_a_pod_waits_ends_the_wait(double, happens, why):
    storage(double, wire_class(), wire_claim("data"), wire_volume("v"))
    async with running(Token(double.url)) as scheduler:
        double.put("pods", wire_pod("p", spec=using("data")))
        await until(lambda: kept_for(double, "v") and scheduler._volumes)
        happens(double)
        await until(lambda: double.patches)
        await until(lambda: at_rest(scheduler))
    assert double.patches[0]["status"]["conditions"][0]["message"] == f"binding volumes: {why}"
    assert double.node_of("p") is None


async def test_a_volume_bound_elsewhere_than_the_node_ends_the_wait_and_the_pod_follows_it(double):
    storage(double, made(), wire_claim("data"))
    async with running(Token(double.url)) as scheduler:
        double.put("pods", wire_pod("p", spec=using("data")))
        await until(lambda: selected(double) == "node-1" and scheduler._volumes)
        storage(double, wire_volume("made", nodes=("node-2",)))
        bind(double, "data", "made")
        await until(lambda: double.node_of("p"))
        await until(lambda: at_rest(scheduler))
    assert double.node_of("p") == "node-2"
    assert double.patches[0]["status"]["conditions"][0]["message"] == (
        'binding volumes: pv "made" node affinity doesn\'t match node "node-1"'
    )


async def test_a_claim_bound_to_another_volume_than_was_kept_for_it_is_followed_too(double):
    storage(double, wire_class(), wire_claim("data"), wire_volume("v", nodes=("node-1",)))
    async with running(Token(double.url)) as scheduler:
        double.put("pods", wire_pod("p", spec=using("data")))
        await until(lambda: kept_for(double, "v") and scheduler._volumes)
        storage(double, wire_volume("other", nodes=("node-2",)))
        bind(double, "data", "other")
        await until(lambda: double.node_of("p"))
    assert double.node_of("p") == "node-2"


async def test_a_pod_deleted_while_it_waits_leaves_its_room_and_its_volume_to_the_next(double):
    storage(double, wire_class(), wire_claim("one"), wire_claim("two"), wire_volume("v"))
    async with running(Token(double.url)) as scheduler:
        double.muted.add("persistentvolumes")
        double.put("pods", wire_pod("p", spec=using("one")))
        await until(lambda: kept_for(double, "v") and scheduler._volumes)
        double.delete("pods", "p")
        await until(lambda: at_rest(scheduler))
        assert not scheduler.cluster.pods_on("node-1")
    assert not double.patches
    assert not double.events


async def test_two_pods_that_want_one_volume_do_not_both_get_it(double):
    storage(double, wire_class(), wire_claim("one"), wire_claim("two"), wire_volume("v"))
    async with running(Token(double.url)) as scheduler:
        for name in ("one", "two"):
            double.put("pods", wire_pod(name, spec=using(name)))
        await until(lambda: double.patches and scheduler._volumes)
        kept, _ = kept_for(double, "v")
        other = "two" if kept == "one" else "one"
        bind(double, kept, "v")
        await until(lambda: double.node_of(kept))
        assert double.node_of(other) is None
        assert conditions(double, other) == [
            "0/2 nodes are available: 2 node(s) didn't find available persistent volumes to bind."
        ]
        storage(double, wire_volume("w"))
        await until(lambda: kept_for(double, "w"))
        bind(double, other, "w")
        await until(lambda: double.node_of(other))
        await until(lambda: at_rest(scheduler))
        assert scheduler.queue.rescued_by_flush == 0
    assert double.requests["PATCH", "persistentvolumes"] == 2


async def test_pods_that_share_a_claim_go_where_its_volume_is(double):
    storage(double, made(), wire_claim("data"))
    async with running(Token(double.url)) as scheduler:
        for name in ("p", "q"):
            double.put("pods", wire_pod(name, memory="1Gi", spec=using("data")))
        await until(lambda: selected(double))
        storage(double, wire_volume("made", nodes=(selected(double),)))
        bind(double, "data", "made")
        await until(lambda: double.node_of("p") and double.node_of("q"))
        await until(lambda: at_rest(scheduler))
    assert double.node_of("p") == double.node_of("q") == "node-1"


@pytest.mark.parametrize("fault", [answers(409, "Conflict"), answers(503, "ServiceUnavailable"), cuts_off()])
async def test_a_write_that_was_not_or_not_surely_carried_out_has_the_pod_decided_again_without_a_word(double, fault):
    storage(double, wire_class(), wire_claim("data"), wire_volume("v", nodes=("node-2",)))
    double.fault("PATCH", "persistentvolumes", fault)
    async with running(Token(double.url)) as scheduler:
        double.put("pods", wire_pod("p", spec=using("data")))
        await until(lambda: kept_for(double, "v"))
        bind(double, "data", "v")
        await until(lambda: double.node_of("p"))
        await until(lambda: at_rest(scheduler))
    assert double.requests["PATCH", "persistentvolumes"] == 2
    assert not double.patches


async def test_a_volume_that_another_scheduler_took_first_is_left_alone(double):
    storage(
        double,
        wire_class(),
        wire_claim("data"),
        wire_claim("theirs"),
        wire_volume("v"),
        wire_volume("w", storage="2Gi"),
    )
    async with running(Token(double.url)) as scheduler:
        double.muted.add("persistentvolumes")
        taken = volume_of(double, "v")
        reference = {"namespace": "default", "name": "theirs", "uid": "uid-theirs"}
        taken = double.put("persistentvolumes", taken | {"spec": taken["spec"] | {"claimRef": reference}})
        double.put("pods", wire_pod("p", spec=using("data")))
        await until(lambda: double.requests["PATCH", "persistentvolumes"] == 1)
        double.muted.clear()
        double.put("persistentvolumes", taken)
        await until(lambda: kept_for(double, "w"))
        bind(double, "data", "w")
        await until(lambda: double.node_of("p"))
        await until(lambda: at_rest(scheduler))
    assert kept_for(double, "v") == ("theirs", "uid-theirs")
    assert not double.patches


async def test_a_write_that_is_refused_for_good_is_told(double):
    storage(double, made(), wire_claim("data"))
    double.fault("PATCH", "persistentvolumeclaims", answers(403, "Forbidden", "claims may not be patched"))
    async with running(Token(double.url)):
        double.put("pods", wire_pod("p", spec=using("data")))
        await until(lambda: conditions(double, "p"))
        await until(lambda: selected(double))
    assert double.patches[0]["status"]["conditions"][0]["message"] == (
        "binding volumes: 403 Forbidden: claims may not be patched"
    )


async def test_a_pod_that_changes_while_it_waits_is_bound_as_it_is_then(double):
    storage(double, made(), wire_claim("data"))
    async with running(Token(double.url)) as scheduler:
        double.put("pods", wire_pod("p", memory="1Gi", spec=using("data")))
        await until(lambda: selected(double) and scheduler._volumes)
        double.put("pods", wire_pod("p", memory="1Gi", spec=using("data") | {"hostname": "x"}))
        double.put("pods", wire_pod("p", memory="2Gi", spec=using("data")))
        await until(lambda: {pod.memory for pod in scheduler.queue.pods()} == {2 * 2**30})
        storage(double, wire_volume("made"))
        bind(double, "data", "made")
        await until(lambda: double.node_of("p"))
        await until(lambda: at_rest(scheduler))
        assert scheduler.cluster.pods_on("node-1")[0].memory == 2 * 2**30
    assert double.requests["POST", "pods/binding"] == 1
    assert not double.patches


async def test_a_pod_whose_condition_alone_changes_while_it_waits_keeps_its_room(double):
    storage(double, made(), wire_claim("data"))
    async with running(Token(double.url)) as scheduler:
        double.put("pods", wire_pod("p", spec=using("data")))
        await until(lambda: selected(double) and scheduler._volumes)
        touched = double.put("pods", wire_pod("p", spec=using("data"), status={"conditions": [{"type": "Odd"}]}))
        version = int(touched["metadata"]["resourceVersion"])
        await until(lambda: {pod.resource_version for pod in scheduler.queue.pods()} == {version})
        storage(double, wire_volume("made"))
        bind(double, "data", "made")
        await until(lambda: double.node_of("p"))
    assert double.requests["POST", "pods/binding"] == 1


async def test_a_node_that_goes_ends_the_wait(double, monkeypatch):
    monkeypatch.setattr(volumes, "LOOK_EVERY", 0.01)
    storage(double, made(), wire_claim("data"))
    async with running(Token(double.url)) as scheduler:
        double.put("pods", wire_pod("p", spec=using("data")))
        await until(lambda: selected(double) == "node-1" and scheduler._volumes)
        double.delete("nodes", "node-1")
        await until(lambda: conditions(double, "p"))
        assert double.patches[0]["status"]["conditions"][0]["message"] == 'binding volumes: node "node-1" not found'
        unselect(double)
        await until(lambda: selected(double) == "node-2")


async def test_a_wait_without_end_is_given_up_and_begun_anew(double, monkeypatch):
    monkeypatch.setattr(volumes, "BIND_WITHIN", 0.05)
    storage(double, made(), wire_claim("data"))
    async with running(Token(double.url)) as scheduler:
        double.put("pods", wire_pod("p", spec=using("data")))
        await until(lambda: conditions(double, "p"))
        assert conditions(double, "p") == ["binding volumes: not bound within 0 s"]
        storage(double, wire_volume("made"))
        bind(double, "data", "made")
        await until(lambda: double.node_of("p"))
        await until(lambda: at_rest(scheduler))
    assert double.requests["PATCH", "persistentvolumeclaims"] == 1


async def test_a_scheduler_that_stops_leaves_what_waits_and_the_next_one_takes_it_up(double):
    storage(double, made(), wire_claim("data"))
    async with running(Token(double.url)) as scheduler:
        double.put("pods", wire_pod("p", spec=using("data")))
        await until(lambda: selected(double) and scheduler._volumes)
    assert not scheduler._volumes
    assert double.node_of("p") is None
    async with running(Token(double.url)) as scheduler:
        await until(lambda: scheduler._volumes)
        storage(double, wire_volume("made"))
        bind(double, "data", "made")
        await until(lambda: double.node_of("p"))
    assert double.requests["PATCH", "persistentvolumeclaims"] == 1


async def test_a_volume_that_is_kept_already_is_not_written_to_again(double):
    reference = {"namespace": "default", "name": "data", "uid": "uid-data"}
    storage(double, wire_class(), wire_claim("data"), wire_volume("v", nodes=("node-2",), claim=reference))
    async with running(Token(double.url)) as scheduler:
        double.put("pods", wire_pod("p", spec=using("data")))
        await until(lambda: scheduler._volumes)
        bind(double, "data", "v")
        await until(lambda: double.node_of("p"))
    assert double.node_of("p") == "node-2"
    assert double.requests["PATCH", "persistentvolumes"] == 0


async def test_a_volume_that_a_person_kept_for_the_claim_stays_marked_as_theirs(double):
    reference = {"namespace": "default", "name": "data"}
    storage(double, wire_class(), wire_claim("data"), wire_volume("v", claim=reference))
    async with running(Token(double.url)):
        double.put("pods", wire_pod("p", spec=using("data")))
        await until(lambda: double.requests["PATCH", "persistentvolumes"])
        assert volume_of(double, "v")["spec"]["claimRef"]["uid"] == "uid-data"
        assert "annotations" not in volume_of(double, "v")["metadata"]
        bind(double, "data", "v")
        await until(lambda: double.node_of("p"))
