"""Claims bound for real: by the PersistentVolume controller of a real control plane."""

import json

import pytest
from turb_kub.api.client import Client
from turb_kub.api.credentials import load_credentials
from turb_kub.api.errors import ApiError
from turb_kub.api.volumes import keep_volume, select_node
from turb_kub.objects.storage import decode_claim, decode_volume

from tests.api.disks import CLAIMS
from tests.api.running import running, until
from tests.unit.storage import using

pytestmark = pytest.mark.cluster


async def home(admin, name):
    return (await admin.pod(name))["spec"].get("nodeName")


async def test_a_claim_that_waits_for_its_consumer_is_bound_to_a_local_volume_and_the_pod_goes_there(
    admin, identity, disks
):
    await disks.storage_class("local")
    await disks.volume("large", "node-2", storage="5Gi")
    await disks.volume("right", "node-2", storage="2Gi")
    await disks.volume("small", "node-1", storage="1Gi")
    await disks.claim("data", storage="2Gi")
    async with running(await load_credentials(str(identity), None)) as scheduler:
        await admin.create_pod("p", **using("data"))
        assert await admin.seen(lambda: home(admin, "p")) == "node-2"
        await until(lambda: not scheduler.cluster.assumed_count)
        assert scheduler.queue.rescued_by_flush == 0
    claim = await disks.read_claim("data")
    assert (claim["spec"]["volumeName"], claim["status"]["phase"]) == ("right", "Bound")
    assert "node-2" not in json.dumps(claim["metadata"].get("annotations", {}))
    pod = await admin.pod("p")
    assert [c["status"] for c in pod["status"]["conditions"] if c["type"] == "PodScheduled"] == ["True"]


async def test_two_claims_of_a_pod_and_pods_that_compete_each_get_a_volume_of_their_own(admin, identity, disks):
    await disks.storage_class("local")
    for number in range(4):
        await disks.volume(f"v{number}", f"node-{1 + number % 2}")
    for name in ("a1", "a2", "b1", "c1"):
        await disks.claim(name)
    async with running(await load_credentials(str(identity), None)):
        await admin.create_pod("a", **using("a1", "a2"))
        assert await admin.seen(lambda: home(admin, "a")) is not None
        await admin.create_pod("b", **using("b1"))
        await admin.create_pod("c", **using("c1"))
        homes = [await admin.seen(lambda name=name: home(admin, name)) for name in "abc"]
    assert homes[1] == homes[2] != homes[0]
    bound = [(await disks.read_claim(name))["spec"]["volumeName"] for name in ("a1", "a2", "b1", "c1")]
    assert sorted(bound) == ["v0", "v1", "v2", "v3"]


async def test_a_generic_ephemeral_volume_waits_for_its_claim_and_gets_a_volume(admin, identity, disks):
    await disks.storage_class("local")
    await disks.volume("v", "node-2")
    template = {
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "local",
            "resources": {"requests": {"storage": "1Gi"}},
        }
    }
    async with running(await load_credentials(str(identity), None)):
        await admin.create_pod("p", volumes=[{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}])
        assert await admin.seen(lambda: home(admin, "p")) == "node-2"
    assert (await disks.read_claim("p-scratch"))["spec"]["volumeName"] == "v"


async def test_a_provisioner_is_told_the_node(admin, identity, disks):
    await disks.storage_class("made", provisioner="example.com/disk")
    await disks.claim("data", storage_class="made")
    async with running(await load_credentials(str(identity), None)) as scheduler:
        await admin.create_pod("p", nodeSelector={"kubernetes.io/hostname": "node-2"}, **using("data"))

        async def provisioner_is_asked():
            annotations = (await disks.read_claim("data"))["metadata"].get("annotations", {})
            if annotations.get("volume.kubernetes.io/storage-provisioner") != "example.com/disk":
                return None
            return annotations.get("volume.kubernetes.io/selected-node")

        assert await admin.seen(provisioner_is_asked) == "node-2"
        assert await home(admin, "p") is None
        await admin.delete_pod("p")
        await until(lambda: not scheduler.cluster.assumed_count and not scheduler._volumes)


# What a real server answers to the two writes


@pytest.fixture
async def kept(admin, identity, disks):
    """A client, a volume and a claim."""
    await disks.storage_class("local")
    volume = decode_volume(json.dumps(await disks.volume("v", "node-2")))
    claim = decode_claim(json.dumps(await disks.claim("data")))
    async with Client(await load_credentials(str(identity), None)) as client:
        yield client, volume, claim


async def test_a_volume_is_kept_once_and_its_new_version_told(kept, disks):
    client, volume, claim = kept
    version = await keep_volume(client, volume, claim)
    assert version > volume.version
    with pytest.raises(ApiError) as caught:
        await keep_volume(client, volume, claim)
    assert caught.value.object_is_another
    assert (await disks.read_volume("v"))["spec"]["claimRef"]["uid"] == claim.uid


async def test_objects_made_anew_under_the_same_name_are_not_written_to(kept, disks):
    client, volume, claim = kept
    volume.uid = claim.uid = "00000000-0000-0000-0000-000000000000"
    for write in (lambda: keep_volume(client, volume, claim), lambda: select_node(client, claim, "node-1")):
        with pytest.raises(ApiError) as caught:
            await write()
        assert caught.value.object_is_another
    assert "claimRef" not in (await disks.read_volume("v"))["spec"]


async def test_a_claim_that_changed_since_is_not_written_to(kept, admin, disks):
    client, _, claim = kept
    await admin.call("PATCH", f"{CLAIMS}/data", {"metadata": {"labels": {"a": "b"}}})
    with pytest.raises(ApiError) as caught:
        await select_node(client, claim, "node-1")
    assert caught.value.object_is_another
    assert "volume.kubernetes.io/selected-node" not in (await disks.read_claim("data"))["metadata"].get(
        "annotations", {}
    )
