"""Has the volumes of a pod bound before the pod is, as kube-scheduler does.

A claim that waits for its first consumer is given an available volume (which is kept for it), or the node for which
its volume is to be made; then the PersistentVolume controller and the provisioner do their part, which the watches
tell. What the pod has chosen stays reserved until it is bound or given up.

| while the pod waits | then |
|---|---|
| all its claims are bound, to volumes that the node can use | it may be bound |
| the provisioner takes the selected node off the claim: it could not make the volume | given up, and the pod says why |
| a claim or a chosen volume goes or is taken, the node goes, or `BIND_WITHIN` seconds pass | likewise |
| a write is refused because the object has changed, or it is not sure to have been carried out | decided again |
| the pod goes, or is bound by others | forgotten |

Nothing is undone: what was written holds for the next decision about the pod.
"""

import asyncio
from collections.abc import Callable

import msgspec

from turb_kub.api.client import Client
from turb_kub.api.errors import ApiError, Unreachable
from turb_kub.api.volumes import keep_volume, select_node
from turb_kub.cluster.cluster import Cluster
from turb_kub.cluster.volumes import VolumePlan
from turb_kub.decision.node_slots import matches
from turb_kub.objects.node import Node
from turb_kub.objects.pod import Pod
from turb_kub.objects.storage import Claim, ClaimRef, Key, StorageObject, Volume
from turb_kub.queue.queue import SchedulingQueue

#: Seconds; kube-scheduler's own default (VolumeBindingArgs, bindTimeoutSeconds).
BIND_WITHIN = 600.0
#: Seconds after which a waiting pod is looked at although no event spoke of it: a node that went is told to nobody.
LOOK_EVERY = 5.0


class NotBound(Exception):
    """The volumes of a pod could not be bound for now. The text is for the pod's condition; "" says nothing there."""

    def __init__(self, message: str = "", retry_after: float = 0.0) -> None:
        super().__init__(f"binding volumes: {message}" if message else "")
        self.retry_after = retry_after


class _Waiting(msgspec.Struct, eq=False):
    """A pod that waits: what it awaits, the versions that its own writes made, and what wakes it."""

    plan: VolumePlan
    written: dict[Key, int]
    news: asyncio.Event


