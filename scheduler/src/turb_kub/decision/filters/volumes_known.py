"""Keeps a pod that claims volumes waiting while storage objects could not be read: nothing can be said of it then."""

from turb_kub.cluster.cluster import Cluster
from turb_kub.decision.filters.base import PreFilter
from turb_kub.objects.pod import Pod

NAME = "VolumesKnown"


def _refusal(cluster: Cluster, pod: Pod) -> str | None:
    if not pod.claims or not cluster.volumes.unread:
        return None
    unread = ", ".join(f"{resource} ({why})" for resource, why in sorted(cluster.volumes.unread.items()))
    return f"pod claims volumes, and these could not be read: {unread}"


PRE_FILTER = PreFilter(NAME, _refusal)
