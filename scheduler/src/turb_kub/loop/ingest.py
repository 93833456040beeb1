"""What the watches say, put into the cluster and the queue."""

import logging
from collections.abc import Callable

import msgspec

from turb_kub.cluster.cluster import Cluster
from turb_kub.loop.metrics import Metrics
from turb_kub.objects.node import decode_node
from turb_kub.objects.pod import Pod, decode_pod
from turb_kub.objects.wire import Decoder, Identified
from turb_kub.queue.queue import SchedulingQueue

log = logging.getLogger(__name__)

#: What reading an object may raise, whatever is in it; msgspec's and our own errors are ValueErrors.
MALFORMED = (msgspec.MsgspecError, ValueError, RecursionError)
_identities = Decoder(Identified)


class SetAside:
    """Objects that could not be understood: each logged once, counted, and remembered until it is mended or gone."""

    def __init__(self, kind: str, metrics: Metrics) -> None:
        self._kind = kind
        self._metrics = metrics
        self._keys: dict[str, str] = {}

    def note(self, item: msgspec.Raw, error: Exception) -> None:
        try:
            meta = _identities.decode(item).metadata
            key, name = meta.uid or meta.name, f"{meta.namespace}/{meta.name}".lstrip("/")
        except MALFORMED:
            key = name = "(no name)"
        if key not in self._keys:
            log.warning("%s %s is set aside until it is mended: %s", self._kind, name, error)
            self._metrics.set_aside.labels(self._kind).inc()
        self._keys[key] = name

    def mended(self, key: str) -> None:
        self._keys.pop(key, None)


class NodeSink:
    """Nodes into the cluster."""

    def __init__(self, cluster: Cluster, metrics: Metrics) -> None:
        self._cluster = cluster
        self._set_aside = SetAside("node", metrics)
        self._limit_errors: dict[str, str] = {}
        #: Called after anything that may let a waiting pod move.
        self.notify: Callable[[], None] = lambda: None

    def replace(self, items: list[msgspec.Raw]) -> None:
        named = {name for item in items if (name := _name(item))}
        for _, node in list(self._cluster.each_node()):
            if node.name not in named:
                self._cluster.remove_node(node.name)
        for item in items:
            self.changed(item)

    def changed(self, item: msgspec.Raw) -> None:
        try:
            node = decode_node(item)
        except MALFORMED as error:
            self._set_aside.note(item, error)
            return
        self._set_aside.mended(node.uid)
        if node.limit_error and self._limit_errors.get(node.name) != node.limit_error:
            log.warning("node %s: %s; the general limit holds there", node.name, node.limit_error)
        self._limit_errors[node.name] = node.limit_error or ""
        if self._cluster.set_node(node):
            self.notify()

    def deleted(self, item: msgspec.Raw) -> None:
        name = _name(item)
        if name:
            self._cluster.remove_node(name)
            self._limit_errors.pop(name, None)


