"""What the watches say, put into the cluster and the queue.

An object that is malformed in any field is set aside until a readable state of it comes, or it is gone:

| malformed | until then |
|---|---|
| pod that waits for us | is not placed |
| pod that a node holds, known from before | counts as it was known |
| pod that a node holds, never understood | its node takes no more pods: what the pod takes cannot be counted |
| node | takes no more pods; its pods count on |
| anything else | left out |
"""

import logging
from collections.abc import Callable

import msgspec

from turb_kub.api.log_limit import LogLimit
from turb_kub.cluster.cluster import Cluster
from turb_kub.loop.metrics import Metrics
from turb_kub.loop.sink import MOST_TOLD, ObjectSink, SetAside, identity_of
from turb_kub.objects.malformed import MALFORMED, Remains, remains_of
from turb_kub.objects.node import Node, decode_node
from turb_kub.objects.pod import TERMINAL_PHASES, Pod, decode_pod, resource_version, shared_labels
from turb_kub.objects.wire import Decoder, Identified, ObjectMeta
from turb_kub.queue.queue import SchedulingQueue
from turb_kub.queue.signature import asks

log = logging.getLogger(__name__)

_namespaces = Decoder(Identified)


class NodeSink(ObjectSink[str]):
    """Nodes into the cluster."""

    def __init__(self, cluster: Cluster, metrics: Metrics) -> None:
        super().__init__("node", metrics)
        self._cluster = cluster
        self._limit_errors: dict[str, str] = {}
        self._limit = LogLimit(log, most=MOST_TOLD)

    def key_of(self, item: Remains) -> str:
        return item.name

    def _keys(self) -> list[str]:
        return [node.name for _, node in self._cluster.each_node()]

    def _decode(self, item: msgspec.Raw) -> Node:
        return decode_node(item)

    def _put(self, found: Node) -> bool:
        if found.limit_error and self._limit_errors.get(found.name) != found.limit_error:
            self._limit.warning(
                f"node {found.name}: {found.limit_error}; the general limit holds there", about=found.name
            )
        if found.limit_error:
            self._limit_errors[found.name] = found.limit_error
        else:
            self._limit_errors.pop(found.name, None)
        mended = self._cluster.reopen_node(found.name)
        return self._cluster.set_node(found) or mended

    def _drop(self, key: str) -> bool:
        self._limit_errors.pop(key, None)
        known = self._cluster.remove_node(key)
        self._cluster.reopen_node(key)
        return known

    def _malformed(self, remains: Remains) -> None:
        if self._cluster.slot(remains.name) is not None:
            self._cluster.close_node(remains.name, remains.name, "the node is malformed")

    # For the cache's comparison with a list (`self_check`)

    def held(self) -> dict[str, str]:
        return {node.name: node.uid for _, node in self._cluster.each_node()}

    def holds(self, key: str, which: str) -> bool:
        node = self._cluster.node(key)
        return node is not None and node.uid == which

    def agrees(self, item: msgspec.Raw) -> bool:
        try:
            node = decode_node(item)
        except MALFORMED:
            return True
        return self._cluster.node(node.name) == node

    def forget(self, key: str) -> None:
        self._drop(key)
        self.notify()


