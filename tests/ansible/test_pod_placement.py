"""The module pod_placement, whose arithmetic is the check on the scheduler's."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.ansible.conftest import load_module, run_module

WANTED = ["default/pod1", "default/pod2", "default/pod3"]
TABLE = {"default/pod1": "node-1", "default/pod2": "node-2", "default/pod3": "node-1"}


def node(name: str, memory: str = "16Gi", **annotations: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "annotations": {k.replace("__", "/"): v for k, v in annotations.items()}},
        "status": {"allocatable": {"memory": memory}},
    }


def pod(name: str, memory: str | None, on: str | None, scheduler: str = "turb-kub", **more: Any) -> dict[str, Any]:
    namespace, _, short = name.rpartition("/")
    requests = {"requests": {"memory": memory}} if memory else {}
    return {
        "metadata": {"name": short, "namespace": namespace or "default", "uid": f"uid-{name}"},
        "spec": {"schedulerName": scheduler, "containers": [{"name": "c", "resources": requests}]}
        | ({"nodeName": on} if on else {}),
        "status": {"phase": "Running" if on else "Pending"},
    } | more


def event(name: str, by: str = "turb-kub") -> dict[str, Any]:
    return {"reason": "Scheduled", "reportingController": by, "regarding": {"uid": f"uid-{name}"}}


NODES = [node("node-1"), node("node-2")]
GOOD = [pod("pod1", "768Mi", "node-1"), pod("pod2", "1Gi", "node-2"), pod("pod3", "768Mi", "node-1")]
EVENTS = [event("pod1"), event("pod2"), event("pod3")]


def judge(**changed: Any) -> list[str]:
    """The problems that the module sees."""
    module = load_module("pod_placement")
    params = {
        "nodes": NODES, "pods": GOOD, "events": EVENTS, "limit_mib": 2048, "wanted": WANTED, "expected": TABLE,
        "scheduler_name": "turb-kub",
    }  # fmt: skip
    problems: list[str] = module.Survey(params | changed).problems()
    return problems


def test_what_is_as_it_should_be_is_no_problem() -> None:
    assert judge() == []


def test_a_pod_on_another_node_than_the_table_says() -> None:
    assert judge(expected=TABLE | {"default/pod3": "node-2"}) == [
        "pod3 (768 MiB) is on node-1, expected on node-2 (node-1 1536 of 2048 MiB, node-2 1024 of 2048 MiB)"
    ]


def test_a_node_over_its_ceiling_by_a_pod_of_another_namespace_and_scheduler() -> None:
    other = pod("kube-system/d", "600Mi", "node-1", scheduler="default-scheduler")
    assert judge(pods=[*GOOD, other]) == [
        "node-1 holds 2136 MiB of memory requests, over its ceiling of 2048 MiB: pod1 768, pod3 768, kube-system/d 600"
    ]
    # Also where no pod is to be judged, as after a redeploy.
    assert judge(pods=[*GOOD, other], wanted=[]) == [
        "node-1 holds 2136 MiB of memory requests, over its ceiling of 2048 MiB: pod1 768, pod3 768, kube-system/d 600"
    ]
    # One that has ended takes nothing any more.
    assert judge(pods=[*GOOD, other | {"status": {"phase": "Succeeded"}}]) == []


def test_the_ceiling_is_the_limit_or_the_allocatable_memory_or_the_nodes_own() -> None:
    assert judge(nodes=[node("node-1", "1500Mi"), NODES[1]]) == [
        "node-1 holds 1536 MiB of memory requests, over its ceiling of 1500 MiB: pod1 768, pod3 768"
    ]
    own = {"turb-kub.io__node-mem-limit-mb": "1024"}
    assert judge(nodes=[node("node-1", **own), NODES[1]]) == [
        "node-1 holds 1536 MiB of memory requests, over its ceiling of 1024 MiB: pod1 768, pod3 768"
    ]
    assert judge(limit_mib=1536) == []
    assert judge(limit_mib=1535) == [
        "node-1 holds 1536 MiB of memory requests, over its ceiling of 1535 MiB: pod1 768, pod3 768"
    ]


def test_all_pods_on_one_node_although_there_are_two() -> None:
    crowded = [pod(f"pod{n}", "600Mi", "node-2") for n in (1, 2, 3)]
    assert judge(pods=crowded, expected={}) == [
        "all of pod1, pod2, pod3 are on node-2 (node-1 0 of 2048 MiB, node-2 1800 of 2048 MiB)"
    ]
    assert judge(pods=crowded, expected={}, nodes=NODES[1:]) == []


def test_a_pod_that_another_scheduler_placed() -> None:
    assert judge(events=[event("pod1", "default-scheduler"), *EVENTS[1:]]) == [
        "pod1 (768 MiB) was placed on node-1 by default-scheduler, not by turb-kub"
    ]
    assert judge(pods=[pod("pod1", "768Mi", "node-1", scheduler="default-scheduler"), *GOOD[1:]]) == [
        "pod1 is for the scheduler default-scheduler, not for turb-kub"
    ]


def test_an_event_that_has_expired_is_no_problem() -> None:
    assert judge(events=[]) == []


def test_a_pod_that_is_not_placed_or_not_there() -> None:
    message = "0/2 nodes are available: 2 node(s) exceeded NODE_MEM_LIMIT_MB."
    pending = pod("pod3", "768Mi", None)
    pending["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "message": message}]
    sums = "node-1 768 of 1024 MiB, node-2 1024 of 1024 MiB"
    assert judge(pods=[*GOOD[:2], pending], limit_mib=1024) == [f"pod3 (768 MiB) is on no node ({sums}): {message}"]
    assert judge(pods=[*GOOD[:2], pod("pod3", "768Mi", None)], limit_mib=1024) == [
        f"pod3 (768 MiB) is on no node ({sums}): no scheduler has said anything about it; is the scheduler running?"
    ]
    assert judge(pods=GOOD[:2]) == ["pod3 is not there"]


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("0", 0),
        ("768Mi", 768 * 2**20),
        ("1Gi", 2**30),
        ("1.5Gi", 3 * 2**29),
        ("512M", 512 * 10**6),
        ("1E", 10**18),
        ("1E3", 1000),
        ("1e3", 1000),
        ("128974848000m", 128974848),
        (17, 17),
    ],
)
def test_quantities(text: str | int, amount: int) -> None:
    assert load_module("pod_placement").quantity(text) == Decimal(amount)


@pytest.mark.parametrize("text", ["", "Mi", "lots", "1.2.3Gi"])
def test_what_is_no_quantity(text: str) -> None:
    with pytest.raises(ValueError, match="is no quantity"):
        load_module("pod_placement").quantity(text)


def container(memory: str, **more: str) -> dict[str, Any]:
    return {"resources": {"requests": {"memory": memory}}, **more}


@pytest.mark.parametrize(
    ("spec", "mebibytes"),
    [
        ({"containers": [{}]}, 0),
        ({"containers": [container("100Mi"), container("50Mi")]}, 150),
        ({"containers": [container("100Mi")], "initContainers": [container("300Mi"), container("200Mi")]}, 300),
        # A sidecar runs beside the containers, and beside the init containers that come after it.
        ({"containers": [container("100Mi")], "initContainers": [container("30Mi", restartPolicy="Always")]}, 130),
        (
            {
                "containers": [container("100Mi")],
                "initContainers": [container("30Mi", restartPolicy="Always"), container("200Mi")],
            },
            230,
        ),
        (
            {
                "containers": [container("100Mi")],
                "initContainers": [container("200Mi"), container("30Mi", restartPolicy="Always")],
            },
            200,
        ),
        ({"containers": [container("100Mi")], "overhead": {"memory": "20Mi"}}, 120),
        ({"containers": [container("100Mi")], "resources": {"requests": {"memory": "250Mi"}}}, 250),
    ],
)
def test_memory_requests(spec: dict[str, Any], mebibytes: int) -> None:
    assert load_module("pod_placement").memory_request({"spec": spec}) == mebibytes * 2**20


def test_the_module_fails_with_all_problems_and_still_returns_the_numbers(tmp_path: Path) -> None:
    arguments = {"nodes": NODES, "pods": GOOD, "events": EVENTS, "limit_mib": 1500, "wanted": [*WANTED, "default/pod4"]}
    failed = run_module("pod_placement", arguments, tmp_path)
    assert failed["failed"]
    assert failed["msg"] == (
        "The placement is not as it should be: pod4 is not there; node-1 holds 1536 MiB of memory requests, over its"
        " ceiling of 1500 MiB: pod1 768, pod3 768."
    )
    assert failed["nodes"][0] == {
        "name": "node-1", "requested_mib": 1536, "ceiling_mib": 1500, "pods": ["pod1", "pod3"],
    }  # fmt: skip
    assert failed["placed"][1] == {
        "name": "pod2", "node": "node-2", "request_mib": 1024, "evidence": "event of turb-kub",
    }  # fmt: skip


def test_without_pods_to_check_it_only_adds_up(tmp_path: Path) -> None:
    idle = pod("kube-system/proxy", None, "node-1")
    result = run_module("pod_placement", {"nodes": [], "pods": [*GOOD, idle], "limit_mib": 1}, tmp_path)
    assert not result.get("failed")
    assert result["asking"] == WANTED
