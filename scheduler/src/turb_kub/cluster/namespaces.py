"""The labels of namespaces: inter-pod affinity may choose namespaces by them."""

from collections.abc import Mapping

from turb_kub.objects.pod import NO_LABELS


class Namespaces:
    """Labels by name of namespace.

    Attributes:
        generation: grows with every change, so that what was made from labels can be told to be old.
    """

    def __init__(self) -> None:
        self._labels: dict[str, Mapping[str, str]] = {}
        self.generation = 0

    def labels(self, name: str) -> Mapping[str, str]:
        """The labels of a namespace; none where it is not known."""
        return self._labels.get(name, NO_LABELS)

    def names(self) -> list[str]:
        return list(self._labels)

    def put(self, name: str, labels: Mapping[str, str]) -> bool:
        """Take a namespace's labels. Tells whether they are new."""
        if self._labels.get(name) == labels:
            return False
        self._labels[name] = labels
        self.generation += 1
        return True

    def remove(self, name: str) -> bool:
        """Forget a namespace. Tells whether it was known."""
        if self._labels.pop(name, None) is None:
            return False
        self.generation += 1
        return True
