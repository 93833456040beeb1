"""How a rollout is judged, from objects as the API server gives them back."""

from typing import Any

import pytest

from tests.ansible.conftest import load_module

rollout_module = load_module("deployment_rollout")
pods_module = load_module("pods_running")

Object = dict[str, Any]

NOT_THERE = 'Container image "turb-kub:new" is not present with pull policy of Never'


def node(name: str, ready: str = "True") -> Object:
    return {"metadata": {"name": name}, "status": {"conditions": [{"type": "Ready", "status": ready}]}}


def template(version: str) -> Object:
    return {
        "metadata": {"labels": {"app": "turb-kub", "pod-template-hash": version}},
        "spec": {
            "containers": [{"name": "scheduler", "image": f"turb-kub:{version}"}],
            "volumes": [
                {"name": "config", "configMap": {"name": f"turb-kub-{version}"}},
                {"name": "tmp", "emptyDir": {}},
            ],
        },
    }


def deployment(
    revision: int = 2, *, version: str = "new", generation: int = 2, observed: int = 2, **status: Any
) -> Object:
    return {
        "metadata": {
            "name": "turb-kub",
            "uid": "the-deployment",
            "generation": generation,
            "annotations": {"deployment.kubernetes.io/revision": str(revision)},
        },
        "spec": {"replicas": 2, "template": template(version)},
        "status": {"observedGeneration": observed, **status},
    }


def replica_set(version: str, revision: int, available: int = 0, owner: str = "the-deployment") -> Object:
    return {
        "metadata": {
            "name": f"turb-kub-{version}",
            "uid": version,
            "ownerReferences": [{"uid": owner}],
            "annotations": {"deployment.kubernetes.io/revision": str(revision)},
        },
        "spec": {"template": template(version)},
        "status": {"replicas": available, "availableReplicas": available},
    }


def pod(name: str, version: str = "new", *, on: str = "node-1", ready: bool = False, **container: Any) -> Object:
    conditions = [{"type": "Ready", "status": str(ready)}]
    if not on:
        message = "0/2 nodes are available: 2 Insufficient memory."
        conditions.append({"type": "PodScheduled", "status": "False", "message": message})
    return {
        "metadata": {"name": name, "namespace": "kube-system", "ownerReferences": [{"uid": version}]},
        "spec": {"nodeName": on} if on else {},
        "status": {"conditions": conditions, "containerStatuses": [{"name": "scheduler", "ready": ready} | container]},
    }


def waiting(reason: str, message: str = "", exit_code: int | None = None) -> Object:
    state: Object = {"state": {"waiting": {"reason": reason, "message": message}}}
    if exit_code is not None:
        state["lastState"] = {"terminated": {"exitCode": exit_code, "reason": "Error"}}
    return state


ALL_THERE: Object = {"updatedReplicas": 2, "replicas": 2, "availableReplicas": 2}
NODES = [node("node-1"), node("node-2")]
SETS = [replica_set("new", 2), replica_set("old", 1, available=1)]


def judge(found: Object, pods: list[Object], nodes: list[Object] = NODES, sets: list[Object] = SETS) -> Any:
    return rollout_module.Rollout(found, sets, pods, nodes)


def test_it_is_complete_when_all_replicas_are_of_the_version_and_available() -> None:
    rollout = judge(deployment(**ALL_THERE), [pod("a", ready=True), pod("b", ready=True)])
    assert rollout.complete()
    assert (rollout.note(), rollout.failure()) == ("", "")


@pytest.mark.parametrize(
    "found",
    [
        # What the status says is of the version before until the controller has looked.
        deployment(generation=3, **ALL_THERE),
        deployment(updatedReplicas=1, replicas=2, availableReplicas=2),
        deployment(updatedReplicas=2, replicas=3, availableReplicas=2),
        deployment(updatedReplicas=2, replicas=2, availableReplicas=1),
        deployment(),
    ],
)
def test_it_goes_on_until_then(found: Object) -> None:
    rollout = judge(found, [])
    assert not rollout.complete()
    assert (rollout.note(), rollout.failure()) == ("", "")


ONE_OF_TWO: Object = {"updatedReplicas": 2, "replicas": 2, "availableReplicas": 1}


@pytest.mark.parametrize("where", ["node-2", ""])
def test_one_replica_is_enough_while_the_other_ones_node_is_down(where: str) -> None:
    pods = [pod("a", ready=True), pod("b", on=where)]
    rollout = judge(deployment(**ONE_OF_TWO), pods, [node("node-1"), node("node-2", "Unknown")])
    assert not rollout.complete()
    assert rollout.note() == "1 of 2 replicas available while node-2 is not ready: it runs without a spare"


@pytest.mark.parametrize(
    ("pods", "nodes"),
    [
        # All nodes are well: the replica that is missing has to come.
        ([pod("a", ready=True), pod("b", on="node-2")], NODES),
        # The one that is missing is not on the node that is down.
        ([pod("a", ready=True), pod("b", on="node-1")], [node("node-1"), node("node-2", "False")]),
    ],
)
def test_one_replica_is_not_enough_otherwise(pods: list[Object], nodes: list[Object]) -> None:
    assert judge(deployment(**ONE_OF_TWO), pods, nodes).note() == ""


def test_one_old_replica_is_not_enough_for_a_new_version() -> None:
    found = deployment(updatedReplicas=1, replicas=2, availableReplicas=1)
    pods = [pod("a", "old", ready=True), pod("b", on="node-2")]
    assert judge(found, pods, [node("node-1"), node("node-2", "False")]).note() == ""


HALFWAY: Object = {"updatedReplicas": 1, "replicas": 2, "availableReplicas": 1}


