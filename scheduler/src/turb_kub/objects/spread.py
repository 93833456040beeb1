"""Topology spread constraints of a pod (kubernetes.io, "Pod Topology Spread Constraints")."""

from collections.abc import Mapping
from functools import lru_cache

import msgspec

from turb_kub.objects.selectors import Expression, Selector, selector_of
from turb_kub.objects.wire import PodSpec, TopologySpreadConstraint


class SpreadConstraint(msgspec.Struct, frozen=True, gc=False):
    """How evenly matching pods of the pod's namespace must, or should, be spread over domains. Hashable; interned.

    Attributes:
        topology_key: the label whose values are the domains.
        max_skew: how many more pods than the least filled domain one may hold.
        selector: the pods that count; None: no pod.
        required: whether a node that would break it is refused; else such nodes are only less liked.
        min_domains: with fewer domains than this the least filled one counts as empty.
        honours_affinity: whether only nodes that the pod's node selector and affinity admit make domains.
        honours_taints: whether only nodes whose taints the pod tolerates do.
    """

    topology_key: str
    max_skew: int
    selector: Selector | None
    required: bool
    min_domains: int = 1
    honours_affinity: bool = True
    honours_taints: bool = False

    def matches(self, labels: Mapping[str, str]) -> bool:
        return self.selector is not None and self.selector.matches(labels)


Spread = tuple[SpreadConstraint, ...]


def spread_of(spec: PodSpec, labels: Mapping[str, str]) -> Spread:
    """Return the spread constraints of a pod with these labels, interned."""
    if not spec.topologySpreadConstraints:
        return ()
    return _shared(tuple(_constraint(constraint, labels) for constraint in spec.topologySpreadConstraints))


def _constraint(wire: TopologySpreadConstraint, labels: Mapping[str, str]) -> SpreadConstraint:
    # The API server merges these into the selector since 1.34; what is merged twice is the same.
    keyed = tuple(Expression(key, "In", (labels[key],)) for key in wire.matchLabelKeys or () if key in labels)
    return SpreadConstraint(
        topology_key=wire.topologyKey,
        max_skew=wire.maxSkew,
        selector=selector_of(wire.labelSelector, keyed),
        required=wire.whenUnsatisfiable != "ScheduleAnyway",
        min_domains=1 if wire.minDomains is None else wire.minDomains,
        honours_affinity=wire.nodeAffinityPolicy != "Ignore",
        honours_taints=wire.nodeTaintsPolicy == "Honor",
    )


@lru_cache(maxsize=4096)
def _shared(spread: Spread) -> Spread:
    return spread
