"""Which events can help a pod that a filter refused."""

from enum import Flag, auto

from turb_kub.decision.fields import FIELDS
from turb_kub.decision.filters import NODE_FILTERS, POD_FILTERS, kubelet_rejection
from turb_kub.decision.filters.node_resources import LIMIT


class Event(Flag):
    """What happened in the cluster."""

    NODE_ADDED = auto()
    #: Labels, taints, cordon, readiness, allocatable resources or the limit of a node changed.
    NODE_CHANGED = auto()
    #: A pod left its node, or takes less of it than before.
    ROOM_FREED = auto()
    #: A node is no longer avoided for having turned pods away.
    COOLED_DOWN = auto()


_ANY_NODE = Event.NODE_ADDED | Event.NODE_CHANGED
_HELPS: dict[str, Event] = {
    **{node_filter.name: _ANY_NODE for node_filter in NODE_FILTERS},
    **{pod_filter.name: _ANY_NODE | Event.ROOM_FREED for pod_filter in POD_FILTERS},
    kubelet_rejection.NAME: Event.NODE_ADDED | Event.COOLED_DOWN,
    LIMIT: _ANY_NODE | Event.ROOM_FREED,
    # Only a change of the pod itself helps.
    FIELDS: Event(0),
}


def helping_events(filters: frozenset[str]) -> Event:
    """Return the events after which a pod refused by these filters may fit. No filter: there was no node at all."""
    helps = Event(0) if filters else Event.NODE_ADDED
    for name in filters:
        helps |= _HELPS[name]
    return helps
