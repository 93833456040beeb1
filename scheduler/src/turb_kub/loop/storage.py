"""Storage objects as the watches say them, put into the cluster."""

from collections.abc import Callable

import msgspec

from turb_kub.api.storage import StorageKind
from turb_kub.cluster.cluster import Cluster
from turb_kub.loop.ingest import SetAside
from turb_kub.loop.metrics import Metrics
from turb_kub.objects.malformed import MALFORMED, remains_of
from turb_kub.objects.storage import Key, StorageObject


class StorageSink:
    """One kind of storage objects into `cluster.volumes`. One that is malformed stays as it was known, or unknown."""

    def __init__(self, kind: StorageKind, cluster: Cluster, metrics: Metrics) -> None:
        self.kind = kind
        self._volumes = cluster.volumes
        self._set_aside = SetAside(kind.kind, metrics)
        self._volumes.unread[kind.resource] = "the API server does not list them"
        #: Called with each object that came or changed, and with the last state of one that went.
        self.seen: Callable[[StorageObject], None] = lambda item: None
        #: Called after anything that may let a waiting pod move.
        self.notify: Callable[[], None] = lambda: None

    def replace(self, items: list[msgspec.Raw]) -> None:
        listed = [remains_of(item) for item in items]
        self._set_aside.keep_only({one.ident for one in listed})
        keys = {(one.namespace, one.name) for one in listed}
        for key in self._volumes.keys(self.kind.type):
            if key not in keys:
                self._drop(key)
        for item in items:
            self.changed(item)
        self._volumes.now_read(self.kind.resource)
        self.notify()

    def changed(self, item: msgspec.Raw) -> None:
        try:
            found = self.kind.decode(item)
        except MALFORMED as error:
            self._set_aside.note(remains_of(item), error)
            return
        self._set_aside.mended(remains_of(item).ident)
        changed = self._volumes.put(found)
        self.seen(found)
        if changed:
            self.notify()

    def deleted(self, item: msgspec.Raw) -> None:
        gone = remains_of(item)
        self._set_aside.mended(gone.ident)
        self._drop((gone.namespace, gone.name))

    def _drop(self, key: Key) -> None:
        gone = self._volumes.drop(self.kind.type, key)
        if gone is not None:
            self.seen(gone)
            self.notify()
