"""The scheduler on a real API server, as its own ServiceAccount under the very ClusterRole that is deployed."""

import asyncio
import json
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from turb_kub.api.client import Client
from turb_kub.api.credentials import load_credentials
from turb_kub.api.errors import ApiError
from turb_kub.api.events import event_body, failed, scheduled
from turb_kub.api.pods import Answer, bind, read_pod, set_unscheduled
from turb_kub.cli.connect import probe
from turb_kub.cli.errors import CommandError
from turb_kub.cli.main import main
from turb_kub.decision import fields
from turb_kub.objects.pod import Verdict, decode_pod

from tests.api.conftest import Admin, rbac_objects
from tests.api.running import running, until
from tests.unit.storage import using

pytestmark = pytest.mark.cluster

LIMIT = 2048 * 2**20
#: A lease that is renewed while a test looks on.
QUICK: dict[str, Any] = {"retry_period_seconds": 0.2}


async def place(admin, name, **how):
    await admin.create_pod(name, **how)

    async def node():
        return (await admin.pod(name))["spec"].get("nodeName")

    return await admin.seen(node)


def requests_of(scheduler):
    """What was asked of the API server: (verb, resource, status) to count."""
    found = {}
    for metric in scheduler.metrics.registry.collect():
        if metric.name == "turb_kub_api_requests":
            for sample in metric.samples:
                if sample.name.endswith("_total"):
                    labels = sample.labels
                    found[labels["verb"], labels["resource"], labels["status"]] = sample.value
    return found


async def test_the_three_pods_spread_and_each_placement_is_told(admin, identity):
    async with running(await load_credentials(str(identity), None), node_mem_limit_mb=LIMIT) as scheduler:
        homes = {}
        for name, memory in (("pod1", "768Mi"), ("pod2", "1024Mi"), ("pod3", "768Mi")):
            homes[name] = await place(admin, name, requests={"memory": memory})
            await until(lambda: not scheduler.cluster.assumed_count)
        pod3 = await admin.pod("pod3")
        (event,) = await admin.seen(lambda: admin.events_of(pod3))
    assert homes == {"pod1": "node-1", "pod2": "node-2", "pod3": "node-1"}
    assert (event["type"], event["reason"], event["action"]) == ("Normal", "Scheduled", "Binding")
    assert event["note"] == "Successfully assigned default/pod3 to node-1"
    assert event["reportingController"] == "turb-kub"
    decision = json.loads(event["metadata"]["annotations"]["turb-kub.io/decision"])
    assert decision["nodes"][0] == {
        "name": "node-1",
        "rank": 768 * 2**20,
        "requested": "768Mi",
        "ceiling": "2048Mi",
    }
    scheduled_condition = next(c for c in pod3["status"]["conditions"] if c["type"] == "PodScheduled")
    assert scheduled_condition["status"] == "True"


async def test_a_pod_that_fits_nowhere_is_told_so_and_placed_when_room_appears(admin, identity):
    async with running(await load_credentials(str(identity), None), node_mem_limit_mb=LIMIT) as scheduler:
        for name in ("a", "b"):
            await place(admin, name, requests={"memory": "1500Mi"})
        await admin.create_pod("c", requests={"memory": "1Gi"})

        async def verdict():
            conditions = (await admin.pod("c"))["status"].get("conditions", [])
            return next((c for c in conditions if c["type"] == "PodScheduled"), None)

        condition = await admin.seen(verdict)
        assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")
        assert condition["message"] == "0/2 nodes are available: 2 node(s) exceeded NODE_MEM_LIMIT_MB."
        assert datetime.fromisoformat(condition["lastTransitionTime"]).tzinfo is not None
        pod = await admin.pod("c")
        (event,) = await admin.seen(lambda: admin.events_of(pod))
        assert (event["reason"], event["note"]) == ("FailedScheduling", condition["message"])
        home = (await admin.pod("b"))["spec"]["nodeName"]
        await admin.delete_pod("b")

        async def node():
            return (await admin.pod("c"))["spec"].get("nodeName")

        assert await admin.seen(node) == home
        assert scheduler.queue.rescued_by_flush == 0


