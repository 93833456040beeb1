"""Kubernetes quantities ("500m", "1.5Gi", "2e3"), parsed strictly and exactly.

The grammar is the one of the API reference (kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity):
a signed decimal number followed by a binary suffix, a decimal suffix or a decimal exponent. The `kubernetes` package's
own parser accepts much that is none ("5mi", "1K", "NaN", "1_000"), so it is not used here.
"""

import math
import re
from fractions import Fraction
from functools import lru_cache

#: The largest amount that is told apart from larger ones. The API stores amounts up to 2^63-1; 2^50 keeps the sum of
#: eight thousand absurd requests within a 64-bit array element, and no node has 1 PiB of memory.
MAX_AMOUNT = 2**50
#: Bytes.
MEBIBYTE = 2**20

_GRAMMAR = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<part>[0-9]*))?"
    r"(?:(?P<suffix>[KMGTPE]i|[numkMGTPE])|[eE](?P<exponent>[+-]?[0-9]+))?"
)
_SUFFIXES = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 10**3),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
    "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
}
_NANO = 10**9
# Beyond these an exponent says "more than anything" or "less than a nano"; the bound keeps the arithmetic small.
_EXPONENT_BOUND = 40
_LONGEST = 128


class QuantityError(ValueError):
    """A text that is no Kubernetes quantity."""


@lru_cache(maxsize=4096)
def parse_quantity(text: str | int | float) -> Fraction:
    """Return the exact value of a quantity, rounded up to a nano-unit as the API server does.

    Args:
        text: the quantity as it stands in JSON. A JSON number is taken by its text.

    Raises:
        QuantityError: the text is none of the grammar's.
    """
    if isinstance(text, bool):
        raise QuantityError(f"{text!r} is not a quantity")
    text = str(text)
    match = _GRAMMAR.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None or not (match["whole"] or match["part"]):
        raise QuantityError(f"{text[:_LONGEST]!r} is not a quantity")
    part = match["part"] or ""
    value = Fraction(int((match["whole"] or "0") + part), 10 ** len(part))
    if match["suffix"]:
        value *= _SUFFIXES[match["suffix"]]
    elif match["exponent"]:
        exponent = max(-_EXPONENT_BOUND, min(_EXPONENT_BOUND, int(match["exponent"])))
        value *= Fraction(10) ** exponent
    if match["sign"] == "-":
        value = -value
    return Fraction(math.ceil(value * _NANO), _NANO)


def to_units(value: Fraction, *, milli: bool = False) -> int:
    """Return a quantity as whole units (or thousandths of one), rounded up, at most `MAX_AMOUNT`.

    Rounding up is Kubernetes' own rule (`Quantity.Value` and `MilliValue`): 0.4 byte is a byte.
    """
    return min(math.ceil(value * 1000 if milli else value), MAX_AMOUNT)


def format_mebibytes(amount: int) -> str:
    """Return bytes as mebibytes the way `kubectl` would write them: "768Mi", or "0.5Mi" where it is not whole."""
    mebibytes, rest = divmod(amount, MEBIBYTE)
    return f"{mebibytes}Mi" if not rest else f"{amount / MEBIBYTE:.1f}Mi"


def format_amount(resource: str, amount: int) -> str:
    """Return an amount of a resource as a person would write it: "750m", "768Mi", "3"."""
    if resource == "cpu":
        cores, milli = divmod(amount, 1000)
        return f"{cores}" if not milli else f"{amount}m"
    if resource in {"memory", "ephemeral-storage"} or resource.startswith("hugepages-"):
        return format_mebibytes(amount)
    return str(amount)