class NamespaceSink(ObjectSink[str]):
    """The labels of namespaces into the cluster."""

    def __init__(self, cluster: Cluster, metrics: Metrics) -> None:
        super().__init__("namespace", metrics)
        self._cluster = cluster

    def key_of(self, item: Remains) -> str:
        return item.name

    def _keys(self) -> list[str]:
        return self._cluster.namespaces.names()

    def _decode(self, item: msgspec.Raw) -> ObjectMeta:
        return _namespaces.decode(item).metadata

    def _put(self, found: ObjectMeta) -> bool:
        return self._cluster.set_namespace(found.name, shared_labels(found.labels))

    def _drop(self, key: str) -> bool:
        return self._cluster.remove_namespace(key)


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
        #: Whether the first list is taken: what it holds was there before and is no news.
        self._listed = False
        #: Called, once each, with pods that another scheduler has put on a node since.
        self.arrived: Callable[[Pod], None] = lambda pod: None
        #: Called with the name of another scheduler of which something was seen since: a new pod, or a verdict on one.
        self.at_work: Callable[[str], None] = lambda scheduler_name: None
        #: Called with the uid of a pod that is gone, whether or not it was known.
        self.left: Callable[[str], None] = lambda uid: None
        self.notify: Callable[[], None] = lambda: None

    def replace(self, items: list[msgspec.Raw]) -> None:
        identities = [identity_of(item) for item in items]
        listed = {one.uid for one in identities}
        self._set_aside.keep_only({one.ident for one in identities})
        self._finished = {uid: version for uid, version in self._finished.items() if uid in listed}
        self._cluster.foreign.keep_only(listed)
        # Where one has no uid that can be read, it may be any that seems gone: no room is given away.
        if "" not in listed:
            for key, uid in list(self._uids.items()):
                if uid not in listed:
                    self._gone(key, uid)
        for item in items:
            self.changed(item)
        self._listed = True

    def changed(self, item: msgspec.Raw) -> None:
        try:
            pod = decode_pod(item)
        except MALFORMED as error:
            self.malformed(remains_of(item), error)
            return
        self._set_aside.mended(pod.uid)
        self.take(pod)

    def deleted(self, item: msgspec.Raw) -> None:
        gone = identity_of(item)
        self._set_aside.mended(gone.ident)
        self._finished.pop(gone.uid, None)
        self._cluster.foreign.wait_no_more(gone.uid)
        if self._uids.get((gone.namespace, gone.name)) == gone.ident:
            self._gone((gone.namespace, gone.name), gone.ident)

    def malformed(self, remains: Remains, error: Exception) -> None:
        """Set a pod aside, and see to it that it neither is placed nor loses its room."""
        self._set_aside.note(remains, error)
        key, uid = (remains.namespace, remains.name), remains.ident
        self._forget_namesake(key, uid)
        if remains.phase in TERMINAL_PHASES:
            self._gone(key, uid)
        elif not remains.node_name:
            # While it is being bound its room stays taken; the binding's answer settles it.
            if not self._cluster.is_assumed(uid):
                self._queue.remove(uid)
        elif (known := self._cluster.placed(uid) or self._queue.get(uid)) is not None:
            version = max(known.resource_version, resource_version(remains.resource_version))
            self.take(msgspec.structs.replace(known, node_name=remains.node_name, resource_version=version))
        else:
            self._uids[key] = uid
            self._cluster.close_node(remains.node_name, uid, remains.uncounted)

    def read(self, pod: Pod) -> None:
        """Take the state of one pod from a read of our own, which may be ahead of the watch."""
        self.take(pod)
        if pod.terminal:
            self._finished[pod.uid] = pod.resource_version

    def take(self, pod: Pod) -> None:
        """Take the state of one pod from the watch."""
        key = (pod.namespace, pod.name)
        if self._is_older_than_namesake(key, pod):
            return
        self._forget_namesake(key, pod.uid)
        if self._is_stale(pod):
            return
        self._note_waiting(pod)
        if self._cluster.reopen_node(pod.uid):
            self.notify()
        if pod.node_name:
            self._bound(key, pod)
        elif self._is_ours(pod):
            self._uids[key] = pod.uid
            self._nominated(pod)
            self._queue.add(pod, self._clock())
            self.notify()
        elif pod.reserves:
            self._uids[key] = pod.uid
            self._nominated(pod)
            self._queue.remove(pod.uid)
            self.notify()
        elif pod.uid in self._queue or pod.uid in self._cluster.nominated:
            self._gone(key, pod.uid)

    def gone(self, pod: Pod) -> None:
        """Forget a pod that a read of our own did not find."""
        self._gone((pod.namespace, pod.name), pod.uid)

    # For the cache's comparison with a list (`self_check`)

    def key_of(self, item: Remains) -> str:
        return item.uid

    def held(self) -> dict[str, str]:
        waiting = {pod.uid for pod in self._queue.pods()} | self._cluster.nominated.uids()
        return dict.fromkeys(self._cluster.placed_uids() | waiting, "")

    def holds(self, key: str, which: str) -> bool:
        return self._known(key) is not None

    def agrees(self, item: msgspec.Raw) -> bool:
        try:
            pod = decode_pod(item)
        except MALFORMED:
            return True
        known = self._known(pod.uid)
        if known is not None and known.resource_version > pod.resource_version:
            return True
        if pod.node_name and not pod.terminal:
            return known is not None and not self._cluster.is_assumed(pod.uid) and _same(known, pod)
        if not pod.node_name and self._is_ours(pod):
            return known is not None and asks(known) == asks(pod)
        return known is None if not pod.reserves else known is not None and known.nominated_node == pod.nominated_node

    def forget(self, key: str) -> None:
        known = self._known(key)
        if known is not None:
            self.gone(known)

    def _known(self, uid: str) -> Pod | None:
        return self._queue.get(uid) or self._cluster.placed(uid) or self._cluster.nominated.get(uid)

    def _forget_namesake(self, key: tuple[str, str], uid: str) -> None:
        known = self._uids.get(key)
        if known is not None and known != uid:
            # Deleted and made anew while we were not looking: the old one is gone.
            self._gone(key, known)

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
        self._cluster.withdraw(pod.uid)
        known = self._cluster.placed(pod.uid) is not None
        if pod.terminal:
            self._uids.pop(key, None)
        else:
            self._uids[key] = pod.uid
        self._cluster.set_pod(pod)
        if self._listed and not (known or pod.terminal) and self._cluster.foreign.counts(pod):
            self.arrived(pod)
        self.notify()

    def _note_waiting(self, pod: Pod) -> None:
        ours = pod.scheduler_name == self._cluster.accounting.scheduler_name
        if ours or pod.node_name or pod.gates or pod.deleting or pod.terminal or pod.of_every_node:
            self._cluster.foreign.wait_no_more(pod.uid)
        elif self._cluster.foreign.wait(pod, self._cluster.accounting.budget(pod)) and self._listed:
            self.at_work(pod.scheduler_name)

    def _nominated(self, pod: Pod) -> None:
        if pod.reserves:
            self._cluster.nominate(pod)
        else:
            self._cluster.withdraw(pod.uid)

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

    def _is_older_than_namesake(self, key: tuple[str, str], pod: Pod) -> bool:
        """Whether a read of our own has already seen the pod that was made in this one's place."""
        uid = self._uids.get(key, pod.uid)
        known = None if uid == pod.uid else self._cluster.placed(uid) or self._queue.get(uid)
        return known is not None and known.resource_version > pod.resource_version

    def _placed_by_us(self, pod: Pod) -> bool:
        """Whether a pod is ours and was alive when last seen: one that had failed before we started is no news."""
        known = pod.uid in self._queue or self._cluster.placed(pod.uid) is not None
        return known and pod.scheduler_name == self._cluster.accounting.scheduler_name

    def _is_ours(self, pod: Pod) -> bool:
        return pod.scheduler_name == self._cluster.accounting.scheduler_name and not pod.terminal and not pod.deleting

    def _gone(self, key: tuple[str, str], uid: str) -> None:
        self._uids.pop(key, None)
        holder = self._cluster.placed(uid) or self._queue.get(uid)
        if holder is not None and (holder.namespace, holder.name) != key:
            return  # the uid has become another pod's
        self._queue.remove(uid)
        self._cluster.reopen_node(uid)
        self._cluster.remove_pod(uid)
        self._cluster.withdraw(uid)
        self.left(uid)
        self.notify()


def _same(known: Pod, pod: Pod) -> bool:
    """Whether two states of a bound pod are one to a decision."""
    return (known.resource_version, known.node_name, asks(known)) == (pod.resource_version, pod.node_name, asks(pod))
