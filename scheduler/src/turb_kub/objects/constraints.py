"""What a pod demands of, and prefers in, a node's own properties: selectors, node affinity, tolerations.

Equal demands are one object (`intern_constraints`): most pods of a cluster share a handful, and the filters' cache is
keyed by it.
"""

from collections.abc import Mapping
from functools import lru_cache

import msgspec

from turb_kub.objects.selectors import Expression, expression
from turb_kub.objects.wire import NodeSelector, NodeSelectorTerm, PodSpec, Taint, Toleration


class Term(msgspec.Struct, frozen=True, gc=False):
    """Requirements that must all hold; a term with none matches no node (API reference, NodeSelectorTerm)."""

    expressions: tuple[Expression, ...]
    fields: tuple[Expression, ...]

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        if not self.expressions and not self.fields:
            return False
        return all(expression.matches(labels) for expression in self.expressions) and all(
            expression.matches({"metadata.name": name}) for expression in self.fields
        )


class NodeConstraints(msgspec.Struct, frozen=True, gc=False):
    """A pod's demands and preferences that concern the node alone. Hashable; interned."""

    node_selector: tuple[tuple[str, str], ...] = ()
    #: Terms of required node affinity, any of which suffices; None where the pod states no such affinity.
    required_terms: tuple[Term, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()
    #: Terms of preferred node affinity with their weights.
    preferred_terms: tuple[tuple[int, Term], ...] = ()

    def matches_affinity(self, name: str, labels: Mapping[str, str]) -> bool:
        """Tell whether nodeSelector and required node affinity both hold for a node."""
        if any(labels.get(key) != value for key, value in self.node_selector):
            return False
        return self.required_terms is None or any(term.matches(name, labels) for term in self.required_terms)

    def preference_for(self, name: str, labels: Mapping[str, str]) -> int:
        """Return the sum of the weights of the preferred terms that a node matches."""
        return sum(weight for weight, term in self.preferred_terms if term.matches(name, labels))

    def tolerates(self, taint: Taint) -> bool:
        """Tell whether any toleration covers the taint (kubernetes.io, "Taints and Tolerations")."""
        return any(_tolerates(toleration, taint) for toleration in self.tolerations)


NO_CONSTRAINTS = NodeConstraints()


def constraints_of(spec: PodSpec) -> NodeConstraints:
    """Return the constraints of a pod spec, interned."""
    affinity = spec.affinity.nodeAffinity if spec.affinity else None
    required = affinity.requiredDuringSchedulingIgnoredDuringExecution if affinity else None
    preferred = affinity.preferredDuringSchedulingIgnoredDuringExecution if affinity else None
    if not spec.nodeSelector and required is None and not spec.tolerations and not preferred:
        return NO_CONSTRAINTS
    return _intern(
        NodeConstraints(
            node_selector=tuple(sorted((spec.nodeSelector or {}).items())),
            required_terms=None if required is None else terms_of(required),
            tolerations=tuple(spec.tolerations or ()),
            preferred_terms=tuple((term.weight, _term(term.preference)) for term in preferred or ()),
        )
    )


def terms_of(selector: NodeSelector) -> tuple[Term, ...]:
    """Return the terms of a node selector, any of which suffices; none at all matches no node."""
    return tuple(_term(term) for term in selector.nodeSelectorTerms or ())


@lru_cache(maxsize=4096)
def _intern(constraints: NodeConstraints) -> NodeConstraints:
    return constraints


def _term(term: NodeSelectorTerm) -> Term:
    return Term(
        expressions=tuple(expression(requirement) for requirement in term.matchExpressions or ()),
        fields=tuple(expression(requirement) for requirement in term.matchFields or ()),
    )


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator:
        case "Exists":
            return True
        case "Equal" | "":
            # Without a key only "Exists" covers every taint; the API server refuses the rest.
            return bool(toleration.key) and toleration.value == taint.value
        case _:
            # Numeric comparison (Gt, Lt) is alpha: not covering keeps the pod off, which is the safe side.
            return False
