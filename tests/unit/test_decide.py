"""Decisions: the node, the message, the numbers."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from turb_kub.decision.decide import decide, without_numbers
from turb_kub.decision.policy import LeastRequestedMemory, Policy, PolicyError, load_policy

from tests.unit.objects import cluster_of, node, pod

MI = 2**20
POLICY = LeastRequestedMemory()
LIMIT = 2048 * MI


def chosen(cluster, wanted, policy=POLICY):
    return decide(cluster, wanted, policy).node


def message(cluster, wanted):
    decision = decide(cluster, wanted, POLICY)
    assert decision.node is None
    return decision.message


def placed(name, on, **how):
    return pod(name, node=on, **how)


# The policy


def test_the_least_requested_node_wins():
    cluster = cluster_of(node("a"), node("b"), pods=(placed("x", "a", memory="1Gi"),))
    assert chosen(cluster, pod("p", memory="1Mi")) == "b"


def test_equal_loads_end_by_name_whatever_the_order_of_arrival():
    assert chosen(cluster_of(node("b"), node("a"), node("c")), pod("p", memory="1Mi")) == "a"


def test_loads_within_one_percent_of_the_ceiling_are_tied():
    tied = cluster_of(node("a"), node("b"), pods=(placed("x", "a", memory="20Mi"),), node_memory_limit=LIMIT)
    assert chosen(tied, pod("p", memory="1Mi")) == "a"
    apart = cluster_of(node("a"), node("b"), pods=(placed("x", "a", memory="21Mi"),), node_memory_limit=LIMIT)
    assert chosen(apart, pod("p", memory="1Mi")) == "b"
    assert chosen(tied, pod("p", memory="1Mi"), LeastRequestedMemory(tie_percent=0)) == "b"


def test_pods_of_ours_without_a_request_do_not_herd():
    cluster = cluster_of(node("a"), node("b"))
    homes = []
    for number in range(4):
        home = chosen(cluster, pod(f"p{number}"))
        cluster.set_pod(placed(f"p{number}", home))
        homes.append(home)
    assert homes == ["a", "b", "a", "b"]


def test_pods_of_others_without_a_request_weigh_nothing():
    cluster = cluster_of(node("a"), node("b"), pods=(placed("x", "a", scheduler="default-scheduler"),))
    assert chosen(cluster, pod("p")) == "a"


def test_pod1_to_pod3_of_the_manifests_spread():
    cluster = cluster_of(node("node-1"), node("node-2"), node_memory_limit=LIMIT)
    homes = {}
    for name, memory in (("pod1", "768Mi"), ("pod2", "1024Mi"), ("pod3", "768Mi")):
        homes[name] = chosen(cluster, pod(name, memory=memory))
        cluster.set_pod(placed(name, homes[name], memory=memory))
    assert homes == {"pod1": "node-1", "pod2": "node-2", "pod3": "node-1"}


# Preferences decide among tied nodes

SOFT = [{"key": "k", "effect": "PreferNoSchedule"}]


def prefers(*terms):
    preferred = [
        {"weight": weight, "preference": {"matchExpressions": [{"key": key, "operator": "Exists"}]}}
        for weight, key in terms
    ]
    return {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}}


def test_a_node_with_a_prefer_no_schedule_taint_is_the_last_of_tied_ones():
    cluster = cluster_of(node("a", taints=SOFT), node("b"))
    assert chosen(cluster, pod("p")) == "b"
    assert chosen(cluster, pod("q", spec={"tolerations": [{"key": "k", "operator": "Exists"}]})) == "a"


def test_preferred_node_affinity_weighs_tied_nodes():
    cluster = cluster_of(node("a"), node("b", labels={"ssd": "y"}), node("c", labels={"ssd": "y", "fast": "y"}))
    assert chosen(cluster, pod("p", spec=prefers((1, "ssd")))) == "b"
    assert chosen(cluster, pod("q", spec=prefers((1, "ssd"), (1, "fast")))) == "c"
    assert chosen(cluster, pod("r", spec=prefers((1, "none")))) == "a"


def test_a_taint_outweighs_any_affinity():
    cluster = cluster_of(node("a", taints=SOFT, labels={"ssd": "y"}), node("b"))
    assert chosen(cluster, pod("p", spec=prefers(*[(100, "ssd")] * 50))) == "b"


def test_preferences_do_not_outweigh_the_load():
    cluster = cluster_of(node("a", taints=SOFT), node("b"), pods=(placed("x", "b", memory="1Gi"),))
    assert chosen(cluster, pod("p", spec=prefers((100, "ssd")))) == "a"


def test_what_decided_among_tied_nodes_is_told():
    cluster = cluster_of(node("a"), node("b", labels={"ssd": "y"}))
    assert decide(cluster, pod("p"), POLICY).tie == "name"
    assert decide(cluster, pod("q", spec=prefers((1, "ssd"))), POLICY).tie == "preference"
    cluster.set_pod(placed("x", "a", memory="1Gi"))
    assert decide(cluster, pod("r", spec=prefers((1, "ssd"))), POLICY).tie == ""


def test_preferences_follow_the_node():
    cluster = cluster_of(node("a"), node("b"))
    wanted = pod("p", spec=prefers((1, "ssd")))
    assert chosen(cluster, wanted) == "a"
    cluster.set_node(node("b", labels={"ssd": "y"}))
    assert chosen(cluster, wanted) == "b"
    cluster.set_node(node("b"))
    assert chosen(cluster, wanted) == "a"


# The ceiling


def test_the_ceiling_refuses_what_allocatable_memory_would_take():
    cluster = cluster_of(node("a"), node("b"), node_memory_limit=LIMIT)
    assert message(cluster, pod("p", memory="2049Mi")) == (
        "0/2 nodes are available: 2 node(s) exceeded NODE_MEM_LIMIT_MB."
    )
    assert chosen(cluster, pod("p", memory="2048Mi")) == "a"


def test_the_annotation_of_a_node_overrides_the_limit():
    roomy = node("b", annotations={"turb-kub.io/node-mem-limit-mb": "4096"})
    assert chosen(cluster_of(node("a"), roomy, node_memory_limit=LIMIT), pod("p", memory="3Gi")) == "b"


@pytest.mark.parametrize("text", ["abc", "-1", "0", "1e3", "", "1.5", "99999999999", "9" * 5000])
def test_an_annotation_that_is_no_number_leaves_the_general_limit(text):
    odd = node("a", annotations={"turb-kub.io/node-mem-limit-mb": text})
    assert odd.limit_error is not None
    cluster = cluster_of(odd, node_memory_limit=LIMIT)
    assert message(cluster, pod("p", memory="3Gi")) == "0/1 nodes are available: 1 node(s) exceeded NODE_MEM_LIMIT_MB."


def test_a_limit_above_allocatable_memory_adds_nothing():
    cluster = cluster_of(node("a", memory="1Gi"), node_memory_limit=LIMIT)
    assert message(cluster, pod("p", memory="1025Mi")) == "0/1 nodes are available: 1 Insufficient memory."


def test_pods_of_every_namespace_and_scheduler_count():
    foreign = placed("x", "a", namespace="kube-system", scheduler="default-scheduler", memory="2Gi")
    cluster = cluster_of(node("a"), pods=(foreign,), node_memory_limit=LIMIT)
    assert chosen(cluster, pod("p", memory="1Mi")) is None


def test_narrow_accounting_misses_what_other_namespaces_take():
    foreign = placed("x", "a", namespace="kube-system", memory="2Gi")
    narrow = cluster_of(node("a"), pods=(foreign,), node_memory_limit=LIMIT, namespaces=frozenset({"default"}))
    assert chosen(narrow, pod("p", memory="1Gi")) == "a"  # 3 GiB on a node that should hold 2


def test_narrow_accounting_never_breaks_allocatable_memory():
    foreign = placed("x", "a", namespace="kube-system", memory="15Gi")
    narrow = cluster_of(node("a"), pods=(foreign,), namespaces=frozenset({"default"}))
    assert message(narrow, pod("p", memory="2Gi")) == "0/1 nodes are available: 1 Insufficient memory."


def test_the_default_request_makes_silent_pods_count_under_the_ceiling():
    silent = tuple(placed(f"x{number}", "a", scheduler="other") for number in range(4))
    cluster = cluster_of(node("a"), pods=silent, node_memory_limit=LIMIT, default_request=500 * MI)
    assert message(cluster, pod("p")) == "0/1 nodes are available: 1 node(s) exceeded NODE_MEM_LIMIT_MB."
    assert chosen(cluster_of(node("a"), pods=silent, node_memory_limit=LIMIT), pod("p")) == "a"


def test_a_node_over_its_ceiling_still_takes_a_pod_that_asks_no_memory():
    cluster = cluster_of(node("a"), pods=(placed("x", "a", memory="3Gi"),), node_memory_limit=LIMIT)
    assert chosen(cluster, pod("p", cpu="1")) == "a"


# Resources


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"cpu": "9"}, "Insufficient cpu"),
        ({"memory": "17Gi"}, "Insufficient memory"),
        ({"ephemeral_storage": "1"}, "Insufficient ephemeral-storage"),
        ({"example.com/gpu": "1"}, "Insufficient example.com/gpu"),
    ],
)
def test_every_resource_is_held_against_allocatable(asked, reason):
    assert message(cluster_of(node("a")), pod("p", **asked)) == f"0/1 nodes are available: 1 {reason}."


def test_an_extended_resource_is_spent():
    cluster = cluster_of(node("a", **{"example.com/gpu": "1"}))
    asks = {"example.com/gpu": "1"}
    assert chosen(cluster, pod("p", **asks)) == "a"
    cluster.set_pod(placed("p", "a", **asks))
    assert message(cluster, pod("q", **asks)) == "0/1 nodes are available: 1 Insufficient example.com/gpu."


def test_the_number_of_pods_is_limited():
    cluster = cluster_of(node("a", pods="1"), pods=(placed("x", "a"),))
    assert message(cluster, pod("p")) == "0/1 nodes are available: 1 Too many pods."


def test_a_node_with_two_reasons_counts_twice():
    assert message(cluster_of(node("a")), pod("p", cpu="9", memory="17Gi")) == (
        "0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient memory."
    )


# Filters on the node


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ({"unschedulable": True}, "node(s) were unschedulable"),
        ({"ready": "False"}, "node(s) were not ready"),
        ({"ready": "Unknown"}, "node(s) were not ready"),
        ({"ready": None}, "node(s) were not ready"),
        ({"taints": [{"key": "k", "effect": "NoSchedule"}]}, "node(s) had untolerated taint(s)"),
        ({"taints": [{"key": "k", "effect": "NoExecute"}]}, "node(s) had untolerated taint(s)"),
    ],
)
def test_a_node_that_takes_no_pods_is_refused(how, reason):
    assert message(cluster_of(node("a", **how)), pod("p")) == f"0/1 nodes are available: 1 {reason}."


@pytest.mark.parametrize(
    ("how", "key"),
    [
        ({"unschedulable": True}, "node.kubernetes.io/unschedulable"),
        ({"ready": "False"}, "node.kubernetes.io/not-ready"),
        ({"ready": "Unknown"}, "node.kubernetes.io/unreachable"),
        ({"taints": [{"key": "k", "effect": "NoSchedule"}]}, "k"),
    ],
)
def test_a_toleration_opens_the_node(how, key):
    tolerant = pod("p", spec={"tolerations": [{"key": key, "operator": "Exists", "effect": "NoSchedule"}]})
    assert chosen(cluster_of(node("a", **how)), tolerant) == "a"


def test_a_prefer_no_schedule_taint_refuses_nobody():
    assert chosen(cluster_of(node("a", taints=[{"key": "k", "effect": "PreferNoSchedule"}])), pod("p")) == "a"


def test_node_selector():
    cluster = cluster_of(node("a"), node("b", labels={"disk": "ssd"}))
    assert chosen(cluster, pod("p", spec={"nodeSelector": {"disk": "ssd"}})) == "b"
    assert message(cluster, pod("q", spec={"nodeSelector": {"disk": "hdd"}})) == (
        "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector."
    )


def test_each_node_is_refused_by_its_first_filter_and_reasons_are_sorted_as_text():
    cluster = cluster_of(
        node("a", unschedulable=True, taints=[{"key": "k", "effect": "NoSchedule"}]),
        node("b", taints=[{"key": "k", "effect": "NoSchedule"}]),
        *(node(f"c{number}", cpu="1") for number in range(10)),
    )
    assert message(cluster, pod("p", cpu="2")) == (
        "0/12 nodes are available: "
        "1 node(s) had untolerated taint(s), 1 node(s) were unschedulable, 10 Insufficient cpu."
    )


def test_verdicts_of_the_node_filters_follow_the_node():
    cluster = cluster_of(node("a"))
    assert chosen(cluster, pod("p")) == "a"
    cluster.set_node(node("a", unschedulable=True))
    assert chosen(cluster, pod("p")) is None
    cluster.set_node(node("a"))
    assert chosen(cluster, pod("p")) == "a"
    cluster.remove_node("a")
    assert message(cluster, pod("p")) == "no nodes available to schedule pods"
    cluster.set_node(node("b"))
    assert chosen(cluster, pod("p")) == "b"


# Host ports


def claims(*ports, init=False):
    """A spec whose container (or sidecar) claims (hostPort, protocol, hostIP)."""
    container = {
        "name": "c",
        "image": "x",
        "ports": [{"containerPort": 1, "hostPort": port, "protocol": proto, "hostIP": ip} for port, proto, ip in ports],
    }
    if init:
        return {"initContainers": [container | {"restartPolicy": "Always"}]}
    return {"containers": [container]}


@pytest.mark.parametrize(
    ("taken", "wanted", "free"),
    [
        ((80, "TCP", ""), (80, "TCP", ""), False),
        ((80, "TCP", ""), (81, "TCP", ""), True),
        ((80, "TCP", ""), (80, "UDP", ""), True),
        ((80, "TCP", "10.0.0.1"), (80, "TCP", "10.0.0.2"), True),
        ((80, "TCP", "10.0.0.1"), (80, "TCP", "10.0.0.1"), False),
        ((80, "TCP", "10.0.0.1"), (80, "TCP", "0.0.0.0"), False),
        ((80, "TCP", "0.0.0.0"), (80, "TCP", "10.0.0.1"), False),
        ((0, "TCP", ""), (0, "TCP", ""), True),
    ],
)
@pytest.mark.parametrize("init", [False, True], ids=["container", "sidecar"])
def test_a_host_port_is_had_once_a_node_address_and_protocol(taken, wanted, free, init):
    cluster = cluster_of(node("a"), pods=(placed("x", "a", spec=claims(taken, init=init)),))
    decision = decide(cluster, pod("p", spec=claims(wanted, init=init)), POLICY)
    assert (decision.node == "a") is free
    if not free:
        assert decision.message == (
            "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports."
        )
        assert decision.nodes[0].refusals[0].startswith("host port ")


def test_another_node_takes_the_pod_and_a_port_is_free_again_when_its_pod_is_gone():
    cluster = cluster_of(node("a"), node("b"), pods=(placed("x", "a", spec=claims((80, "TCP", ""))),))
    wanted = pod("p", spec=claims((80, "TCP", "")))
    assert chosen(cluster, wanted) == "b"
    cluster.set_pod(placed("p", "b", spec=claims((80, "TCP", ""))))
    assert chosen(cluster, pod("q", spec=claims((80, "TCP", "")))) is None
    cluster.remove_pod("uid-default-x")
    assert chosen(cluster, pod("q", spec=claims((80, "TCP", "")))) == "a"
    cluster.remove_pod("uid-default-p")
    assert len(cluster.ports) == 0


def test_a_port_shared_by_pods_that_others_placed_is_taken_until_the_last_is_gone():
    shared = tuple(placed(name, "a", spec=claims((80, "TCP", ""))) for name in ("x", "y"))
    cluster = cluster_of(node("a"), pods=shared)
    cluster.remove_pod("uid-default-x")
    assert chosen(cluster, pod("p", spec=claims((80, "TCP", "")))) is None
    cluster.remove_pod("uid-default-y")
    assert chosen(cluster, pod("p", spec=claims((80, "TCP", "")))) == "a"


# Fields


def test_a_field_that_is_not_supported_keeps_the_pod_pending_and_is_named():
    spec = {"volumes": [{"name": "v", "iscsi": {"iqn": "iqn.example"}}]}
    assert message(cluster_of(node("a"), node("b")), pod("p", spec=spec)) == (
        "0/2 nodes are available: pod uses spec.volumes[].iscsi, which turb-kub does not support."
    )


def test_a_field_that_is_not_known_fails_closed_unless_told_otherwise():
    cluster = cluster_of(node("a"))
    odd = pod("p", spec={"levitation": {"height": 3}})
    assert "pod uses spec.levitation, which this version of turb-kub does not know" in message(cluster, odd)
    assert decide(cluster, odd, POLICY, unknown_fields_fail=False).node == "a"


# The numbers


def test_a_refusal_carries_its_numbers():
    cluster = cluster_of(node("node-2"), pods=(placed("x", "node-2", memory="900Mi"),), node_memory_limit=1200 * MI)
    (report,) = decide(cluster, pod("p", memory="512Mi"), POLICY).nodes
    assert report.refusals == ("900Mi requested + 512Mi asked > 1200Mi ceiling, short by 212Mi",)


@pytest.mark.parametrize(
    ("how", "asked", "detail"),
    [
        ({"unschedulable": True}, {}, "the node is cordoned"),
        ({"ready": "False"}, {}, "the node's Ready condition is False"),
        ({"taints": [{"key": "k", "value": "v", "effect": "NoExecute"}]}, {}, "untolerated taint k=v:NoExecute"),
        ({"pods": "0"}, {}, "0 pods of 0"),
        ({}, {"cpu": "9"}, "0 cpu requested + 9 asked > 8 allocatable, short by 1"),
        ({}, {"spec": {"nodeSelector": {"disk": "ssd"}}}, "nodeSelector asks disk=ssd (has none)"),
    ],
)
def test_each_refusal_says_what_exactly(how, asked, detail):
    (report,) = decide(cluster_of(node("a", **how)), pod("p", **asked), POLICY).nodes
    assert report.refusals == (detail,)


def test_a_placement_reports_the_best_nodes_first_and_no_more_than_five():
    nodes = [node(f"n{number}") for number in range(9)]
    busy = tuple(placed(f"x{number}", f"n{number}", memory=f"{number}Gi") for number in range(1, 9))
    decision = decide(cluster_of(*nodes, pods=busy), pod("p", memory="1Mi"), POLICY)
    assert [report.name for report in decision.nodes] == ["n0", "n1", "n2", "n3", "n4"]
    assert [report.requested // 2**30 for report in decision.nodes] == [0, 1, 2, 3, 4]
    assert (decision.feasible, decision.evaluated) == (9, 9)


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("0/2 nodes are available: 2 Insufficient memory.", "nodes are available: Insufficient memory."),
        (
            "0/12 nodes are available: 1 node(s) were unschedulable, 10 Insufficient cpu.",
            "nodes are available: node(s) were unschedulable, Insufficient cpu.",
        ),
        ("no nodes available to schedule pods", "no nodes available to schedule pods"),
        (
            "0/1 nodes are available: 1 Insufficient example.com/a100.",
            "nodes are available: Insufficient example.com/a100.",
        ),
    ],
)
def test_a_verdict_is_the_message_without_its_counts(text, verdict):
    assert without_numbers(text) == verdict


# Properties

memory = st.integers(0, 3000)
clusters = st.lists(
    st.tuples(st.integers(1, 6000), st.booleans(), st.lists(memory, max_size=5)), min_size=1, max_size=6
)


@settings(max_examples=200, deadline=None)
@given(clusters, memory, st.integers(1, 4000))
def test_a_placement_never_breaks_the_ceiling_and_no_feasible_node_has_less(layout, asked, limit):
    """Against the plainest statement of the rule, node by node, with Python integers."""
    nodes, pods, loads, room = [], [], {}, {}
    for number, (allocatable, cordoned, held) in enumerate(layout):
        name = f"n{number}"
        nodes.append(node(name, memory=f"{allocatable}Mi", unschedulable=cordoned))
        pods += [placed(f"{name}-{i}", name, memory=f"{size}Mi", scheduler="other") for i, size in enumerate(held)]
        loads[name] = sum(held)
        room[name] = not cordoned and (not asked or sum(held) + asked <= min(limit, allocatable))
    cluster = cluster_of(*nodes, pods=tuple(pods), node_memory_limit=limit * MI)
    decision = decide(cluster, pod("p", memory=f"{asked}Mi"), LeastRequestedMemory(tie_percent=0))
    feasible = [name for name in loads if room[name]]
    if feasible:
        assert decision.node == min(feasible, key=lambda name: (loads[name], name))
        assert decision.feasible == len(feasible)
    else:
        assert decision.node is None
        assert decision.message.startswith(f"0/{len(nodes)} nodes are available: ")


# Policies of one's own


def test_a_policy_of_ones_own_decides_among_the_feasible():
    class Last(Policy):
        name = "last"

        def rank(self, cluster, pod):
            return -cluster.ranks()

    cluster = cluster_of(node("a"), node("b"), node("c", unschedulable=True))
    assert chosen(cluster, pod("p"), Last()) == "b"


def test_an_unknown_policy_is_refused_with_the_names_there_are():
    with pytest.raises(PolicyError, match="there is no policy 'fairest'; installed are: least-requested-memory"):
        load_policy("fairest")


def test_of_very_many_nodes_the_best_are_reported_as_of_few(monkeypatch):
    monkeypatch.setattr("turb_kub.decision.decide._CHUNKS", 8)
    monkeypatch.setattr("turb_kub.decision.decide._MANY", 4)
    cluster = cluster_of(*(node(f"n{number:02}") for number in range(40)))
    for number in range(40):
        cluster.set_pod(pod(f"p{number}", node=f"n{number:02}", memory=f"{number * 29 % 40 + 1}Gi"))
    decision = decide(cluster, pod("p"), LeastRequestedMemory())
    assert [report.rank / 2**30 for report in decision.nodes] == [1, 2, 3, 4, 5]