async def test_every_verb_of_the_roles_is_used_and_none_is_missing(admin, identity, disks):
    credentials = await load_credentials(str(identity), None)
    await disks.storage_class("local")
    await disks.storage_class("made", provisioner="example.com/disk")
    await disks.volume("v", "node-1")
    await disks.claim("kept")
    await disks.claim("provisioned", storage_class="made")
    with suppress(ApiError):  # one that an earlier test left need not be made
        await admin.call("DELETE", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/turb-kub")
    async with running(credentials, node_mem_limit_mb=LIMIT, leader_elect=True, **QUICK) as scheduler:
        await place(admin, "fits", requests={"memory": "1Mi"}, **using("kept"))
        await until(lambda: ("PUT", "leases", "200") in requests_of(scheduler))
        await admin.create_pod("waits", **using("provisioned"))
        await until(lambda: ("PATCH", "persistentvolumeclaims", "200") in requests_of(scheduler))
        pod = await admin.create_pod("large", requests={"memory": "4Gi"})
        await admin.seen(lambda: admin.events_of(pod))
        await until(lambda: ("PATCH", "pods/status", "200") in requests_of(scheduler))
        await until(lambda: ("POST", "events", "201") in requests_of(scheduler))
        async with Client(credentials) as client:
            assert await read_pod(client, decode_pod(json.dumps(pod))) is not None
        made = requests_of(scheduler)
    assert not [request for request in made if request[2] in {"401", "403"}]
    verbs = {"POST": "create", "PATCH": "patch", "WATCH": "watch", "GET": "list", "PUT": "update"}
    used = {(verbs[verb], resource) for verb, resource, _ in made} | {("get", "pods")}
    # The one resource that is read by name alone.
    used = (used - {("list", "leases")}) | {("get", "leases")}
    roles = [item for item in rbac_objects() if item["kind"] in {"ClusterRole", "Role"}]
    rules = [rule for role in roles for rule in role["rules"]]
    granted = {(verb, name) for rule in rules for verb in rule["verbs"] for name in rule["resources"]}
    assert used == granted


async def test_an_identity_without_rights_is_told_which(admin, identity):
    (role,) = [item for item in rbac_objects() if item["kind"] == "ClusterRole"]
    path = f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{role['metadata']['name']}"
    await admin.call("DELETE", path)
    try:
        async with Client(await load_credentials(str(identity), None)) as client:

            async def refused():
                try:
                    await probe(client, ("/api/v1/nodes", "nodes"))
                except CommandError as error:
                    return str(error)
                return None

            told = await admin.seen(refused)
    finally:
        await admin.call("POST", path.rpartition("/")[0], role)
    assert "this identity may not list nodes (403)" in told
    assert "grant it the ClusterRole turb-kub" in told


async def test_status_shows_where_pods_went_and_why(admin, identity, control_plane, capsys):
    async with running(await load_credentials(str(identity), None), node_mem_limit_mb=LIMIT):
        await place(admin, "a", requests={"memory": "900Mi"})
        await place(admin, "b", requests={"memory": "1Gi"})
        waiting = await admin.create_pod("c", requests={"memory": "1200Mi"})
        await admin.create_pod("d", requests={"memory": "1Mi"}, schedulingGates=[{"name": "example.com/wait"}])
        for name in ("a", "b"):
            pod = await admin.pod(name)
            await admin.seen(lambda pod=pod: admin.events_of(pod))
        await admin.seen(lambda: admin.events_of(waiting))
    arguments = ["--kubeconfig", str(control_plane.work / "kubeconfig"), "--node-mem-limit-mb", "2048"]
    assert await asyncio.to_thread(main, ["status", *arguments]) == 0
    shown = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert shown[1].startswith("node-1 Ready █")
    assert shown[1].endswith(" 44% 900Mi 2048Mi 16384Mi 1")
    assert shown[2].endswith(" 50% 1024Mi 2048Mi 16384Mi 1")
    rows = {line.split()[0]: line for line in shown if line.startswith(("default/", "node-"))}
    assert "node-1 tied on least requested memory, first by name: node-1 0Mi, node-2 0Mi" in rows["default/a"]
    assert "node-2 least requested memory: node-2 0Mi before node-1 900Mi" in rows["default/b"]
    assert "0/2 nodes are available: 2 node(s) exceeded NODE_MEM_LIMIT_MB." in rows["default/c"]
    assert "node-2: 1024Mi requested + 1200Mi asked > 2048Mi ceiling, short by 176Mi" in shown
    assert "waits for its scheduling gates: example.com/wait" in rows["default/d"]

    # Events are kept for an hour; without them the decision is made afresh, and said to be.
    await admin.call("DELETE", "/apis/events.k8s.io/v1/namespaces/default/events")
    assert await asyncio.to_thread(main, ["status", "-o", "json", *arguments]) == 0
    found = {pod["name"]: pod for pod in json.loads(capsys.readouterr().out)["pods"]}
    assert {name: pod["as_of_now"] for name, pod in found.items()} == {"a": True, "b": True, "c": True, "d": True}
    assert found["b"]["node"] == "node-2"
    assert found["c"]["decision"]["message"].startswith("0/2 nodes are available")


# What a real server answers to a binding


async def binding(admin: Admin, identity, wire, node="node-1", **changed):
    pod = decode_pod(json.dumps(wire))
    for name, value in changed.items():
        setattr(pod, name, value)
    async with Client(await load_credentials(str(identity), None)) as client:
        return await bind(client, pod, node)


async def test_a_right_binding_is_taken_once(admin, identity):
    wire = await admin.create_pod("p")
    assert (await binding(admin, identity, wire)).answer is Answer.BOUND
    again = await binding(admin, identity, wire, resource_version=0)
    assert again.answer is Answer.UNCERTAIN
    assert (await admin.pod("p"))["spec"]["nodeName"] == "node-1"


async def test_an_older_resource_version_is_refused(admin, identity):
    wire = await admin.create_pod("p")
    await admin.call("PATCH", "/api/v1/namespaces/default/pods/p", {"metadata": {"labels": {"a": "b"}}})
    outcome = await binding(admin, identity, wire)
    assert outcome.answer is Answer.UNCERTAIN
    assert "ResourceVersion in precondition" in outcome.message
    assert "nodeName" not in (await admin.pod("p"))["spec"]


async def test_another_pods_uid_is_refused(admin, identity):
    wire = await admin.create_pod("p")
    outcome = await binding(admin, identity, wire, uid="00000000-0000-0000-0000-000000000000")
    assert outcome.answer is Answer.UNCERTAIN
    assert "UID in precondition" in outcome.message


async def test_a_gated_pod_is_refused(admin, identity):
    wire = await admin.create_pod("p", schedulingGates=[{"name": "example.com/wait"}])
    outcome = await binding(admin, identity, wire)
    assert outcome.answer is Answer.UNCERTAIN
    assert "schedulingGates" in outcome.message


async def test_a_pod_that_is_gone_is_gone(admin, identity):
    wire = await admin.create_pod("p")
    await admin.delete_pod("p")
    assert (await binding(admin, identity, wire)).answer is Answer.UNCERTAIN
    async with Client(await load_credentials(str(identity), None)) as client:
        assert await read_pod(client, decode_pod(json.dumps(wire))) is None


async def test_our_own_condition_moves_the_resource_version_that_the_next_binding_needs(admin, identity):
    wire = await admin.create_pod("p")
    pod = decode_pod(json.dumps(wire))
    async with Client(await load_credentials(str(identity), None)) as client:
        current = await set_unscheduled(client, pod, "Unschedulable", "no room", datetime.now(UTC))
        assert current is not None
        assert current.resource_version > pod.resource_version
        assert current.verdict == Verdict("False", "Unschedulable", "no room")
        assert (await bind(client, pod, "node-1")).answer is Answer.UNCERTAIN
        assert (await bind(client, current, "node-1")).answer is Answer.BOUND


async def test_a_condition_is_not_written_on_a_pod_made_anew_under_the_same_name(admin, identity):
    wire = await admin.create_pod("p")
    await admin.delete_pod("p")
    await admin.create_pod("p")
    async with Client(await load_credentials(str(identity), None)) as client:
        with pytest.raises(ApiError) as caught:
            await set_unscheduled(client, decode_pod(json.dumps(wire)), "Unschedulable", "no room", None)
    assert (caught.value.status, "metadata.uid" in caught.value.message) == (422, True)


@pytest.mark.parametrize("microsecond", [0, 1, 999_999])
async def test_any_time_makes_an_event_that_the_server_takes(admin, microsecond):
    pod = decode_pod(json.dumps(await admin.create_pod("p" * 63)))
    now = datetime(2026, 1, 1, tzinfo=UTC).replace(microsecond=microsecond)
    body = event_body(scheduled(pod, "n", "x" * 5000), now, controller="turb-kub", instance="turb-kub-" + "h" * 200)
    body["note"] = "n" * 1024
    made = await admin.call("POST", "/apis/events.k8s.io/v1/namespaces/default/events", body)
    assert made["regarding"]["uid"] == pod.uid


async def test_a_long_note_is_cut_to_what_an_event_may_hold(admin):
    pod = decode_pod(json.dumps(await admin.create_pod("p")))
    event = failed(pod, "é" * 5000)
    body = event_body(event, datetime.now(UTC), controller="turb-kub", instance="i")
    made = await admin.call("POST", "/apis/events.k8s.io/v1/namespaces/default/events", body)
    assert made["note"].endswith("é ...")


# The table of fields against the server's own schema


def properties(schemas, name):
    """Field name to the name of the schema of its value ("" for a plain one) of one of the API's types."""
    found = {}
    for field, schema in schemas[name]["properties"].items():
        inner = schema.get("items", schema)
        reference = inner.get("$ref") or next((part["$ref"] for part in inner.get("allOf", []) if "$ref" in part), "")
        found[field] = reference.rpartition("/")[2]
    return found


def missing(schemas, name, table, path):
    lacking = []
    for field, inner in properties(schemas, name).items():
        if field not in table:
            lacking.append(f"{path}.{field}")
        elif isinstance(table[field], dict):
            lacking += missing(schemas, inner, table[field], f"{path}.{field}")
    return lacking


async def test_every_field_of_the_pod_spec_has_an_entry_in_the_table(admin):
    schemas = (await admin.call("GET", "/openapi/v3/api/v1"))["components"]["schemas"]
    name = "io.k8s.api.core.v1.PodSpec"
    assert len(properties(schemas, name)) > 35
    assert missing(schemas, name, fields.POD_SPEC, "spec") == []
