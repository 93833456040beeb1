"""Effective requests, against `PodRequests` of component-helpers (tools/oracle)."""

import json
from pathlib import Path

import pytest
from turb_kub.objects.pod import decode_pod
from turb_kub.objects.quantity import QuantityError

from tests.unit.objects import pod, wire_pod

VECTORS = json.loads((Path(__file__).parent / "vectors" / "requests.json").read_text())
MI = 2**20


@pytest.mark.parametrize("number", range(len(VECTORS)))
def test_agrees_with_upstream(number):
    vector = VECTORS[number]
    found = decode_pod(json.dumps({"metadata": {"name": "p"}, "spec": vector["spec"], "status": vector["status"]}))
    assert dict(found.requests) == vector["requests"]


def test_vectors_cover_the_formula():
    specs = [vector["spec"] for vector in VECTORS]
    assert sum("overhead" in spec for spec in specs) > 50
    assert sum("resources" in spec for spec in specs) > 50
    sidecars = [c for spec in specs for c in spec.get("initContainers", []) if c.get("restartPolicy") == "Always"]
    assert len(sidecars) > 50
    assert sum(bool(vector["status"].get("conditions")) for vector in VECTORS) > 30


def test_a_pod_that_states_nothing_requests_nothing():
    assert pod("p").requests == ()


def test_equal_requests_are_one_object():
    assert pod("a", memory="64Mi", cpu="1").requests is pod("b", memory="64Mi", cpu="1").requests


def test_two_halves_of_a_byte_are_one_byte():
    spec = {"containers": [{"name": n, "resources": {"requests": {"memory": "500m"}}} for n in ("a", "b")]}
    assert decode_pod(json.dumps(wire_pod("p", spec=spec))).memory == 1


def test_a_malformed_quantity_is_an_error_and_no_number():
    with pytest.raises(QuantityError, match="5mi"):
        pod("p", memory="5mi")
