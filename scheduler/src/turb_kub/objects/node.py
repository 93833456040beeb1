"""A node, as little of it as decisions need."""

import msgspec

from turb_kub.objects.malformed import MalformedError, checked_name
from turb_kub.objects.quantity import MEBIBYTE, QuantityError
from turb_kub.objects.requests import Requests, parse_quantities, whole_amounts
from turb_kub.objects.wire import Decoder, Taint, WireNode

#: On a node: overrides NODE_MEM_LIMIT_MB there. Whole MiB, at least 1.
LIMIT_ANNOTATION = "turb-kub.io/node-mem-limit-mb"
#: Effects that keep new pods off a node.
HARD_EFFECTS = frozenset({"NoSchedule", "NoExecute"})
#: The effect that only makes other nodes preferable.
SOFT_EFFECT = "PreferNoSchedule"

_nodes = Decoder(WireNode)


class Node(msgspec.Struct, gc=False):
    """One node. `ready` is the status of its Ready condition: "True", "False", "Unknown", or "" where it has none."""

    name: str
    uid: str
    labels: dict[str, str]
    allocatable: Requests
    ready: str
    unschedulable: bool
    #: Taints whose effect is NoSchedule or NoExecute.
    taints: tuple[Taint, ...]
    #: Taints whose effect is PreferNoSchedule.
    soft_taints: tuple[Taint, ...] = ()
    #: Bytes, from the node's annotation; None where it has none.
    memory_limit: int | None = None
    #: Why the annotation was not understood; None where it was, or there is none.
    limit_error: str | None = None


def parse_mebibytes(text: str) -> int:
    """Return whole MiB as bytes. Raises `QuantityError` for anything but a whole number of at least 1."""
    stripped = text.strip()
    # The length first: Python refuses to make a number of thousands of digits.
    if len(stripped) > 10 or not (stripped.isascii() and stripped.isdecimal()) or int(stripped) < 1:
        raise QuantityError(f"{text[:40]!r} is not a whole number of MiB (at least 1, for example 2048)")
    return int(stripped) * MEBIBYTE


def decode_node(data: bytes | str | msgspec.Raw) -> Node:
    """Decode a node.

    Raises:
        msgspec.MsgspecError: no JSON, or not a node's shape.
        QuantityError: a quantity in its allocatable resources is malformed.
        MalformedError: it has no name, or one that is none.
    """
    wire = _nodes.decode(data)
    meta = wire.metadata
    ready = [condition.status for condition in wire.status.conditions or () if condition.type == "Ready"]
    limit, error = _limit(meta.annotations or {})
    if not meta.name:
        raise MalformedError("it has no name")
    return Node(
        name=checked_name(meta.name, "its name"),
        uid=meta.uid,
        labels=meta.labels or {},
        allocatable=whole_amounts(parse_quantities(wire.status.allocatable)),
        ready=ready[0] if ready else "",
        unschedulable=wire.spec.unschedulable,
        taints=tuple(taint for taint in wire.spec.taints or () if taint.effect in HARD_EFFECTS),
        soft_taints=tuple(taint for taint in wire.spec.taints or () if taint.effect == SOFT_EFFECT),
        memory_limit=limit,
        limit_error=error,
    )


def _limit(annotations: dict[str, str]) -> tuple[int | None, str | None]:
    text = annotations.get(LIMIT_ANNOTATION)
    if text is None:
        return None, None
    try:
        return parse_mebibytes(text), None
    except QuantityError as error:
        return None, f"annotation {LIMIT_ANNOTATION}: {error}"
