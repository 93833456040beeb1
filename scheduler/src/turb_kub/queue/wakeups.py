"""Whether what changed in the cluster could help a pod that fitted nowhere.

Asked of the filters themselves on the nodes that changed, so that the answer is as exact as a decision: a node that
turns Ready but is full helps nobody, a pod that leaves helps those that fit now. It must be complete before it is
exact: a pod that an event helps and that is not woken waits for the slow flush.
"""

from turb_kub.cluster.changes import Changes
from turb_kub.cluster.cluster import Cluster
from turb_kub.cluster.pod_counts import Matching
from turb_kub.decision.fits import fits
from turb_kub.objects.pod import Pod


def could_help(cluster: Cluster, changes: Changes, pod: Pod) -> bool:
    """Tell whether a pod that no node took before these changes may be taken by one now."""
    anywhere = changes.everywhere or _sees_other_neighbours(cluster, changes, pod)
    return fits(cluster, pod, None if anywhere else changes.slots)


def looks_at_neighbours(pod: Pod) -> bool:
    """Tell whether a filter looks at the pods around a node for what this pod itself asks."""
    affinity = pod.affinity
    return bool(affinity.required or affinity.required_anti) or any(constraint.required for constraint in pod.spread)


def _sees_other_neighbours(cluster: Cluster, changes: Changes, pod: Pod) -> bool:
    """Whether a filter that looks at a node's neighbours may see others, on nodes that did not change themselves."""
    if changes.domains and cluster.standing_terms.meaning(pod):
        # Pods that keep this one away may be elsewhere, as nodes are near each other by their labels.
        return True
    if not looks_at_neighbours(pod):
        return False
    if changes.domains:
        return True
    affinity, required = pod.affinity, [constraint for constraint in pod.spread if constraint.required]
    # A pod is company where all terms mean it, and is avoided where one does: then only its leaving helps.
    company = Matching(affinity.required) if affinity.required else None
    avoided = [Matching((term,)) for term in affinity.required_anti]
    return any(
        (company is not None and company.meets(cluster, moved))
        or any(moved.namespace == pod.namespace and constraint.matches(moved.labels) for constraint in required)
        for moved in changes.moved
    ) or any(kind.meets(cluster, gone) for gone in changes.left for kind in avoided)
