"""Storage objects as the watches say them, put into the cluster."""

from collections.abc import Callable

import msgspec

from turb_kub.api.storage import StorageKind
from turb_kub.cluster.cluster import Cluster
from turb_kub.loop.metrics import Metrics
from turb_kub.loop.sink import ObjectSink
from turb_kub.objects.malformed import Remains
from turb_kub.objects.storage import Key, StorageObject


class StorageSink(ObjectSink[Key]):
    """One kind of storage objects into `cluster.volumes`."""

    def __init__(self, kind: StorageKind, cluster: Cluster, metrics: Metrics) -> None:
        super().__init__(kind.kind, metrics)
        self.kind = kind
        self._volumes = cluster.volumes
        self._volumes.unread[kind.resource] = "the API server does not list them"
        #: Called with each object that came or changed, and with the last state of one that went.
        self.seen: Callable[[StorageObject], None] = lambda item: None

    def replace(self, items: list[msgspec.Raw]) -> None:
        self._volumes.now_read(self.kind.resource)
        super().replace(items)

    def key_of(self, item: Remains) -> Key:
        return item.namespace, item.name

    def _keys(self) -> list[Key]:
        return self._volumes.keys(self.kind.type)

    def _decode(self, item: msgspec.Raw) -> StorageObject:
        return self.kind.decode(item)

    def _put(self, found: StorageObject) -> bool:
        changed = self._volumes.put(found)
        self.seen(found)
        return changed

    def _drop(self, key: Key) -> bool:
        gone = self._volumes.drop(self.kind.type, key)
        if gone is not None:
            self.seen(gone)
        return gone is not None
