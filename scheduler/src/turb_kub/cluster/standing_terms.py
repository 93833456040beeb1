"""The required anti-affinity of pods that are placed: whom they keep away from their surroundings."""

from collections import Counter, OrderedDict
from collections.abc import Mapping

from turb_kub.cluster.namespaces import Namespaces
from turb_kub.objects.affinity import PodTerm
from turb_kub.objects.pod import Pod

#: How many kinds of pods the terms that mean them are remembered for.
_KEPT = 4096

Key = tuple[str, int]


class StandingTerms:
    """Terms by how many placed pods have them.

    Asked for every pod that is decided, so what was found for pods of the same namespace and labels is kept until the
    terms change.
    """

    def __init__(self, namespaces: Namespaces) -> None:
        self._namespaces = namespaces
        self._holders: Counter[PodTerm] = Counter()
        self._namespaces_generation = 0
        self._found: OrderedDict[Key, tuple[Mapping[str, str], tuple[PodTerm, ...]]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._holders)

    def meaning(self, pod: Pod) -> tuple[PodTerm, ...]:
        """Return the terms of placed pods that mean this pod."""
        if not self._holders:
            return ()
        if self._namespaces_generation != self._namespaces.generation:
            self._namespaces_generation = self._namespaces.generation
            self._found.clear()
        # Labels are shared between pods, and held here so that no others can take their identity.
        key = (pod.namespace, id(pod.labels))
        kept = self._found.get(key)
        if kept is not None and kept[0] is pod.labels:
            return kept[1]
        labels = self._namespaces.labels(pod.namespace)
        terms = tuple(term for term in self._holders if term.matches(pod.namespace, labels, pod.labels))
        self._found[key] = (pod.labels, terms)
        if len(self._found) > _KEPT:
            self._found.popitem(last=False)
        return terms

    def take(self, pod: Pod) -> None:
        """Count the terms of a placed pod."""
        for term in pod.affinity.required_anti:
            self._holders[term] += 1
            if self._holders[term] == 1:
                self._found.clear()

    def release(self, pod: Pod) -> None:
        """Count them no more."""
        for term in pod.affinity.required_anti:
            self._holders[term] -= 1
            if not self._holders[term]:
                del self._holders[term]
                self._found.clear()
