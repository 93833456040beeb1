"""Whether what changed in the cluster could help a pod that fitted nowhere.

Asked of the filters themselves on the nodes that changed, so that the answer is as exact as a decision: a node that
turns Ready but is full helps nobody, a pod that leaves helps those that fit now. It must be complete before it is
exact: a pod that an event helps and that is not woken waits for the slow flush.
"""

from turb_kub.cluster.changes import Changes
from turb_kub.cluster.cluster import Cluster
from turb_kub.decision.fits import fits
from turb_kub.objects.pod import Pod


def could_help(cluster: Cluster, changes: Changes, pod: Pod) -> bool:
    """Tell whether a pod that no node took before these changes may be taken by one now."""
    return fits(cluster, pod, None if changes.everywhere else changes.slots)
