"""The work that schedulers are given: nodes, pods, and what lets the pods go.

The shapes are those of the Kubernetes project's own scheduler benchmark (kubernetes/kubernetes,
test/integration/scheduler_perf): sizes of nodes and pods, and which constraint each is about.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from types import MappingProxyType
from typing import Any

ZONE, HOSTNAME = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
ZONES = 3
NAMESPACE = "default"
#: More than any node has, in memory.
TOO_MUCH = "1Ti"


class Trigger(Enum):
    """What lets the waiting pods be placed, and is the beginning of the time that is measured."""

    #: The scheduler, which knows all, becomes the active one.
    LEASE = auto()
    #: The pods' scheduling gates are taken away.
    UNGATE = auto()
    #: Pods that fill the nodes are deleted, one for each that waits.
    DELETE = auto()
    #: Empty nodes join those that are full.
    NODES = auto()


def _labels(number: int, nodes: int) -> dict[str, str]:
    return {"app": "bench"}


def _nothing(number: int, nodes: int) -> dict[str, Any]:
    return {}


def _node_affinity(number: int, nodes: int) -> dict[str, Any]:
    expression = {"key": ZONE, "operator": "In", "values": ["zone-0", "zone-1"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


def _spread(number: int, nodes: int) -> dict[str, Any]:
    selector = {"matchLabels": {"app": "bench"}}
    constraint = {"topologyKey": ZONE, "maxSkew": 5, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
    return {"topologySpreadConstraints": [constraint]}


def _group(number: int, nodes: int) -> dict[str, str]:
    # As many of a group as half of the nodes, so that there is always one that takes the next.
    return {"app": "bench", "group": f"group-{number // max(1, nodes // 2)}"}


def _anti_affinity(number: int, nodes: int) -> dict[str, Any]:
    term = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"group": _group(number, nodes)["group"]}}}
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


@dataclass(frozen=True)
class Shape:
    """One kind of work.

    Attributes:
        spec, labels: of a pod by its number and the number of nodes.
        trigger: what lets the pods go.
        hopeless: pods that fit nowhere, as a share of the others, made first.
    """

    name: str
    spec: Callable[[int, int], Mapping[str, Any]] = _nothing
    labels: Callable[[int, int], Mapping[str, str]] = _labels
    trigger: Trigger = Trigger.LEASE
    hopeless: float = 0.0
    more: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


SHAPES = {
    shape.name: shape
    for shape in (
        Shape("plain"),
        Shape("node-affinity", spec=_node_affinity),
        Shape("topology-spread", spec=_spread),
        Shape("anti-affinity", spec=_anti_affinity, labels=_group),
        Shape("unschedulable", hopeless=0.2),
        Shape("gated", trigger=Trigger.UNGATE, more={"schedulingGates": [{"name": "turb-kub.io/bench"}]}),
        Shape("deleted", trigger=Trigger.DELETE),
        Shape("node-added", trigger=Trigger.NODES),
    )
}
#: Pods that a node has room for, by number.
PODS_A_NODE = 110


def node(number: int, *, places: int = PODS_A_NODE, prefix: str = "node") -> dict[str, Any]:
    """Return a node that is ready and has room for so many pods."""
    name = f"{prefix}-{number:05}"
    # As much of all else as that many pods ask for: what is scarce is places, or what a shape asks for.
    amounts = {"cpu": "32", "memory": "64Gi", "pods": str(places)}
    return {
        "metadata": {"name": name, "labels": {HOSTNAME: name, ZONE: f"zone-{number % ZONES}"}},
        "status": {"allocatable": amounts, "capacity": amounts, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def pod(shape: Shape, number: int, nodes: int, scheduler: str) -> dict[str, Any]:
    """Return one pod of a shape, which nothing has placed yet."""
    requests = {"cpu": "100m", "memory": "500Mi"}
    return {
        "metadata": {"name": f"pod-{number:05}", "labels": dict(shape.labels(number, nodes))},
        "spec": {
            "schedulerName": scheduler,
            "containers": [{"name": "pause", "image": "pause", "resources": {"requests": requests}}],
            **shape.spec(number, nodes),
            **shape.more,
        },
    }


def hopeless_pod(number: int, scheduler: str) -> dict[str, Any]:
    """Return a pod that fits nowhere."""
    made = pod(SHAPES["plain"], number, 1, scheduler)
    made["metadata"]["name"] = f"hopeless-{number:05}"
    made["spec"]["containers"][0]["resources"]["requests"]["memory"] = TOO_MUCH
    return made


def filling_pod(number: int, node_name: str) -> dict[str, Any]:
    """Return a pod that is on a node from the start, and takes one of its places."""
    made = pod(SHAPES["plain"], number, 1, "nobody")
    made["metadata"] = {"name": f"filling-{number:05}", "labels": {"app": "filling"}}
    made["spec"]["nodeName"] = node_name
    return made
