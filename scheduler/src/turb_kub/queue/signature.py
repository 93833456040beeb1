"""What pods ask, as a key: pods of one signature get the same verdict from the same cluster.

Pods of one Deployment share a signature. Of those that fit nowhere only the first is tried again, so that an event
costs a look at each signature, not at each pod. A pod whose decision hangs on its own identity has a signature of its
own by what it asks (its claim's name, its own labels).
"""

from collections.abc import Hashable, Mapping

from turb_kub.objects.pod import Pod

#: What says who a pod is and how it fares. Everything else is what it asks: a field that is new there makes for more
#: signatures until it is named here, which costs time but is never wrong.
_IDENTITY = frozenset(
    {"uid", "name", "resource_version", "node_name", "phase", "created", "deleting", "verdict", "rejection"}
)
#: The field table's answer, and what it is made from: known once a pod has been decided.
_FIELD_TABLE = ("raw_spec", "fields")
_ASKED = tuple(field for field in Pod.__struct_fields__ if field not in _IDENTITY and field not in _FIELD_TABLE)


def asks(pod: Pod) -> tuple[Hashable, ...]:
    """Return everything by which a decision tells pods apart, but for the field table's answer."""
    return tuple(_hashable(getattr(pod, field)) for field in _ASKED)


def signature_of(pod: Pod) -> tuple[Hashable, ...]:
    """Return what pods that get the same verdict from the same cluster have in common; of pods decided once only."""
    return (*asks(pod), pod.fields)


def _hashable(value: object) -> Hashable:
    return tuple(sorted(value.items())) if isinstance(value, Mapping) else value
