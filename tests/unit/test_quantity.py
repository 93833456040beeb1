"""Quantities, against what Kubernetes' own parser says (tools/oracle) and by properties."""

import json
from contextlib import suppress
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from turb_kub.objects.quantity import (
    MAX_AMOUNT,
    QuantityError,
    format_amount,
    format_mebibytes,
    parse_quantity,
    to_units,
)

VECTORS = json.loads((Path(__file__).parent / "vectors" / "quantities.json").read_text())


#: Upstream takes these for 0 although its own grammar asks for a digit; the API server sends "0" in their place.
WITHOUT_DIGITS = {"+", "-", ".", "m", "Ki"}
#: Upstream's 64-bit arithmetic runs over and yields 0 or a negative number; here such amounts stay at the largest.
TOO_LARGE = {"1E", "1Ei", "12E"}


@pytest.mark.parametrize(
    "vector",
    [vector for vector in VECTORS if vector["text"] not in WITHOUT_DIGITS | TOO_LARGE],
    ids=lambda vector: repr(vector["text"]),
)
def test_agrees_with_upstream(vector):
    if not vector["valid"]:
        with pytest.raises(QuantityError):
            parse_quantity(vector["text"])
        return
    value = parse_quantity(vector["text"])
    assert to_units(value) == min(vector["value"], MAX_AMOUNT)
    assert to_units(value, milli=True) == min(vector["milli"], MAX_AMOUNT)


@pytest.mark.parametrize("text", sorted(WITHOUT_DIGITS))
def test_a_quantity_has_a_digit(text):
    with pytest.raises(QuantityError):
        parse_quantity(text)


@pytest.mark.parametrize("text", sorted(TOO_LARGE))
def test_more_than_can_be_counted_is_the_most_that_can(text):
    assert to_units(parse_quantity(text), milli=True) == MAX_AMOUNT


def test_vectors_hold_both_kinds():
    assert sum(vector["valid"] for vector in VECTORS) > 100
    assert sum(not vector["valid"] for vector in VECTORS) > 30


@given(st.integers(0, 2**40), st.sampled_from([("", 1), ("k", 10**3), ("Ki", 2**10), ("Mi", 2**20), ("e3", 1000)]))
def test_whole_numbers_are_exact(number, suffix):
    assert parse_quantity(f"{number}{suffix[0]}") == number * suffix[1]


@given(st.decimals(min_value=0, max_value=10**9, allow_nan=False, allow_infinity=False, places=12))
def test_rounds_up_never_down(number):
    value = parse_quantity(f"{number:f}")
    assert value >= Fraction(number)
    assert value - Fraction(number) < Fraction(1, 10**9)
    assert to_units(value) >= number


@given(st.text(max_size=12))
def test_any_text_is_a_quantity_or_a_quantity_error(text):
    with suppress(QuantityError):
        assert parse_quantity(text) is not None


@pytest.mark.parametrize("text", ["1" * 200, "1e999999999", "1E" + "9" * 100, "9" * 100 + "Ei"])
def test_absurd_texts_neither_hang_nor_overflow(text):
    try:
        assert to_units(parse_quantity(text), milli=True) <= MAX_AMOUNT
    except QuantityError:
        assert len(text) > 100


def test_a_json_number_counts_by_its_text():
    assert parse_quantity(1024) == 1024
    assert parse_quantity(0.5) == Fraction(1, 2)


@pytest.mark.parametrize("value", [True, False])
def test_a_boolean_is_no_quantity(value):
    with pytest.raises(QuantityError):
        parse_quantity(value)


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        ("cpu", 1500, "1500m"),
        ("cpu", 2000, "2"),
        ("memory", 768 * 2**20, "768Mi"),
        ("memory", 2**19, "0.5Mi"),
        ("hugepages-2Mi", 2**22, "4Mi"),
        ("example.com/gpu", 3, "3"),
    ],
)
def test_amounts_read_as_a_person_writes_them(resource, amount, text):
    assert format_amount(resource, amount) == text


def test_mebibytes_of_nothing():
    assert format_mebibytes(0) == "0Mi"
