"""Storage objects as the watches say them: what reaches the cluster, and whom it wakes."""

import logging

import msgspec
import pytest
from turb_kub.api.storage import STORAGE_KINDS
from turb_kub.cluster.accounting import Accounting
from turb_kub.cluster.cluster import Cluster
from turb_kub.loop.metrics import Metrics
from turb_kub.loop.storage import StorageSink
from turb_kub.objects.storage import Volume

from tests.unit.objects import raw
from tests.unit.storage import (
    wire_attachment,
    wire_capacity,
    wire_claim,
    wire_class,
    wire_csi_node,
    wire_driver,
    wire_volume,
)

EXAMPLES = {
    "PersistentVolumeClaim": wire_claim("x"),
    "PersistentVolume": wire_volume("x"),
    "StorageClass": wire_class("x"),
    "CSINode": wire_csi_node("x", disk=3),
    "VolumeAttachment": wire_attachment("x", node="x", volume="x"),
    "CSIDriver": wire_driver("x", tracks_capacity=True),
    "CSIStorageCapacity": wire_capacity("x", capacity="1Gi"),
}


class Parts:
    def __init__(self):
        self.cluster = Cluster(Accounting())
        self.metrics = Metrics("turb-kub")
        self.sinks = {kind.kind: StorageSink(kind, self.cluster, self.metrics) for kind in STORAGE_KINDS}
        self.told = 0
        for sink in self.sinks.values():
            sink.notify = self._count

    def _count(self):
        self.told += 1

    def noted(self):
        """Whether anything was noted since the last call that may let a pod in on any node."""
        return self.cluster.changes.take().everywhere


@pytest.fixture
def parts():
    return Parts()


@pytest.mark.parametrize("kind", EXAMPLES)
def test_an_object_that_comes_or_goes_is_noted_and_one_that_says_the_same_is_not(parts, kind):
    item = EXAMPLES[kind]
    sink = parts.sinks[kind]
    sink.changed(raw(item))
    assert parts.noted()
    sink.changed(raw(item | {"metadata": item["metadata"] | {"resourceVersion": "99999"}}))
    assert not parts.noted()
    assert parts.told == 1
    sink.deleted(raw(item))
    assert parts.noted()
    sink.deleted(raw(item))
    assert not parts.noted()
    assert parts.told == 2


def test_a_list_is_the_whole_truth_and_ends_not_knowing(parts):
    assert set(parts.cluster.volumes.unread) == {kind.resource for kind in STORAGE_KINDS}
    sink = parts.sinks["PersistentVolume"]
    sink.changed(raw(wire_volume("old")))
    sink.replace([raw(wire_volume("new"))])
    assert parts.cluster.volumes.keys(Volume) == [("", "new")]
    assert [volume.name for volume in parts.cluster.volumes.volumes_of("waits")] == ["new"]
    assert "persistentvolumes" not in parts.cluster.volumes.unread
    assert "persistentvolumeclaims" in parts.cluster.volumes.unread


def test_an_empty_list_is_noted_once(parts):
    parts.sinks["PersistentVolume"].replace([])
    assert parts.noted()
    parts.sinks["PersistentVolume"].replace([])
    assert not parts.noted()


def test_a_volume_that_changes_its_class_is_found_under_the_new_one_only(parts):
    parts.sinks["PersistentVolume"].changed(raw(wire_volume("v", storage_class="one")))
    parts.sinks["PersistentVolume"].changed(raw(wire_volume("v", storage_class="two")))
    volumes = parts.cluster.volumes
    assert [[volume.name for volume in volumes.volumes_of(name)] for name in ("one", "two")] == [[], ["v"]]


def test_a_node_that_no_longer_limits_a_driver_is_free_again(parts):
    limits_of = parts.cluster.volumes.attachments.limits_of
    for limits, expected in (({"disk": 3}, {"x": 3}), ({"other": 3}, {}), ({"disk": 5}, {"x": 5})):
        parts.sinks["CSINode"].changed(raw(wire_csi_node("x", **limits)))
        assert dict(limits_of("disk")) == expected
    parts.sinks["CSINode"].deleted(raw(wire_csi_node("x")))
    assert dict(limits_of("disk")) == {}


def test_a_malformed_object_is_set_aside_once_and_taken_back_when_mended(parts, caplog):
    sink = parts.sinks["PersistentVolumeClaim"]
    sink.changed(raw(wire_claim("data", storage="1Gi")))
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            sink.changed(raw(wire_claim("data", storage="lots")))
    assert caplog.text.count("PersistentVolumeClaim default/data is set aside until it is mended") == 1
    kept = parts.cluster.volumes.claim("default", "data")
    assert kept is not None
    assert kept.requested == 2**30
    sink.changed(raw(wire_claim("data", storage="2Gi")))
    assert parts.cluster.volumes.claim("default", "data").requested == 2**31


@pytest.mark.parametrize("kind", EXAMPLES)
@pytest.mark.parametrize(
    "item", [b"[]", b"{}", b'{"metadata": 3}', b'{"metadata": {"name": "x"}, "spec": 7}', b"[" * 9999]
)
def test_no_object_whatever_is_in_it_raises(parts, kind, item):
    sink = parts.sinks[kind]
    sink.changed(msgspec.Raw(item))
    sink.deleted(msgspec.Raw(item))
    sink.replace([msgspec.Raw(item)])
    sink.changed(raw(EXAMPLES[kind]))
    assert len(parts.cluster.volumes.keys(sink.kind.type)) >= 1
