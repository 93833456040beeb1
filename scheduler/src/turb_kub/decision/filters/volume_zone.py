"""Keeps pods off nodes outside the zones and regions that the labels of their volumes name.

Source: kubernetes.io, "Well-Known Labels" (topology.kubernetes.io/zone and region, and their older names). A node
without any such label is in no zone, and takes every volume. Generic ephemeral volumes are not looked at, nor are they
by kube-scheduler.
"""

from turb_kub.cluster.cluster import Bools, Cluster
from turb_kub.decision.filters.base import PodFilter, PreFilter, one_reason
from turb_kub.decision.node_slots import slots_where
from turb_kub.objects.node import Node
from turb_kub.objects.pod import Pod
from turb_kub.objects.storage import Volume

NAME = "VolumeZone"
CONFLICT = "node(s) had no available volume zone"
#: Labels of zones and regions, each with the name that took its place.
_LABELS = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region": "topology.kubernetes.io/region",
}
#: A label of a volume may name several zones.
_DELIMITER = "__"

#: A label and the values that will do.
Topology = tuple[str, frozenset[str]]


def _missing(cluster: Cluster, pod: Pod) -> str | None:
    if not pod.claims:
        return None
    for name in _volume_names(cluster, pod):
        if cluster.volumes.volume(name) is None:
            return f'persistentvolume "{name}" not found'
    return None


def _volume_names(cluster: Cluster, pod: Pod) -> list[str]:
    claims = (cluster.volumes.claim(pod.namespace, use.name) for use in pod.claims if not use.ephemeral)
    return [claim.volume_name for claim in claims if claim is not None and claim.volume_name]


def _topologies(cluster: Cluster, pod: Pod) -> tuple[Topology, ...]:
    found = []
    for name in _volume_names(cluster, pod):
        volume = cluster.volumes.volume(name)
        if volume is not None:
            found += _topologies_of(volume)
    return tuple(found)


def _topologies_of(volume: Volume) -> list[Topology]:
    found = []
    for label in _LABELS:
        values = [value.strip() for value in volume.labels[label].split(_DELIMITER)] if label in volume.labels else []
        # A label that is not understood is left out, as kube-scheduler does.
        if values and all(values):
            found.append((label, frozenset(values)))
    return found


def _is_elsewhere(node: Node, topologies: tuple[Topology, ...]) -> bool:
    if not any(label in node.labels for label in _LABELS):
        return False
    return any(node.labels.get(label, node.labels.get(_LABELS[label])) not in values for label, values in topologies)


def _refused(cluster: Cluster, pod: Pod) -> Bools | None:
    if not pod.claims:
        return None
    topologies = _topologies(cluster, pod)
    if not topologies:
        return None
    elsewhere = slots_where(cluster, (NAME, topologies), lambda node: _is_elsewhere(node, topologies))
    return cluster.mask(elsewhere)


def _details(cluster: Cluster, pod: Pod, slot: int) -> tuple[str, ...]:
    node = cluster.node_at(slot)
    return tuple(
        f"its volume is in {label} {' or '.join(sorted(values))}"
        for label, values in _topologies(cluster, pod)
        if _is_elsewhere(node, ((label, values),))
    )


PRE_FILTER = PreFilter(NAME, _missing)
FILTER = PodFilter(NAME, _refused, one_reason(NAME, CONFLICT), _details)
