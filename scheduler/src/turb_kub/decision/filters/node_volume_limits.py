"""Keeps pods off nodes that state how many volumes of the pod's drivers may be attached.

Such limits are not counted yet, so a node that states one for a driver of the pod's volumes is refused (fail closed);
nodes that state none are not. Source: kubernetes.io, "Node-specific Volume Limits" (CSINode `allocatable.count`).
"""

from collections.abc import Iterable

import numpy as np

from turb_kub.cluster.cluster import Bools, Cluster
from turb_kub.decision.filters.base import PodFilter, Refusal
from turb_kub.objects.pod import Pod
from turb_kub.objects.storage import Claim

NAME = "NodeVolumeLimits"
LIMITED = "node(s) limited the volumes of a CSI driver, which turb-kub does not count"


def _drivers(cluster: Cluster, pod: Pod) -> set[str]:
    claims = (cluster.volumes.claim(pod.namespace, use.name) for use in pod.claims)
    return {driver for claim in claims if claim is not None and (driver := _driver(cluster, claim))}


def _driver(cluster: Cluster, claim: Claim) -> str:
    """The CSI driver that attaches, or will attach, the claim's volume; "" where none does."""
    volume = cluster.volumes.volume(claim.volume_name) if claim.volume_name else None
    if volume is not None:
        return volume.driver
    found = cluster.volumes.storage_class(claim.storage_class)
    return found.driver if found is not None and found.provisions else ""


def _refused(cluster: Cluster, pod: Pod) -> Bools | None:
    if not pod.claims:
        return None
    slots = [
        slot
        for driver in _drivers(cluster, pod)
        for name in cluster.volumes.limited_nodes(driver)
        if (slot := cluster.slot(name)) is not None
    ]
    if not slots:
        return None
    refused: Bools = np.zeros(cluster.size, dtype=np.bool_)
    refused[slots] = True
    return refused


def _reasons(cluster: Cluster, pod: Pod, refused: Bools) -> Iterable[Refusal]:
    return [Refusal(NAME, LIMITED, refused)]


def _details(cluster: Cluster, pod: Pod, slot: int) -> tuple[str, ...]:
    name = cluster.node_at(slot).name
    drivers = sorted(one for one in _drivers(cluster, pod) if name in cluster.volumes.limited_nodes(one))
    return tuple(f"the node limits the volumes of {driver}" for driver in drivers)


FILTER = PodFilter(NAME, _refused, _reasons, _details)
