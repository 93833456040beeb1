"""What can still be read of an object that is malformed somewhere: who it is, where it is, whether it has finished.

An object that cannot be decoded as a whole must not be forgotten: a pod takes room on its node whatever is wrong with
the rest of it. Each field here is read for itself, and one that is no text counts as empty.
"""

from typing import TypeVar

import msgspec

from turb_kub.objects.wire import Wire

#: What reading an object may raise, whatever is in it; msgspec's and our own errors are ValueErrors.
MALFORMED = (msgspec.MsgspecError, ValueError, RecursionError)
#: No name, uid or phase in the API is longer.
LONGEST_NAME = 253

_NOTHING = msgspec.Raw(b"null")
_Struct = TypeVar("_Struct", bound=Wire)


class MalformedError(ValueError):
    """A field without which an object is none, or that no API server would store."""


class Remains(msgspec.Struct, frozen=True):
    """Who an object is; of a pod its node and phase too. "" where that cannot be read."""

    uid: str = ""
    namespace: str = ""
    name: str = ""
    resource_version: str = ""
    node_name: str = ""
    phase: str = ""

    @property
    def key(self) -> str:
        """`namespace/name`, or the name alone, or that there is none."""
        return f"{self.namespace}/{self.name}".lstrip("/") or "(no name)"

    @property
    def ident(self) -> str:
        """What tells the object from others: its uid, or where that cannot be read its key."""
        return self.uid or self.key

    @property
    def uncounted(self) -> str:
        """Why its node is closed, where it is a pod that was never understood."""
        return f"pod {self.key} is malformed, what it takes cannot be counted"


class _Object(Wire):
    metadata: msgspec.Raw = _NOTHING
    spec: msgspec.Raw = _NOTHING
    status: msgspec.Raw = _NOTHING


class _Meta(Wire):
    uid: msgspec.Raw = _NOTHING
    namespace: msgspec.Raw = _NOTHING
    name: msgspec.Raw = _NOTHING
    resourceVersion: msgspec.Raw = _NOTHING


class _Spec(Wire):
    nodeName: msgspec.Raw = _NOTHING


class _Status(Wire):
    phase: msgspec.Raw = _NOTHING


def remains_of(item: msgspec.Raw | bytes | str) -> Remains:
    """Return what can be read of an object. Never raises, whatever is in it."""
    whole = _part(item, _Object)
    meta = _part(whole.metadata, _Meta)
    return Remains(
        uid=_text(meta.uid),
        namespace=_text(meta.namespace),
        name=_text(meta.name),
        resource_version=_text(meta.resourceVersion),
        node_name=_text(_part(whole.spec, _Spec).nodeName),
        phase=_text(_part(whole.status, _Status).phase),
    )


def checked_name(text: str, what: str) -> str:
    """Return the text. Raises `MalformedError` where it is longer than any name in the API."""
    if len(text) > LONGEST_NAME:
        raise MalformedError(f"{what} is longer than {LONGEST_NAME} characters")
    return text


def _part(item: msgspec.Raw | bytes | str, shape: type[_Struct]) -> _Struct:
    try:
        return msgspec.json.decode(item, type=shape)
    except MALFORMED:
        return shape()


def _text(item: msgspec.Raw) -> str:
    try:
        text = msgspec.json.decode(item, type=str)
    except MALFORMED:
        return ""
    return text if len(text) <= LONGEST_NAME else ""