class PodSink:
    """Pods into the cluster (bound ones) or the queue (ours that wait)."""

    def __init__(self, cluster: Cluster, queue: SchedulingQueue, metrics: Metrics, clock: Callable[[], float]) -> None:
        self._cluster = cluster
        self._queue = queue
        self._clock = clock
        self._set_aside = SetAside("pod", metrics)
        #: uid by namespace and name, of every pod that the cluster or the queue knows.
        self._uids: dict[tuple[str, str], str] = {}
        #: Pods that a read of our own found finished before the watch has told of it: resourceVersion by uid.
        self._finished: dict[str, int] = {}
        #: Called, once each, with pods of ours that the kubelet turned away.
        self.rejected: Callable[[Pod], None] = lambda pod: None
        self.notify: Callable[[], None] = lambda: None

    def replace(self, items: list[msgspec.Raw]) -> None:
        listed = {uid for item in items if (uid := _uid(item))}
        for key, uid in list(self._uids.items()):
            if uid not in listed:
                self._gone(key, uid)
        self._finished = {uid: version for uid, version in self._finished.items() if uid in listed}
        for item in items:
            self.changed(item)

    def changed(self, item: msgspec.Raw) -> None:
        try:
            pod = decode_pod(item)
        except MALFORMED as error:
            self._set_aside.note(item, error)
            return
        self._set_aside.mended(pod.uid)
        self.take(pod)

    def deleted(self, item: msgspec.Raw) -> None:
        try:
            meta = _identities.decode(item).metadata
        except MALFORMED as error:
            self._set_aside.note(item, error)
            return
        self._set_aside.mended(meta.uid)
        self._finished.pop(meta.uid, None)
        if self._uids.get((meta.namespace, meta.name)) == meta.uid:
            self._gone((meta.namespace, meta.name), meta.uid)

    def read(self, pod: Pod) -> None:
        """Take the state of one pod from a read of our own, which may be ahead of the watch."""
        self.take(pod)
        if pod.terminal:
            self._finished[pod.uid] = pod.resource_version

    def take(self, pod: Pod) -> None:
        """Take the state of one pod from the watch."""
        key = (pod.namespace, pod.name)
        known = self._uids.get(key)
        if known is not None and known != pod.uid:
            # Deleted and made anew while we were not looking: the old one is gone.
            self._gone(key, known)
        if self._is_stale(pod):
            return
        if pod.node_name:
            self._bound(key, pod)
        elif self._is_ours(pod):
            self._uids[key] = pod.uid
            self._queue.add(pod, self._clock())
            self.notify()
        elif pod.uid in self._queue:
            self._gone(key, pod.uid)

    def gone(self, pod: Pod) -> None:
        """Forget a pod that a read of our own did not find."""
        self._gone((pod.namespace, pod.name), pod.uid)

    def _bound(self, key: tuple[str, str], pod: Pod) -> None:
        if pod.rejection is not None and self._placed_by_us(pod):
            self.rejected(pod)
            self.notify()
        if pod.uid in self._queue:
            assumed = self._cluster.placed(pod.uid)
            if assumed is not None and assumed.node_name == pod.node_name:
                self._queue.placed(pod.uid)
            else:
                self._queue.remove(pod.uid)
        if pod.terminal:
            self._uids.pop(key, None)
        else:
            self._uids[key] = pod.uid
        self._cluster.set_pod(pod)
        self.notify()

    def _is_stale(self, pod: Pod) -> bool:
        """Whether a read of our own was ahead of the watch that now delivers this. No binding is ever undone."""
        finished = self._finished.get(pod.uid)
        if finished is not None:
            if pod.resource_version < finished:
                return True
            del self._finished[pod.uid]
        placed = self._cluster.placed(pod.uid)
        if placed is None or self._cluster.is_assumed(pod.uid):
            return False
        return not pod.node_name or pod.resource_version < placed.resource_version

    def _placed_by_us(self, pod: Pod) -> bool:
        """Whether a pod is ours and was alive when last seen: one that had failed before we started is no news."""
        known = pod.uid in self._queue or self._cluster.placed(pod.uid) is not None
        return known and pod.scheduler_name == self._cluster.accounting.scheduler_name

    def _is_ours(self, pod: Pod) -> bool:
        return pod.scheduler_name == self._cluster.accounting.scheduler_name and not pod.terminal and not pod.deleting

    def _gone(self, key: tuple[str, str], uid: str) -> None:
        self._uids.pop(key, None)
        self._queue.remove(uid)
        self._cluster.remove_pod(uid)
        self.notify()


def _uid(item: msgspec.Raw) -> str:
    try:
        return _identities.decode(item).metadata.uid
    except MALFORMED:
        return ""


def _name(item: msgspec.Raw) -> str:
    try:
        return _identities.decode(item).metadata.name
    except MALFORMED:
        return ""
