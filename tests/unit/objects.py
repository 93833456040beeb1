"""Nodes and pods for tests, made through the decoder that the scheduler itself uses."""

import itertools
import json
from typing import Any

import msgspec
from turb_kub.cluster.accounting import Accounting
from turb_kub.cluster.cluster import Cluster
from turb_kub.objects.node import Node, decode_node
from turb_kub.objects.pod import Pod, decode_pod

OURS = "turb-kub"
_versions = itertools.count(1)


def wire_pod(
    name: str,
    *,
    namespace: str = "default",
    uid: str | None = None,
    node: str | None = None,
    scheduler: str = OURS,
    spec: dict[str, Any] | None = None,
    status: dict[str, Any] | None = None,
    version: int | None = None,
    deleting: bool = False,
    labels: dict[str, str] | None = None,
    **requests: str,
) -> dict[str, Any]:
    """A pod as the API server would send it; keyword arguments left over are requests (`memory="64Mi"`)."""
    meta: dict[str, Any] = {
        "name": name,
        "namespace": namespace,
        "uid": uid or f"uid-{namespace}-{name}",
        "resourceVersion": str(version or next(_versions)),
    }
    if labels:
        meta["labels"] = labels
    if deleting:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    body: dict[str, Any] = {"schedulerName": scheduler, "containers": [{"name": "app", "image": "x"}]}
    if requests:
        named = {key.replace("_", "-"): value for key, value in requests.items()}
        body["containers"][0]["resources"] = {"requests": named}
    if node:
        body["nodeName"] = node
    body.update(spec or {})
    return {"metadata": meta, "spec": body, "status": {"phase": "Pending", **(status or {})}}


def pod(name: str, **how: Any) -> Pod:
    return decode_pod(json.dumps(wire_pod(name, **how)))


def wire_node(
    name: str,
    *,
    memory: str = "16Gi",
    cpu: str = "8",
    pods: str = "110",
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    taints: list[dict[str, str]] | None = None,
    unschedulable: bool = False,
    ready: str | None = "True",
    **extra: str,
) -> dict[str, Any]:
    """A node as the API server would send it; keyword arguments left over are further allocatable resources."""
    allocatable = {"memory": memory, "cpu": cpu, "pods": pods} | extra
    conditions = [] if ready is None else [{"type": "Ready", "status": ready}]
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "resourceVersion": str(next(_versions)),
            "labels": {"kubernetes.io/hostname": name} | (labels or {}),
            "annotations": annotations or {},
        },
        "spec": {"taints": taints or [], "unschedulable": unschedulable},
        "status": {"allocatable": allocatable, "conditions": conditions},
    }


def node(name: str, **how: Any) -> Node:
    return decode_node(json.dumps(wire_node(name, **how)))


def cluster_of(*nodes: Node, pods: tuple[Pod, ...] = (), **accounting: Any) -> Cluster:
    """A cluster with these nodes and placed pods. Keyword arguments are those of `Accounting`."""
    cluster = Cluster(Accounting(**accounting))
    for one in nodes:
        cluster.set_node(one)
    for placed in pods:
        cluster.set_pod(placed)
    return cluster


def raw(item: dict[str, Any]) -> msgspec.Raw:
    """An object as a watch delivers it, undecoded."""
    return msgspec.Raw(json.dumps(item).encode())
