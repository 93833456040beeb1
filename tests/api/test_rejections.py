"""The real loop beside a kubelet that turns pods away and a controller that makes them anew at once."""

import time
from functools import partial
from itertools import pairwise

from tests.api.running import Token, running, until
from tests.api.truth import reasons
from tests.unit.objects import wire_pod

REJECTED = {"phase": "Failed", "reason": "OutOfmemory", "message": "Pod was rejected: Node didn't have enough memory"}


def reject(double, name):
    double.put("pods", double.pod(name) | {"status": REJECTED})


async def test_a_pod_made_anew_after_a_rejection_goes_elsewhere(double):
    async with running(Token(double.url)) as scheduler:
        double.put("pods", wire_pod("p-1", memory="1Gi"))
        await until(lambda: double.node_of("p-1") == "node-1")
        reject(double, "p-1")
        double.put("pods", wire_pod("p-2", memory="1Gi"))
        await until(lambda: double.node_of("p-2"))
        await until(lambda: "KubeletRejected" in reasons(double))
        assert double.node_of("p-2") == "node-2"
        assert scheduler.cluster.pods_on("node-1") == []
    (event,) = [event for event in double.events if event["reason"] == "KubeletRejected"]
    assert (event["type"], event["action"], event["regarding"]["name"]) == ("Warning", "CoolingDown", "p-1")
    assert event["note"].startswith("node-1 turned the pod away: OutOfmemory")


async def test_a_controller_and_a_kubelet_that_do_not_agree_cause_no_hot_loop(double, monkeypatch):
    monkeypatch.setattr("turb_kub.loop.rejections.FIRST", 0.05)
    double.delete("nodes", "node-2", "")
    async with running(Token(double.url)) as scheduler:
        bound_at = []
        for number in range(4):
            name = f"p-{number}"
            double.put("pods", wire_pod(name, memory="1Gi"))
            await until(partial(double.node_of, name))
            bound_at.append(time.monotonic())
            reject(double, name)
        assert scheduler.queue.rescued_by_flush == 0
    waited = [later - earlier for earlier, later in pairwise(bound_at)]
    assert all(seconds >= least for seconds, least in zip(waited, (0.05, 0.1, 0.2), strict=True))
    # The verdict of each waiting pod was told once, not once a try.
    assert reasons(double).count("FailedScheduling") <= 3


async def test_a_second_start_does_not_tell_of_a_rejection_again(double):
    async with running(Token(double.url)):
        double.put("pods", wire_pod("p", memory="1Gi"))
        await until(lambda: double.node_of("p"))
        reject(double, "p")
        await until(lambda: "KubeletRejected" in reasons(double))
    async with running(Token(double.url)) as scheduler:
        double.put("pods", wire_pod("q", memory="1Gi"))
        await until(lambda: double.node_of("q"))
        assert not scheduler.cluster.cooling
    assert reasons(double).count("KubeletRejected") == 1


async def test_a_new_list_does_not_count_a_rejection_again(double):
    async with running(Token(double.url)) as scheduler:
        double.put("pods", wire_pod("p", memory="1Gi"))
        await until(lambda: double.node_of("p"))
        reject(double, "p")
        await until(lambda: scheduler.cluster.cooling)
        double.compact()
        double.version += 1
        double.compact()
        double.close_watches("pods")
        await until(lambda: double.requests["GET", "pods"] == 2)
        double.put("pods", wire_pod("q", memory="1Gi"))
        await until(lambda: double.node_of("q"))
        counted = scheduler.metrics.registry.get_sample_value(
            "turb_kub_kubelet_rejections_total", {"reason": "OutOfmemory"}
        )
        assert counted == 1
