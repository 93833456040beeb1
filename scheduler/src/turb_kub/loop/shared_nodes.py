"""Reads a node's pods fresh right before a bind, where another scheduler fills the same node.

The API server checks nothing of a node when it binds, so two schedulers that see the same free room both take it, and
the kubelet then turns one pod away for good. What the other one has bound is known here some time after it was done:
as long as the watch takes. The read shortens that to the time between its answer and our bind.

A read is one list of the node's pods, and fresh: without a resourceVersion the API server answers
with what is stored at that moment (kubernetes.io, "Kubernetes API Concepts: Semantics for get and list"). What it
finds goes into the cluster as the watch would have brought it. A pod that it does not find is left to the watch: one
that we are binding is not there yet, and one that is gone only frees room.

A replica that has just become the active one is in the same place: what the one before it bound last may not have
come by the watch yet. Until the watch is as far as the first read since then, every node is read before a bind.
"""

import asyncio
from collections.abc import Callable

from turb_kub.api.client import Client
from turb_kub.api.errors import ApiError, Unreachable
from turb_kub.api.lists import read_page
from turb_kub.cluster.cluster import Cluster
from turb_kub.decision.fits import fits
from turb_kub.loop.ingest import PodSink
from turb_kub.loop.metrics import Metrics
from turb_kub.objects.pod import Pod, resource_version

ALWAYS, AUTO, NEVER = "always", "auto", "never"
#: Seconds, after which an answer would not be fresh.
READ_WITHIN = 5.0


class SharedNodeGuard:
    """Says before a bind whether the pod still fits its node.

    Binds to one node that wait at the same time share one read: whoever waits for its answer binds right after it.

    Args:
        version: the resourceVersion up to which the watch of pods has told all.
        mode: `ALWAYS`, `NEVER`, or `AUTO`: where the node holds pods of another scheduler, or while such pods wait.
    """

    def __init__(
        self, client: Client, cluster: Cluster, pods: PodSink, metrics: Metrics, version: Callable[[], int], mode: str
    ) -> None:
        self._client = client
        self._cluster = cluster
        self._pods = pods
        self._metrics = metrics
        self._version = version
        self._mode = mode
        self._reads: dict[str, asyncio.Task[None]] = {}
        #: Whether the watch may be behind what another replica bound, and up to where it has to get.
        self._catching_up = False
        self._catch_up_to: int | None = None

    def catch_up(self) -> None:
        """Have every node read before a bind, until the watch has told what was there at the first of these reads."""
        self._catching_up, self._catch_up_to = True, None

    def guards(self, node_name: str) -> bool:
        """Whether the node's pods are to be read before a bind to it."""
        if self._catching_up:
            if self._catch_up_to is None or self._version() < self._catch_up_to:
                return True
            self._catching_up = False
        return self._mode == ALWAYS or (
            self._mode == AUTO and (bool(self._cluster.foreign.waiting) or self._cluster.others_on(node_name) > 0)
        )

    async def still_fits(self, assumed: Pod) -> bool:
        """Read the node of an assumed pod and decide once more whether the pod fits there beside all others.

        Raises:
            ApiError, Unreachable: the node's pods could not be read.
        """
        await self._read(assumed.node_name)
        if not self._cluster.is_assumed(assumed.uid):
            return False  # bound by others or gone, as the read or the watch said meanwhile
        if self._fits(assumed):
            return True
        self._metrics.conflicts_avoided.inc()
        return False

    async def _read(self, node_name: str) -> None:
        read = self._reads.get(node_name)
        if read is None:
            read = self._reads[node_name] = asyncio.create_task(self._list(node_name))
            read.add_done_callback(lambda _: self._reads.pop(node_name, None))
        # Shielded: that one of those who wait is cancelled must not end the read of the others.
        await asyncio.shield(read)

    async def _list(self, node_name: str) -> None:
        # A finished pod holds nothing; that it has finished the watch will say.
        selector = f"spec.nodeName={node_name},status.phase!=Succeeded,status.phase!=Failed"
        try:
            listed = await read_page(
                self._client, "/api/v1/pods", resource="pods", query={"fieldSelector": selector}, timeout=READ_WITHIN
            )
        except (ApiError, Unreachable):
            self._metrics.fresh_reads.labels("failed").inc()
            raise
        self._metrics.fresh_reads.labels("done").inc()
        version = resource_version(listed.metadata.resourceVersion)
        if self._catch_up_to is None:
            self._catch_up_to = version
        # Where the watch is as far or farther, the list holds nothing new, and may hold what is gone since.
        if self._version() < version:
            for item in listed.items or []:
                self._pods.changed(item)

    def _fits(self, assumed: Pod) -> bool:
        slot = self._cluster.slot(assumed.node_name)
        if slot is None:
            return False
        with self._cluster.without(assumed.uid):
            return fits(self._cluster, assumed, (slot,))
