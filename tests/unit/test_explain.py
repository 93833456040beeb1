"""Explanations: every node with its numbers, and the nearest fix."""

import json

import pytest
import yaml
from turb_kub.cli.main import main
from turb_kub.decision.decide import decide
from turb_kub.decision.explain import explain
from turb_kub.decision.policy import LeastRequestedMemory

from tests.unit.objects import cluster_of, node, pod, wire_node, wire_pod
from tests.unit.storage import using, wire_claim, wire_class, wire_volume

MI = 2**20
POLICY = LeastRequestedMemory()


def fixes(cluster, wanted):
    return explain(cluster, wanted, POLICY).fixes


def test_every_node_is_there_the_chosen_one_first_and_the_refused_last():
    nodes = [node(f"n{number}", unschedulable=number == 0) for number in range(9)]
    cluster = cluster_of(*nodes, pods=(pod("x", node="n1", memory="1Gi"),))
    explanation = explain(cluster, pod("p", memory="1Mi"), POLICY)
    assert [report.name for report in explanation.nodes] == [f"n{number}" for number in (2, 3, 4, 5, 6, 7, 8, 1, 0)]
    assert explanation.nodes[-1].refusals == ("the node is cordoned",)
    assert explanation.decision == decide(cluster, pod("p", memory="1Mi"), POLICY)
    assert explanation.fixes == ()


def test_the_ceiling_that_would_do_and_the_smallest_pod_whose_leaving_would_do():
    held = (
        pod("small", node="a", memory="100Mi"),
        pod("right", node="a", memory="300Mi"),
        pod("large", node="a", memory="500Mi"),
        pod("huge", node="b", memory="1100Mi"),
    )
    cluster = cluster_of(node("a"), node("b"), pods=held, node_memory_limit=1200 * MI)
    assert fixes(cluster, pod("p", memory="512Mi")) == (
        "a would take it under a ceiling of 1412Mi",
        "a would take it without default/right (300Mi)",
    )


def test_a_ceiling_that_would_do_does():
    cluster = cluster_of(node("a"), pods=(pod("x", node="a", memory="900Mi"),), node_memory_limit=1200 * MI)
    wanted = pod("p", memory="536870913")  # a byte over 512 MiB
    (fix, _) = fixes(cluster, wanted)
    limit = int(fix.rpartition(" ")[2].removesuffix("Mi"))
    roomy, tight = (
        cluster_of(node("a"), pods=(pod("x", node="a", memory="900Mi"),), node_memory_limit=mebibytes * MI)
        for mebibytes in (limit, limit - 1)
    )
    assert decide(roomy, wanted, POLICY).node == "a"
    assert decide(tight, wanted, POLICY).node is None


def test_whose_leaving_would_do_is_found_whatever_the_filter():
    avoids = {
        "affinity": {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "db"}}}
                ]
            }
        }
    }
    held = (
        pod("bystander", node="a"),
        pod("db", node="a", labels={"app": "db"}, memory="64Mi"),
        pod("db1", node="b", labels={"app": "db"}),
        pod("db2", node="b", labels={"app": "db"}),
    )
    cluster = cluster_of(node("a"), node("b"), pods=held)
    wanted = pod("p", spec=avoids)
    assert fixes(cluster, wanted) == ("a would take it without default/db (64Mi)",)
    assert cluster.check() == []
    cluster.remove_pod(held[1].uid)
    assert decide(cluster, wanted, POLICY).node == "a"


def test_no_fix_is_named_that_would_not_do():
    cluster = cluster_of(node("a", cpu="1"), pods=(pod("x", node="a", memory="900Mi"),), node_memory_limit=1200 * MI)
    assert fixes(cluster, pod("p", memory="512Mi", cpu="2")) == ()
    assert fixes(cluster_of(node("a", unschedulable=True)), pod("p")) == ()
    assert fixes(cluster_of(), pod("p")) == ()


