"""What can still be read of an object that is broken somewhere."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from turb_kub.objects.malformed import LONGEST_NAME, MalformedError, Remains, checked_name, remains_of

WHOLE: dict[str, Any] = {
    "metadata": {"uid": "u", "namespace": "ns", "name": "p", "resourceVersion": "7"},
    "spec": {"nodeName": "node-1", "containers": 7},
    "status": {"phase": "Running"},
}
READ = Remains("u", "ns", "p", "7", "node-1", "Running")


def read(item):
    return remains_of(msgspec.Raw(json.dumps(item).encode()))


def test_all_is_read_of_an_object_that_is_broken_elsewhere():
    assert read(WHOLE) == READ
    assert remains_of(json.dumps(WHOLE)) == remains_of(json.dumps(WHOLE).encode()) == READ


@pytest.mark.parametrize("odd", [7, None, [], {}, True, "x" * (LONGEST_NAME + 1)], ids=repr)
@pytest.mark.parametrize(
    ("part", "field", "attribute"),
    [
        ("metadata", "uid", "uid"),
        ("metadata", "namespace", "namespace"),
        ("metadata", "name", "name"),
        ("metadata", "resourceVersion", "resource_version"),
        ("spec", "nodeName", "node_name"),
        ("status", "phase", "phase"),
    ],
)
def test_a_field_that_is_no_text_or_too_long_is_empty_and_spoils_no_other(part, field, attribute, odd):
    broken = WHOLE | {part: WHOLE[part] | {field: odd}}
    assert read(broken) == msgspec.structs.replace(READ, **{attribute: ""})


@pytest.mark.parametrize("odd", [7, None, [], "x"], ids=repr)
def test_a_part_that_is_no_object_is_empty_and_spoils_no_other(odd):
    assert read(WHOLE | {"metadata": odd}) == Remains(node_name="node-1", phase="Running")
    assert read(WHOLE | {"spec": odd}) == msgspec.structs.replace(READ, node_name="")
    assert read(WHOLE | {"status": odd}) == msgspec.structs.replace(READ, phase="")


@pytest.mark.parametrize("item", [b"", b"{", b"[]", b"null", b"7", b"\xff", b"[" * 100_000, b'{"metadata":' * 5000])
def test_of_what_is_no_object_nothing_is_read(item):
    assert remains_of(item) == Remains()


@given(st.binary())
def test_nothing_raises(item):
    assert isinstance(remains_of(item), Remains)


def test_the_longest_name_is_read():
    assert read({"metadata": {"name": "x" * LONGEST_NAME}}).name == "x" * LONGEST_NAME
    assert checked_name("x" * LONGEST_NAME, "its name") == "x" * LONGEST_NAME
    with pytest.raises(MalformedError, match="its name is longer than 253 characters"):
        checked_name("x" * (LONGEST_NAME + 1), "its name")


def test_an_object_is_known_by_its_uid_and_else_by_its_name():
    assert READ.ident == "u"
    assert Remains(namespace="ns", name="p").ident == Remains(namespace="ns", name="p").key == "ns/p"
    assert Remains(name="node-1").key == "node-1"
    assert Remains().ident == "(no name)"
