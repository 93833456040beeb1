"""How many pods of a kind each node holds, for kinds that decisions ask about again and again.

A memo of the placed pods, brought up to date from those that came and went; dropping it changes no answer.
"""

from collections import OrderedDict
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import numpy.typing as npt

from turb_kub.objects.affinity import PodTerm
from turb_kub.objects.pod import Pod
from turb_kub.objects.selectors import Selector

if TYPE_CHECKING:
    from turb_kub.cluster.cluster import Cluster

Counts = npt.NDArray[np.int32]
#: Bytes that all counts may take together; the ones asked for least recently go first.
_KEPT_BYTES = 64 * 2**20


class Matching(msgspec.Struct, frozen=True):
    """Pods that all of these terms mean."""

    terms: tuple[PodTerm, ...]

    def meets(self, cluster: "Cluster", pod: Pod) -> bool:
        labels = cluster.namespaces.labels(pod.namespace)
        return all(term.matches(pod.namespace, labels, pod.labels) for term in self.terms)

    @property
    def looks_at_namespaces(self) -> bool:
        return any(term.namespace_selector is not None for term in self.terms)


class Spreading(msgspec.Struct, frozen=True):
    """Pods of one namespace with matching labels that are there to stay: terminating ones do not count."""

    namespace: str
    selector: Selector

    looks_at_namespaces = False

    def meets(self, cluster: "Cluster", pod: Pod) -> bool:
        return not pod.deleting and pod.namespace == self.namespace and self.selector.matches(pod.labels)


class Holding(msgspec.Struct, frozen=True):
    """Pods with this term among their required anti-affinity."""

    term: PodTerm

    looks_at_namespaces = False

    def meets(self, cluster: "Cluster", pod: Pod) -> bool:
        return self.term in pod.affinity.required_anti


Kind = Matching | Spreading | Holding


class _Count:
    """The pods of one kind on every node."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self.counts: Counts = np.zeros(0, dtype=np.int32)
        self._nodes_position = -1
        self._pods_position = -1
        self._generation = -1

    def refresh(self, cluster: "Cluster") -> Counts:
        if len(self.counts) < cluster.size:
            self.counts = np.pad(self.counts, (0, max(cluster.size, 2 * len(self.counts)) - len(self.counts)))
        generation = cluster.namespaces.generation if self._kind.looks_at_namespaces else 0
        moves, self._pods_position = cluster.moves_since(self._pods_position)
        changed, self._nodes_position = cluster.changes_since(self._nodes_position)
        if moves is None or changed is None or generation != self._generation:
            self._generation = generation
            self._recount(cluster, range(cluster.size))
            return self.counts[: cluster.size]
        for pod, sign in moves:
            slot = cluster.slot(pod.node_name)
            if slot is not None and self._kind.meets(cluster, pod):
                self.counts[slot] += sign
        # A slot may have got another node meanwhile, or one whose pods were there before it.
        self._recount(cluster, changed)
        return self.counts[: cluster.size]

    def _recount(self, cluster: "Cluster", slots: "range | set[int]") -> None:
        for slot in slots:
            node = cluster.nodes[slot]
            pods = cluster.pods_on(node.name) if node is not None else ()
            self.counts[slot] = sum(self._kind.meets(cluster, pod) for pod in pods)


class PodCounts:
    """Counts by kind."""

    def __init__(self) -> None:
        self._by_kind: OrderedDict[Kind, _Count] = OrderedDict()

    def of(self, cluster: "Cluster", kind: Kind) -> Counts:
        """Return how many pods of a kind each slot's node holds or is about to hold. Read only."""
        count = self._by_kind.get(kind)
        if count is None:
            count = self._by_kind[kind] = _Count(kind)
            while len(self._by_kind) > max(8, _KEPT_BYTES // (4 * cluster.size + 1)):
                self._by_kind.popitem(last=False)
        else:
            self._by_kind.move_to_end(kind)
        return count.refresh(cluster)
