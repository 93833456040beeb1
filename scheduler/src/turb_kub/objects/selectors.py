"""Requirements on labels: those of nodes, pods and namespaces are read by the same rules."""

import re
from collections.abc import Mapping
from functools import lru_cache

import msgspec

from turb_kub.objects.wire import LabelSelector, Requirement

_INTEGER = re.compile(r"[+-]?[0-9]+")
_INT64 = range(-(2**63), 2**63)


class Expression(msgspec.Struct, frozen=True, gc=False):
    """One requirement on a label, or on the field `metadata.name`."""

    key: str
    operator: str
    values: tuple[str, ...]

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Tell whether the labels meet it; an unknown operator is never met (apimachinery `labels.Requirement`)."""
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value is not None and value in self.values
            case "NotIn":
                return value is None or value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "Gt" | "Lt":
                return value is not None and self._compares(value)
            case _:
                return False

    def __str__(self) -> str:
        values = f"({','.join(self.values)})" if self.values else ""
        match self.operator:
            case "In" if len(self.values) == 1:
                return f"{self.key}={self.values[0]}"
            case "Exists":
                return self.key
            case "DoesNotExist":
                return f"!{self.key}"
            case _:
                return f"{self.key} {self.operator.lower()} {values}"

    def _compares(self, value: str) -> bool:
        mine, bound = _integer(value), _integer(self.values[0]) if len(self.values) == 1 else None
        if mine is None or bound is None:
            return False
        return mine > bound if self.operator == "Gt" else mine < bound


class Selector(msgspec.Struct, frozen=True, gc=False):
    """A label selector: expressions that must all hold. One without any matches everything. Hashable; interned."""

    expressions: tuple[Expression, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(expression.matches(labels) for expression in self.expressions)

    def __str__(self) -> str:
        return ",".join(map(str, self.expressions)) or "everything"


def selector_of(wire: LabelSelector | None, more: tuple[Expression, ...] = ()) -> Selector | None:
    """Return a label selector; None where none is stated, which matches nothing (API reference, LabelSelector).

    Args:
        more: expressions that must hold besides.
    """
    if wire is None:
        return None
    equal = [Expression(key, "In", (value,)) for key, value in sorted((wire.matchLabels or {}).items())]
    stated = [expression(requirement) for requirement in wire.matchExpressions or ()]
    return _shared(Selector((*more, *equal, *stated)))


def expression(requirement: Requirement) -> Expression:
    """Return a requirement as it is stated on the wire."""
    return Expression(requirement.key, requirement.operator, tuple(requirement.values or ()))


@lru_cache(maxsize=4096)
def _shared(selector: Selector) -> Selector:
    return selector


def _integer(text: str) -> int | None:
    if len(text) > 20 or not _INTEGER.fullmatch(text) or (value := int(text)) not in _INT64:
        return None
    return value