class VolumeBinder:
    """Pods whose volumes are being bound, by uid. `may_write` is asked before each write."""

    def __init__(
        self,
        client: Client,
        cluster: Cluster,
        queue: SchedulingQueue,
        clock: Callable[[], float],
        may_write: Callable[[], bool],
    ) -> None:
        self._client = client
        self._cluster = cluster
        self._queue = queue
        self._clock = clock
        self._may_write = may_write
        self._waiting: dict[str, _Waiting] = {}
        #: Who waits for a claim or a volume.
        self._awaited: dict[Key, set[str]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    async def bind(self, pod: Pod, plan: VolumePlan, *, wrote: Callable[[], None]) -> None:
        """Carry out a plan that is reserved for an assumed pod, and return once all its claims are bound.

        Args:
            wrote: called once no more writes are to come, before the wait, or never where a write failed.

        Raises:
            NotBound: the pod is to be given up for now.
        """
        waiting = self._waiting[pod.uid] = _Waiting(plan, {}, asyncio.Event())
        for key in _keys(plan):
            self._awaited.setdefault(key, set()).add(pod.uid)
        try:
            await self._write(waiting)
            wrote()
            await self._wait(pod, waiting)
        finally:
            del self._waiting[pod.uid]
            for key in _keys(plan):
                self._forget(key, pod.uid)
            self._cluster.volumes.release(pod.uid)

    def seen(self, item: StorageObject) -> None:
        """Wake the pods that wait for a claim or a volume of which the watch has told."""
        self._wake(item.key)
        if isinstance(item, Volume) and item.claim is not None:
            self._wake((item.claim.namespace, item.claim.name))

    def gone(self, uid: str) -> None:
        """Let a pod that is gone wait no longer."""
        waiting = self._waiting.get(uid)
        if waiting is not None:
            waiting.news.set()

    def _wake(self, key: Key) -> None:
        for uid in self._awaited.get(key, ()):
            self._waiting[uid].news.set()

    def _forget(self, key: Key, uid: str) -> None:
        waiters = self._awaited[key]
        waiters.discard(uid)
        if not waiters:
            del self._awaited[key]

    async def _write(self, waiting: _Waiting) -> None:
        plan, written = waiting.plan, waiting.written
        try:
            for volume, claim in plan.bindings:
                if volume.claim != ClaimRef(claim.namespace, claim.name, claim.uid):
                    self._check()
                    written[volume.key] = await keep_volume(self._client, volume, claim)
            for claim in plan.provisions:
                if claim.selected_node != plan.node:
                    self._check()
                    written[claim.key] = await select_node(self._client, claim, plan.node)
        except Unreachable as error:
            raise NotBound from error
        except ApiError as error:
            if error.object_is_another or error.status == 429 or error.ambiguous:
                raise NotBound(retry_after=error.retry_after) from error
            raise NotBound(str(error)) from error

    def _check(self) -> None:
        if not self._may_write():
            raise NotBound

    async def _wait(self, pod: Pod, waiting: _Waiting) -> None:
        deadline = self._clock() + BIND_WITHIN
        while True:
            waiting.news.clear()
            if pod.uid not in self._queue or not self._cluster.is_assumed(pod.uid):
                raise NotBound
            if self._all_bound(waiting):
                return
            left = deadline - self._clock()
            if left <= 0:
                raise NotBound(f"not bound within {BIND_WITHIN:.0f} s")
            try:
                await asyncio.wait_for(waiting.news.wait(), min(left, LOOK_EVERY))
            except TimeoutError:
                continue

    def _all_bound(self, waiting: _Waiting) -> bool:
        """Tell whether all claims are bound. Raises `NotBound` where one never will be."""
        plan = waiting.plan
        node = self._cluster.node(plan.node)
        if node is None:
            raise NotBound(f'node "{plan.node}" not found')
        # All are looked at: one that failed must not go unseen behind one that takes long.
        bound = [self._is_kept(waiting, node, volume, claim) for volume, claim in plan.bindings]
        bound += [self._is_made(waiting, node, claim) for claim in plan.provisions]
        return all(bound)

    def _is_kept(self, waiting: _Waiting, node: Node, volume: Volume, claim: Claim) -> bool:
        current = self._claim(claim)
        now = self._cluster.volumes.volume(volume.name)
        if now is None:
            raise NotBound(f'persistentvolume "{volume.name}" not found')
        if now.version < waiting.written.get(volume.key, 0):
            return False
        if now.claim is None or not now.claim.uid or not now.claim.means(claim):
            raise NotBound(f'ClaimRef got reset for pv "{volume.name}"')
        return current.bound and self._is_usable(node, current)

    def _is_made(self, waiting: _Waiting, node: Node, claim: Claim) -> bool:
        current = self._claim(claim)
        if current.version < waiting.written.get(claim.key, 0):
            return False
        if current.bound:
            return self._is_usable(node, current)
        if current.selected_node != node.name:
            raise NotBound(f'provisioning failed for PVC "{claim.name}"')
        return False

    def _is_usable(self, node: Node, claim: Claim) -> bool:
        """Tell whether a bound claim's volume is known. Raises `NotBound` where the node can't use it."""
        volume = self._cluster.volumes.volume(claim.volume_name)
        if volume is not None and not matches(node, volume.node_terms):
            raise NotBound(f'pv "{volume.name}" node affinity doesn\'t match node "{node.name}"')
        return volume is not None

    def _claim(self, claim: Claim) -> Claim:
        current = self._cluster.volumes.claim(claim.namespace, claim.name)
        if current is None or current.uid != claim.uid:
            raise NotBound(f'persistentvolumeclaim "{claim.name}" not found')
        if current.deleting:
            raise NotBound(f'persistentvolumeclaim "{claim.name}" is being deleted')
        return current


def _keys(plan: VolumePlan) -> list[Key]:
    chosen = [volume.key for volume, _ in plan.bindings] + [claim.key for _, claim in plan.bindings]
    return chosen + [claim.key for claim in plan.provisions]
