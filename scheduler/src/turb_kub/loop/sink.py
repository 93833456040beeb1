"""What sinks of watches share: how objects come, change and go, and what becomes of those that are malformed."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

import msgspec

from turb_kub.api.log_limit import LogLimit
from turb_kub.loop.metrics import Metrics
from turb_kub.objects.malformed import MALFORMED, Remains, remains_of
from turb_kub.objects.wire import Decoder, Identified

log = logging.getLogger(__name__)

#: Objects of one kind told of by name within some minutes; `turb-kub status` names all.
MOST_TOLD = 100
Key = TypeVar("Key")
_identities = Decoder(Identified)


def identity_of(item: msgspec.Raw) -> Remains:
    """Return who an object is, whatever is in the rest of it."""
    try:
        meta = _identities.decode(item).metadata
    except MALFORMED:
        return remains_of(item)
    return Remains(uid=meta.uid, namespace=meta.namespace, name=meta.name)


class SetAside:
    """Objects that could not be understood: each logged once, counted, and remembered until it is mended or gone."""

    def __init__(self, kind: str, metrics: Metrics) -> None:
        self._kind = kind
        self._metrics = metrics
        self._idents: set[str] = set()
        self._limit = LogLimit(log, most=MOST_TOLD)

    def __len__(self) -> int:
        return len(self._idents)

    def note(self, remains: Remains, error: Exception) -> None:
        """Remember an object. Those without uid and name cannot be told apart and count as one."""
        if remains.ident not in self._idents:
            self._idents.add(remains.ident)
            self._limit.warning(
                f"{self._kind} {remains.key} is set aside until it is mended: {error}", about=remains.ident
            )
            self._metrics.set_aside.labels(self._kind).inc()

    def mended(self, ident: str) -> None:
        """Forget an object that is understood again, or gone."""
        self._idents.discard(ident)

    def keep_only(self, listed: set[str]) -> None:
        """Forget all that are not among these."""
        self._idents &= listed


class ObjectSink(ABC, Generic[Key]):
    """One kind of objects, each put somewhere under a key.

    Attributes:
        notify: called after anything that may let a waiting pod move.
    """

    def __init__(self, kind: str, metrics: Metrics) -> None:
        self._set_aside = SetAside(kind, metrics)
        self.notify: Callable[[], None] = lambda: None

    @abstractmethod
    def key_of(self, item: Remains) -> Key:
        """The key of an object."""

    @abstractmethod
    def _keys(self) -> Iterable[Key]:
        """Keys of all that are known, good while some are dropped."""

    @abstractmethod
    def _decode(self, item: msgspec.Raw) -> Any:
        """Decode an object. Raises one of `MALFORMED`."""

    @abstractmethod
    def _put(self, found: Any) -> bool:
        """Take a decoded object. Tells whether a decision could see the difference."""

    @abstractmethod
    def _drop(self, key: Key) -> bool:
        """Forget an object. Tells whether it was known."""

    def _malformed(self, remains: Remains) -> None:
        """Take note of an object that has been set aside; by default it stays as it was known, or unknown."""

    def replace(self, items: list[msgspec.Raw]) -> None:
        listed = [identity_of(item) for item in items]
        self._set_aside.keep_only({one.ident for one in listed})
        keys = {self.key_of(one) for one in listed}
        for key in self._keys():
            if key not in keys:
                self._drop(key)
        for item in items:
            self.changed(item)
        self.notify()

    def changed(self, item: msgspec.Raw) -> None:
        try:
            found = self._decode(item)
        except MALFORMED as error:
            remains = remains_of(item)
            self._set_aside.note(remains, error)
            self._malformed(remains)
            return
        if self._set_aside:
            self._set_aside.mended(identity_of(item).ident)
        if self._put(found):
            self.notify()

    def deleted(self, item: msgspec.Raw) -> None:
        gone = identity_of(item)
        self._set_aside.mended(gone.ident)
        if self._drop(self.key_of(gone)):
            self.notify()