@pytest.mark.parametrize(
    ("state", "says"),
    [
        (waiting("ErrImageNeverPull", NOT_THERE), f"pod b: container scheduler: ErrImageNeverPull: {NOT_THERE}"),
        (
            waiting("CrashLoopBackOff", "back-off 10s restarting failed container", exit_code=2),
            "pod b: container scheduler: CrashLoopBackOff (exit code 2): back-off 10s restarting failed container",
        ),
    ],
)
def test_what_time_does_not_mend_is_not_waited_for(state: Object, says: str) -> None:
    assert judge(deployment(**HALFWAY), [pod("a", "old", ready=True), pod("b", **state)]).failure() == says


@pytest.mark.parametrize(
    "other",
    [
        pod("b", "old", **waiting("CrashLoopBackOff")),  # of the version that goes
        pod("b", **waiting("ContainerCreating")),
        pod("b", **waiting("ErrImagePull", "connection reset")),
    ],
)
def test_what_time_may_mend_is(other: Object) -> None:
    assert judge(deployment(**HALFWAY), [pod("a", "old", ready=True), other]).failure() == ""


def test_a_pod_that_may_not_be_made_is_not_waited_for() -> None:
    refusal = {"type": "ReplicaFailure", "status": "True", "message": 'pods "x" is forbidden: exceeded quota.'}
    found = deployment(conditions=[refusal], replicas=1, availableReplicas=1)
    assert judge(found, []).failure() == 'no pod can be made: pods "x" is forbidden: exceeded quota'


@pytest.mark.parametrize(
    ("pods", "says"),
    [
        ([pod("a", on="")], "pod a: 0/2 nodes are available: 2 Insufficient memory"),
        ([pod("a", state={"running": {}})], "pod a: container scheduler runs but is not ready"),
        ([pod("a", **waiting("ContainerCreating"))], "pod a: container scheduler: ContainerCreating"),
        ([], "1 of 2 replicas are of this version, 1 are available"),
    ],
)
def test_a_standstill_says_what_it_waits_for(pods: list[Object], says: str) -> None:
    assert judge(deployment(**HALFWAY), pods).standstill() == says


def test_the_version_to_go_back_to_is_the_newest_one_that_runs() -> None:
    sets = [
        replica_set("new", 4),
        replica_set("never-ran", 3),
        replica_set("old", 2, available=1),
        replica_set("older", 1, available=1),
        replica_set("not-ours", 9, available=1, owner="another"),
    ]
    previous = judge(deployment(4), [], sets=sets).previous()
    assert previous["spec"] == template("old")["spec"]
    assert previous["metadata"] == {"labels": {"app": "turb-kub"}}  # the controller's own label is not part of it


def test_there_is_none_to_go_back_to_when_no_other_one_runs() -> None:
    assert judge(deployment(), [], sets=[replica_set("new", 2, available=1), replica_set("old", 1)]).previous() == {}


def test_the_settings_of_the_current_version_and_the_one_before_are_kept() -> None:
    sets = [replica_set("new", 3), replica_set("old", 2), replica_set("older", 1)]
    there = [{"metadata": {"name": f"turb-kub-{version}"}} for version in ("new", "old", "older", "oldest")]
    assert judge(deployment(3), [], sets=sets).stale(there) == ["turb-kub-older", "turb-kub-oldest"]


class Server:
    """Stands in for the API server: one answer a read of the Deployment, the last one again and again."""

    def __init__(self, *answers: Object) -> None:
        self.answers = list(answers)
        self.reads = 0

    def read(self, _: str, kind: str, **__: Any) -> list[Object]:
        if kind != "Deployment":
            return []
        self.reads += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if "error" in answer:
            raise rollout_module.kube_objects.KubeError(answer["error"])
        return [{**answer, "spec": {**answer["spec"], "selector": {"matchLabels": {"app": "turb-kub"}}}}]


def test_an_api_server_that_is_away_for_a_moment_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollout_module, "PAUSE", 0)
    server = Server({"error": "no answer"}, deployment(), deployment(**ALL_THERE))
    rollout, problem = rollout_module.wait(server, "kube-system", "turb-kub", 60)
    assert (rollout.complete(), problem, server.reads) == (True, "", 3)


def test_a_rollout_that_stands_still_ends_in_time() -> None:
    _, problem = rollout_module.wait(Server(deployment(**HALFWAY)), "kube-system", "turb-kub", 0)
    assert problem == "nothing new within 0 s; 1 of 2 replicas are of this version, 1 are available"


# -- pods of a workload -----------------------------------------------------------------------------------------------


def test_pods_that_do_not_run_are_named_with_the_reason() -> None:
    pods = [pod("a", ready=True), pod("b", **waiting("ImagePullBackOff", "Back-off pulling image")), pod("c", on="")]
    wanted = ["kube-system/a", "kube-system/b", "kube-system/c", "kube-system/d"]
    assert pods_module.waiting_for(wanted, pods) == {
        "kube-system/b": "container scheduler: ImagePullBackOff: Back-off pulling image",
        "kube-system/c": "0/2 nodes are available: 2 Insufficient memory",
        "kube-system/d": "it is not there",
    }
    assert pods_module.is_vain(wanted, pods)
    assert not pods_module.is_vain(["kube-system/a", "kube-system/c"], pods)


def test_a_pod_that_its_node_turned_away_will_not_run() -> None:
    rejected = {
        "metadata": {"name": "a", "namespace": "default"},
        "spec": {"nodeName": "node-1"},
        # As recorded: no conditions, and the node's name stays.
        "status": {"phase": "Failed", "reason": "OutOfmemory", "message": "Node didn't have enough resource: memory"},
    }
    assert pods_module.is_vain(["default/a"], [rejected])
    assert pods_module.waiting_for(["default/a"], [rejected]) == {
        "default/a": "OutOfmemory: Node didn't have enough resource: memory"
    }
