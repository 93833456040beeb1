"""Selectors, node affinity and tolerations: one fact a line, as the Kubernetes documentation states them."""

import pytest
from turb_kub.objects.constraints import NO_CONSTRAINTS, Term
from turb_kub.objects.selectors import Expression
from turb_kub.objects.wire import Taint

from tests.unit.objects import pod

LABELS = {"zone": "a", "disk": "ssd", "cores": "8", "name": "8x"}


@pytest.mark.parametrize(
    ("key", "operator", "values", "met"),
    [
        ("zone", "In", ("a", "b"), True),
        ("zone", "In", ("b",), False),
        ("rack", "In", ("a",), False),
        ("zone", "NotIn", ("a",), False),
        ("zone", "NotIn", ("b",), True),
        ("rack", "NotIn", ("a",), True),
        ("zone", "Exists", (), True),
        ("rack", "Exists", (), False),
        ("zone", "DoesNotExist", (), False),
        ("rack", "DoesNotExist", (), True),
        ("cores", "Gt", ("7",), True),
        ("cores", "Gt", ("8",), False),
        ("cores", "Lt", ("9",), True),
        ("cores", "Lt", ("8",), False),
        ("cores", "Gt", ("-1",), True),
        ("cores", "Gt", ("7.5",), False),
        ("cores", "Gt", ("1", "2"), False),
        ("cores", "Gt", ("9" * 30,), False),
        ("cores", "Lt", ("9" * 5000,), False),
        ("name", "Gt", ("7",), False),
        ("rack", "Lt", ("9",), False),
        ("zone", "Near", ("a",), False),
    ],
)
def test_label_requirement(key, operator, values, met):
    assert Expression(key, operator, values).matches(LABELS) is met


def test_an_empty_term_matches_nothing():
    assert not Term((), ()).matches("n", LABELS)


def test_requirements_of_a_term_must_all_hold():
    zone, rack = Expression("zone", "In", ("a",)), Expression("rack", "Exists", ())
    assert Term((zone,), ()).matches("n", LABELS)
    assert not Term((zone, rack), ()).matches("n", LABELS)


def test_match_fields_look_at_the_name():
    field = Expression("metadata.name", "In", ("n",))
    assert Term((), (field,)).matches("n", {})
    assert not Term((), (field,)).matches("m", {"metadata.name": "n"})


def affinity(*terms):
    required = {"nodeSelectorTerms": list(terms)}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


def test_one_matching_term_suffices():
    spec = affinity(
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["z"]}]},
        {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]},
    )
    assert pod("p", spec=spec).constraints.matches_affinity("n", LABELS)


def test_required_affinity_without_terms_matches_nothing():
    assert not pod("p", spec=affinity()).constraints.matches_affinity("n", LABELS)


def test_node_selector_and_affinity_must_both_hold():
    spec = affinity({"matchExpressions": [{"key": "zone", "operator": "Exists"}]}) | {"nodeSelector": {"disk": "hdd"}}
    assert not pod("p", spec=spec).constraints.matches_affinity("n", LABELS)


TAINT = Taint(key="gpu", value="yes", effect="NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "covers"),
    [
        ({"key": "gpu", "operator": "Exists"}, True),
        ({"key": "gpu", "operator": "Equal", "value": "yes"}, True),
        ({"key": "gpu", "value": "yes"}, True),
        ({"key": "gpu", "value": "no"}, False),
        ({"key": "cpu", "operator": "Exists"}, False),
        ({"operator": "Exists"}, True),
        ({"operator": "Exists", "effect": "NoSchedule"}, True),
        ({"operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}, True),
        ({"key": "gpu", "operator": "Exists", "effect": "PreferNoSchedule"}, False),
        ({"operator": "Equal", "value": "yes"}, False),
        ({"key": "gpu", "operator": "Gt", "value": "0"}, False),
    ],
)
def test_toleration(toleration, covers):
    assert pod("p", spec={"tolerations": [toleration]}).constraints.tolerates(TAINT) is covers


def test_equal_constraints_are_one_object():
    spec = {"nodeSelector": {"a": "1"}, "tolerations": [{"operator": "Exists"}]}
    assert pod("p", spec=spec).constraints is pod("q", spec=spec).constraints
    assert pod("r").constraints is NO_CONSTRAINTS
