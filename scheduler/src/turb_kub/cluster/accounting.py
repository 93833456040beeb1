"""Which pods count, and for how much, towards a node's load and its memory ceiling."""

import msgspec

from turb_kub.objects.pod import Pod
from turb_kub.objects.quantity import MEBIBYTE

#: What a pod of ours that states no memory adds to a node's load. Only for ranking: without it such pods would all go
#: to one node. kube-scheduler scores such pods with the same 200 MiB.
RANKING_DEFAULT = 200 * MEBIBYTE


class Accounting(msgspec.Struct, frozen=True):
    """The settings that turn pods into numbers. All amounts in bytes."""

    scheduler_name: str = "turb-kub"
    #: The ceiling of every node that has no annotation of its own; None: its allocatable memory alone.
    node_memory_limit: int | None = None
    #: What a pod without a memory request counts under the ceiling; None: nothing.
    default_request: int | None = None
    #: Namespaces that count towards load and ceiling; None: all. Allocatable resources always count every pod.
    namespaces: frozenset[str] | None = None

    def counts(self, pod: Pod) -> bool:
        return self.namespaces is None or pod.namespace in self.namespaces

    def load(self, pod: Pod) -> int:
        """Bytes the pod adds to its node's load, by which nodes are ranked."""
        if not self.counts(pod):
            return 0
        if not pod.memory and pod.scheduler_name == self.scheduler_name:
            return RANKING_DEFAULT
        return pod.memory

    def budget(self, pod: Pod) -> int:
        """Bytes the pod takes of its node's ceiling."""
        if not self.counts(pod):
            return 0
        return pod.memory or self.default_request or 0
