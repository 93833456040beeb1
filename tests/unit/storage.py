"""Claims, volumes and classes for tests, made through the decoders that the scheduler itself uses."""

import itertools
import json
from typing import Any

from turb_kub.api.storage import STORAGE_KINDS
from turb_kub.objects.storage import StorageObject

_versions = itertools.count(1)
_DECODERS = {kind.kind: kind.decode for kind in STORAGE_KINDS}
WAITS = "waits"


def _meta(name: str, namespace: str | None = None, uid: str | None = None, **more: Any) -> dict[str, Any]:
    where = {} if namespace is None else {"namespace": namespace}
    return {"name": name, "uid": uid or f"uid-{name}", "resourceVersion": str(next(_versions)), **where, **more}


def wire_claim(
    name: str,
    *,
    namespace: str = "default",
    uid: str | None = None,
    storage: str | None = "1Gi",
    storage_class: str | None = WAITS,
    volume: str | None = None,
    bound: bool = True,
    owner: str | None = None,
    selected: str | None = None,
    phase: str = "",
    deleting: bool = False,
    **spec: Any,
) -> dict[str, Any]:
    """A claim as the API server would send it; keyword arguments left over go to its spec.

    Args:
        volume: the volume it names; `bound` says whether it is bound to it for good.
    """
    annotations = {}
    if selected is not None:
        annotations["volume.kubernetes.io/selected-node"] = selected
    if volume and bound:
        annotations["pv.kubernetes.io/bind-completed"] = "yes"
    meta = _meta(name, namespace, uid, annotations=annotations)
    if deleting:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    if owner:
        meta["ownerReferences"] = [{"kind": "Pod", "name": "x", "uid": owner, "controller": True}]
    body: dict[str, Any] = {"accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem"}
    if storage is not None:
        body["resources"] = {"requests": {"storage": storage}}
    if storage_class is not None:
        body["storageClassName"] = storage_class
    if volume:
        body["volumeName"] = volume
    return {
        "kind": "PersistentVolumeClaim",
        "metadata": meta,
        "spec": body | spec,
        "status": {"phase": phase or ("Bound" if volume and bound else "Pending")},
    }


def wire_volume(
    name: str,
    *,
    storage: str = "1Gi",
    storage_class: str | None = WAITS,
    nodes: tuple[str, ...] | None = None,
    terms: list[Any] | None = None,
    claim: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    phase: str = "Available",
    deleting: bool = False,
    **spec: Any,
) -> dict[str, Any]:
    """A volume; `nodes` are the hostnames of its node affinity, or `terms` the terms of it."""
    meta = _meta(name, labels=labels or {})
    if deleting:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    body: dict[str, Any] = {
        "capacity": {"storage": storage},
        "accessModes": ["ReadWriteOnce"],
        "volumeMode": "Filesystem",
        "local": {"path": "/x"},
    }
    if nodes is not None:
        terms = [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": list(nodes)}]}]
    if terms is not None:
        body["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
    if storage_class is not None:
        body["storageClassName"] = storage_class
    if claim is not None:
        body["claimRef"] = claim
    return {"kind": "PersistentVolume", "metadata": meta, "spec": body | spec, "status": {"phase": phase}}


def wire_class(
    name: str = WAITS,
    *,
    provisioner: str = "kubernetes.io/no-provisioner",
    mode: str = "WaitForFirstConsumer",
    topologies: list[dict[str, list[str]]] | None = None,
) -> dict[str, Any]:
    """A class; each of the topologies is a table of label to values."""
    body: dict[str, Any] = {"provisioner": provisioner, "volumeBindingMode": mode}
    if topologies is not None:
        body["allowedTopologies"] = [
            {"matchLabelExpressions": [{"key": key, "values": values} for key, values in term.items()]}
            for term in topologies
        ]
    return {"kind": "StorageClass", "metadata": _meta(name), **body}


def wire_csi_node(name: str, **limits: int | None) -> dict[str, Any]:
    """A CSINode; keyword arguments are drivers (with `_` for `.`) and how many volumes each may attach."""
    drivers = [
        {"name": driver.replace("_", "."), "nodeID": name}
        | ({} if count is None else {"allocatable": {"count": count}})
        for driver, count in limits.items()
    ]
    return {"kind": "CSINode", "metadata": _meta(name), "spec": {"drivers": drivers}}


def wire_attachment(name: str, *, node: str, volume: str | None, driver: str = "disk.example") -> dict[str, Any]:
    source: dict[str, Any] = {"persistentVolumeName": volume} if volume else {"inlineVolumeSpec": {}}
    spec = {"attacher": driver, "nodeName": node, "source": source}
    return {"kind": "VolumeAttachment", "metadata": _meta(name), "spec": spec, "status": {"attached": True}}


def wire_driver(name: str, *, tracks_capacity: bool) -> dict[str, Any]:
    return {"kind": "CSIDriver", "metadata": _meta(name), "spec": {"storageCapacity": tracks_capacity}}


def wire_capacity(name: str, *, storage_class: str = WAITS, **body: Any) -> dict[str, Any]:
    return {"kind": "CSIStorageCapacity", "metadata": _meta(name, "x"), "storageClassName": storage_class, **body}


def decoded(item: dict[str, Any]) -> StorageObject:
    return _DECODERS[item["kind"]](json.dumps(item).encode())


def using(*claims: str) -> dict[str, Any]:
    """The spec of a pod that uses these claims."""
    return {
        "volumes": [
            {"name": f"v{number}", "persistentVolumeClaim": {"claimName": claim}} for number, claim in enumerate(claims)
        ]
    }
