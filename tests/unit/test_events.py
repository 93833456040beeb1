"""The Event objects that the API server takes: names, notes and instances within its limits."""

from datetime import UTC, datetime

import pytest
from turb_kub.api.events import DECISION_ANNOTATION, LONGEST_NOTE, event_body, failed, rejected, scheduled

from tests.unit.objects import pod

NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)


def body(event, instance="turb-kub-0"):
    return event_body(event, NOW, controller="turb-kub", instance=instance)


def test_an_event_names_its_pod_its_writer_and_the_decision():
    told = body(scheduled(pod("p", version=7), "node-1", '{"node":"node-1"}'))
    assert told["regarding"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": "default",
        "name": "p",
        "uid": "uid-default-p",
        "resourceVersion": "7",
    }
    assert (told["type"], told["reason"], told["action"]) == ("Normal", "Scheduled", "Binding")
    assert told["note"] == "Successfully assigned default/p to node-1"
    assert (told["reportingController"], told["reportingInstance"]) == ("turb-kub", "turb-kub-0")
    assert told["metadata"]["annotations"] == {DECISION_ANNOTATION: '{"node":"node-1"}'}
    assert told["metadata"]["namespace"] == "default"
    assert told["eventTime"] == "2026-03-04T05:06:07.000000Z"


def test_an_event_without_a_decision_has_no_annotation():
    assert "annotations" not in body(rejected(pod("p"), "turned away"))["metadata"]


def test_an_event_that_is_posted_again_keeps_its_name_and_two_events_have_two():
    event = failed(pod("p"), "no room")
    assert body(event)["metadata"]["name"] == body(event)["metadata"]["name"]
    assert body(event)["metadata"]["name"] != body(failed(pod("p"), "no room"))["metadata"]["name"]


@pytest.mark.parametrize("name", ["p" * 253, "p" * 229 + "." + "p" * 23, "p" * 228 + "-." + "p" * 23])
def test_the_name_is_a_name_to_the_api_server_however_long_the_pods_is(name):
    made = body(failed(pod(name, uid="u"), "no room"))["metadata"]["name"]
    assert len(made) <= 253
    assert all(label and label[0].isalnum() and label[-1].isalnum() for label in made.split("."))


@pytest.mark.parametrize("letter", ["x", "ä", "€", "😀"])
@pytest.mark.parametrize("more", range(4))
def test_a_long_note_is_cut_between_two_characters(letter, more):
    note = body(failed(pod("p"), "." * more + letter * (LONGEST_NOTE + 1)))["note"]
    assert LONGEST_NOTE - 8 <= len(note.encode()) <= LONGEST_NOTE
    assert note.endswith(f"{letter} ...")


def test_a_note_of_the_greatest_length_is_whole():
    assert body(failed(pod("p"), "x" * LONGEST_NOTE))["note"] == "x" * LONGEST_NOTE


def test_a_long_instance_is_cut():
    assert body(failed(pod("p"), "no room"), instance="i" * 300)["reportingInstance"] == "i" * 128
