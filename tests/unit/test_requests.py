"""Effective requests, against `PodRequests` of component-helpers (tools/oracle)."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from turb_kub.objects.pod import decode_pod
from turb_kub.objects.quantity import QuantityError

from tests.unit.objects import pod, wire_pod

VECTORS = json.loads((Path(__file__).parent / "vectors" / "requests.json").read_text())
MI = 2**20


@pytest.mark.parametrize("number", range(len(VECTORS)))
def test_agrees_with_upstream(number):
    vector = VECTORS[number]
    found = decode_pod(
        json.dumps({"metadata": {"name": "p", "uid": "u"}, "spec": vector["spec"], "status": vector["status"]})
    )
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


@pytest.mark.parametrize("spec", [{}, {"overhead": {"memory": "-2"}}], ids=["of a container", "of the overhead"])
def test_an_amount_below_nothing_is_an_error_and_gives_no_room_away(spec):
    with pytest.raises(QuantityError, match="memory is negative"):
        pod("p", spec=spec, memory="1" if spec else "-1")


# Properties: what must hold of the formula whatever it is

amounts = st.dictionaries(
    st.sampled_from(["cpu", "memory", "example.com/gpu"]), st.integers(0, 1000).map(str), max_size=3
)


def containers(kind):
    return st.lists(amounts, max_size=3).map(
        lambda requests: [{"name": f"{kind}-{n}", "resources": {"requests": r}} for n, r in enumerate(requests)]
    )


@st.composite
def specs(draw):
    sidecars = [one | {"restartPolicy": "Always"} for one in draw(containers("sidecar"))]
    inits = draw(st.permutations(draw(containers("init")) + sidecars))
    return {"containers": draw(containers("app")), "initContainers": inits, "overhead": draw(amounts)}


def requested(spec):
    return dict(pod("p", spec=spec).requests)


def at_least(more, less):
    return all(more.get(name, 0) >= amount for name, amount in less.items())


@given(specs(), st.randoms())
def test_the_order_of_app_containers_is_nothing_to_it(spec, random):
    shuffled = list(spec["containers"])
    random.shuffle(shuffled)
    assert requested(spec) == requested(spec | {"containers": shuffled})


@given(specs(), amounts)
def test_one_more_container_of_any_kind_never_takes_less(spec, asked):
    more = {"name": "more", "resources": {"requests": asked}}
    for changed in (
        {"containers": [*spec["containers"], more]},
        {"initContainers": [*spec["initContainers"], more]},
        {"initContainers": [*spec["initContainers"], more | {"restartPolicy": "Always"}]},
    ):
        assert at_least(requested(spec | changed), requested(spec))


@given(specs())
def test_a_pod_takes_at_least_what_each_of_its_phases_takes(spec):
    running = [c for c in spec["initContainers"] if c.get("restartPolicy")] + spec["containers"]
    assert at_least(requested(spec), requested({"containers": running, "overhead": spec["overhead"]}))
    for init in spec["initContainers"]:
        alone = {"containers": [], "initContainers": [init], "overhead": spec["overhead"]}
        assert at_least(requested(spec), requested(alone))


@given(specs(), amounts)
def test_overhead_adds_and_pod_level_requests_replace(spec, asked):
    without = requested(spec | {"overhead": {}})
    with_it = requested(spec)
    for name, text in spec["overhead"].items():
        unit = 1000 if name == "cpu" else 1
        assert with_it.get(name, 0) == without.get(name, 0) + int(text) * unit
    level = requested(spec | {"overhead": {}, "resources": {"requests": asked}})
    for name in ("cpu", "memory"):
        unit = 1000 if name == "cpu" else 1
        assert level.get(name, 0) == (int(asked[name]) * unit if name in asked else without.get(name, 0))
    assert level.get("example.com/gpu") == without.get("example.com/gpu")
