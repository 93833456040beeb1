"""Keeps a pod waiting while another one uses its claim of access mode ReadWriteOncePod.

Source: kubernetes.io, "Persistent Volumes" (access modes). The disks that kube-scheduler's plugin of this name looks
at besides (`gcePersistentDisk`, `awsElasticBlockStore`, `iscsi`, `rbd`) are refused by the table of fields.
"""

import numpy as np

from turb_kub.cluster.cluster import Bools, Cluster
from turb_kub.decision.filters.base import PodFilter, PreFilter, one_reason
from turb_kub.objects.pod import Pod
from turb_kub.objects.storage import READ_WRITE_ONCE_POD

NAME = "VolumeRestrictions"
IN_USE = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)


def _missing(cluster: Cluster, pod: Pod) -> str | None:
    for use in pod.claims:
        if not use.ephemeral and cluster.volumes.claim(pod.namespace, use.name) is None:
            return f'persistentvolumeclaim "{use.name}" not found'
    return None


def _in_use(cluster: Cluster, pod: Pod) -> list[str]:
    volumes = cluster.volumes
    return [
        use.name
        for use in pod.claims
        if not use.ephemeral
        and volumes.in_use(pod.namespace, use.name)
        and (claim := volumes.claim(pod.namespace, use.name)) is not None
        and READ_WRITE_ONCE_POD in claim.access_modes
    ]


def _refused(cluster: Cluster, pod: Pod) -> Bools | None:
    if not pod.claims or not _in_use(cluster, pod):
        return None
    return np.ones(cluster.size, dtype=np.bool_)


def _details(cluster: Cluster, pod: Pod, slot: int) -> tuple[str, ...]:
    return tuple(
        f"claim {name} is for one pod (ReadWriteOncePod), and another uses it" for name in _in_use(cluster, pod)
    )


PRE_FILTER = PreFilter(NAME, _missing)
FILTER = PodFilter(NAME, _refused, one_reason(NAME, IN_USE), _details)
