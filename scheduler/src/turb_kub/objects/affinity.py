"""What a pod demands of, and prefers in, the pods that its node's surroundings hold: inter-pod affinity.

Source: kubernetes.io, "Assigning Pods to Nodes: Inter-pod affinity and anti-affinity". The API server merges
matchLabelKeys and mismatchLabelKeys into a term's selector when a pod is created (since 1.31), so they need no reading.
"""

from collections.abc import Mapping
from functools import lru_cache

import msgspec

from turb_kub.objects.selectors import Selector, selector_of
from turb_kub.objects.wire import PodAffinityTerm, PodSpec


class PodTerm(msgspec.Struct, frozen=True, gc=False):
    """Pods of some namespaces and labels, and how near "near" is. Hashable; interned.

    Attributes:
        topology_key: the label by whose value nodes are near each other.
        selector: the pods meant, by their labels; None: no pod at all.
        namespaces: the namespaces meant, by name.
        namespace_selector: those meant besides, by their labels; None: none.
    """

    topology_key: str
    selector: Selector | None
    namespaces: frozenset[str] = frozenset()
    namespace_selector: Selector | None = None

    def matches(self, namespace: str, namespace_labels: Mapping[str, str], labels: Mapping[str, str]) -> bool:
        """Tell whether a pod is meant, by its namespace with that one's labels, and its own labels."""
        if self.selector is None or not self.selector.matches(labels):
            return False
        if namespace in self.namespaces:
            return True
        return self.namespace_selector is not None and self.namespace_selector.matches(namespace_labels)

    def __str__(self) -> str:
        return f"pods {self.selector or 'none'} by {self.topology_key}"


class PodAffinity(msgspec.Struct, frozen=True, gc=False):
    """A pod's inter-pod affinity. Hashable; interned."""

    #: Each must be met, and all by one and the same pod where they share a domain.
    required: tuple[PodTerm, ...] = ()
    #: None may be met.
    required_anti: tuple[PodTerm, ...] = ()
    #: Weights are negative where the pod would rather be apart.
    preferred: tuple[tuple[int, PodTerm], ...] = ()


NO_AFFINITY = PodAffinity()


def affinity_of(spec: PodSpec, namespace: str) -> PodAffinity:
    """Return the inter-pod affinity of a pod of that namespace, interned."""
    stated = spec.affinity
    if stated is None or (stated.podAffinity is None and stated.podAntiAffinity is None):
        return NO_AFFINITY
    near, apart = stated.podAffinity, stated.podAntiAffinity
    preferred = [(term.weight, term.podAffinityTerm) for term in (near.preferred() if near else ())]
    preferred += [(-term.weight, term.podAffinityTerm) for term in (apart.preferred() if apart else ())]
    return _shared(
        PodAffinity(
            required=tuple(_term(term, namespace) for term in (near.required() if near else ())),
            required_anti=tuple(_term(term, namespace) for term in (apart.required() if apart else ())),
            preferred=tuple((weight, _term(term, namespace)) for weight, term in preferred),
        )
    )


def standing(affinity: PodAffinity) -> PodAffinity:
    """Return what still matters of a pod's affinity once it is placed: whom it keeps away."""
    return _shared(PodAffinity(required_anti=affinity.required_anti)) if affinity.required_anti else NO_AFFINITY


def _term(term: PodAffinityTerm, namespace: str) -> PodTerm:
    named = frozenset(term.namespaces or ())
    if not named and term.namespaceSelector is None:
        named = frozenset({namespace})
    return _shared_term(
        PodTerm(term.topologyKey, selector_of(term.labelSelector), named, selector_of(term.namespaceSelector))
    )


@lru_cache(maxsize=4096)
def _shared(affinity: PodAffinity) -> PodAffinity:
    return affinity


@lru_cache(maxsize=4096)
def _shared_term(term: PodTerm) -> PodTerm:
    return term