def test_a_pod_in_the_way_of_a_pod_slot():
    cluster = cluster_of(node("a", pods="1"), pods=(pod("x", node="a"),))
    assert fixes(cluster, pod("p")) == ("a would take it without default/x (0Mi)",)


# The command


@pytest.fixture
def objects():
    scheduled = {
        "kind": "Event",
        "metadata": {
            "name": "e",
            "annotations": {
                "turb-kub.io/decision": json.dumps(
                    {"policy": "p", "node": "node-1", "asked": "1Mi", "feasible": 1, "evaluated": 1, "nodes": []}
                )
            },
        },
        "regarding": {"uid": "uid-default-placed"},
    }
    return [
        {"kind": "Node"} | wire_node("node-1"),
        {"kind": "Node"} | wire_node("node-2"),
        {"kind": "Pod"} | wire_pod("placed", node="node-1", memory="900Mi"),
        {"kind": "Pod"} | wire_pod("other", node="node-2", memory="1100Mi", namespace="kube-system", scheduler="x"),
        {"kind": "Pod"} | wire_pod("waits", memory="512Mi"),
        {"kind": "Pod"} | wire_pod("odd", memory="5mi"),
        {"kind": "Service", "metadata": {"name": "s"}},
        scheduled,
    ]


@pytest.fixture
def file(tmp_path, objects):
    path = tmp_path / "dump"
    path.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": objects}))
    return path


def explained(capsys, file, key, *more, code=0):
    assert main(["explain", key, "--file", str(file), "--node-mem-limit-mb", "1200", *more]) == code
    return capsys.readouterr()


def test_a_table_of_every_node_with_the_fix(capsys, file):
    shown = [" ".join(line.split()) for line in explained(capsys, file, "default/waits").out.splitlines()]
    assert shown == [
        "default/waits waits",
        "0/2 nodes are available: 2 node(s) exceeded NODE_MEM_LIMIT_MB.",
        "NODE LOAD REQUESTED ASKED CEILING VERDICT",
        "node-1 900Mi 900Mi 512Mi 1200Mi 900Mi requested + 512Mi asked > 1200Mi ceiling, short by 212Mi",
        "node-2 1100Mi 1100Mi 512Mi 1200Mi 1100Mi requested + 512Mi asked > 1200Mi ceiling, short by 412Mi",
        "Fix: node-1 would take it under a ceiling of 1412Mi",
        "Fix: node-1 would take it without default/placed (900Mi)",
        "Set aside, not understood: pod default/odd: '5mi' is not a quantity",
    ]


def test_json_says_the_same(capsys, file):
    found = json.loads(explained(capsys, file, "waits", "-o", "json").out)
    assert (found["pod"], found["node"]) == ("default/waits", None)
    assert found["decision"]["message"] == "0/2 nodes are available: 2 node(s) exceeded NODE_MEM_LIMIT_MB."
    assert [one["name"] for one in found["nodes"]] == ["node-1", "node-2"]
    assert len(found["fixes"]) == 2
    assert found["recorded"] is None


def test_a_placed_pod_is_explained_as_if_it_were_not_placed_yet(capsys, file):
    found = json.loads(explained(capsys, file, "placed", "-o", "json").out)
    assert found["message"] == "default/placed is on node-1, and would be placed there again"
    assert {one["name"]: one["requested"] for one in found["nodes"]} == {"node-1": 0, "node-2": 1100 * MI}
    assert found["recorded"]["policy"] == "p"


def test_pods_of_other_schedulers_are_explained_too(capsys, file):
    assert "kube-system/other is on node-2" in explained(capsys, file, "kube-system/other").out


def test_an_object_that_is_not_understood_says_why(capsys, file):
    assert "pod default/odd: '5mi' is not a quantity; it is set aside" in explained(capsys, file, "odd", code=1).err


def test_a_pod_that_is_not_there(capsys, file):
    assert "there is no pod default/nobody" in explained(capsys, file, "nobody", code=2).err


