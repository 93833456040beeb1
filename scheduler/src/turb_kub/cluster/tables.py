"""Tables of tables: by node and uid, by name and pod, and so on."""

from collections.abc import MutableMapping
from typing import Any


def discard(table: MutableMapping[Any, Any], key: Any, inner: Any) -> None:
    """Delete one entry of a table of tables, and the inner table where it was its last. Raises `KeyError`."""
    del table[key][inner]
    if not table[key]:
        del table[key]