@pytest.mark.parametrize("form", ["documents", "lists"])
def test_an_export_in_yaml_is_read_too(capsys, file, objects, form):
    documents = objects if form == "documents" else [{"kind": "PodList", "items": objects[2:]}, *objects[:2]]
    file.write_text(yaml.safe_dump_all(documents))
    assert "default/waits waits" in explained(capsys, file, "waits").out


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("{", "is neither JSON nor YAML"),
        ("a: [", "is neither JSON nor YAML"),
        ("", "holds no node"),
        ("[1, 2]", "holds no node"),
        ('{"kind": "List", "items": [3]}', "holds no node"),
    ],
)
def test_a_file_that_is_of_no_use(capsys, file, text, what):
    file.write_text(text)
    assert what in explained(capsys, file, "p", code=2 if what else 0).err


def test_a_file_that_is_not_there(capsys, tmp_path):
    assert "could not be read: No such file" in explained(capsys, tmp_path / "none", "p", code=2).err


BOUND = wire_claim("data", volume="v")
UNBOUND = wire_claim("data")


@pytest.mark.parametrize(
    ("storage", "said"),
    [
        ([], "these could not be read: persistentvolumeclaims (not in the file)"),
        ([BOUND], "these could not be read: persistentvolumes (not in the file)"),
        ([UNBOUND], "these could not be read: storageclasses (not in the file)"),
        ([wire_claim("other"), wire_class()], 'persistentvolumeclaim "data" not found'),
        ([BOUND, wire_volume("v", nodes=("node-9",))], "2 node(s) didn't match PersistentVolume's node affinity"),
        ([BOUND, wire_volume("v", nodes=("node-2",))], "default/stateful would go to node-2"),
        ([UNBOUND, wire_class(provisioner="example.com/disk")], "default/stateful would go to node-1"),
    ],
)
def test_storage_in_the_file_is_looked_at_and_storage_left_out_of_it_is_said_to_be(
    capsys, tmp_path, objects, storage, said
):
    file = tmp_path / "dump"
    waiting = {"kind": "Pod"} | wire_pod("stateful", spec=using("data"))
    file.write_text(json.dumps({"kind": "List", "items": [*objects, waiting, *storage]}))
    assert said in " ".join(explained(capsys, file, "stateful").out.split())


def near_red(namespaces):
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}, "namespaceSelector": namespaces}
    return {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


@pytest.mark.parametrize(
    ("asked", "extra", "said"),
    [
        ({"spec": near_red({"matchLabels": {"team": "red"}})}, [], "Note: namespaces are not in the file"),
        ({"spec": near_red({})}, [], None),
        (
            {"spec": near_red({"matchLabels": {"team": "red"}})},
            [{"kind": "Namespace", "metadata": {"name": "default", "uid": "u"}}],
            None,
        ),
        ({"spec": using("data")}, [], "Note: csinodes are not in the file"),
        ({"scheduler": "other"}, [], "Note: it is for scheduler other; this is what turb-kub would do with it"),
        ({}, [], None),
    ],
)
def test_what_makes_an_explanation_doubtful_is_noted(capsys, tmp_path, asked, extra, said):
    file = tmp_path / "dump"
    items = [{"kind": "Node"} | wire_node("a"), {"kind": "Pod"} | wire_pod("asked", **asked), *extra]
    file.write_text(json.dumps({"kind": "List", "items": items}))
    out = " ".join(explained(capsys, file, "asked").out.split())
    assert ("Note:" in out) is (said is not None)
    assert said is None or said in out


def test_where_the_pod_itself_is_refused_nothing_is_said_against_nodes(capsys, tmp_path):
    file = tmp_path / "dump"
    items = [{"kind": "Node"} | wire_node("a"), {"kind": "Pod"} | wire_pod("asked", spec={"levitation": True})]
    file.write_text(json.dumps({"kind": "List", "items": items}))
    assert "the node itself fits" in explained(capsys, file, "asked").out
