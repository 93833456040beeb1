"""The table of PodSpec fields: what keeps a pod Pending, and what does not."""

import pytest
from turb_kub.decision.fields import POD_SPEC, unsupported_fields


def container(**extra):
    return {"containers": [{"name": "a", "image": "x", **extra}]}


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        *[
            ({"volumes": [{"name": "v", disk: {"readOnly": True}}]}, f"spec.volumes[].{disk}")
            for disk in ("gcePersistentDisk", "awsElasticBlockStore", "iscsi", "rbd")
        ],
        (container(resources={"claims": [{"name": "c"}]}), "spec.containers[].resources.claims"),
        ({"resourceClaims": [{"name": "c"}]}, "spec.resourceClaims"),
        ({"schedulingGroup": {"podGroupName": "g"}}, "spec.schedulingGroup"),
        ({"os": {"name": "windows"}}, "spec.os.name"),
    ],
)
def test_what_could_bind_a_pod_to_nodes_and_is_not_honoured_is_named(spec, path):
    assert unsupported_fields(spec) == ([path], [])


@pytest.mark.parametrize(
    "spec",
    [
        {},
        container(
            ports=[{"containerPort": 80, "protocol": "TCP", "hostPort": 80}],
            resources={"requests": {"cpu": "1"}, "limits": {}},
        ),
        {"volumes": [{"name": "v", "emptyDir": {}}, {"name": "t", "projected": {"sources": [{"odd": 1}]}}]},
        {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]},
        {"volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]},
        {"nodeSelector": {"anything": "goes"}, "tolerations": [{"operator": "Exists"}], "priority": 0},
        {"os": {"name": "linux"}, "hostNetwork": True, "resourceClaims": [], "overhead": {"memory": "1Mi"}},
        {"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}}},
        {"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "ScheduleAnyway"}]},
        {
            "topologySpreadConstraints": [
                {"whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"x": "y"}}}
            ]
        },
        {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "z"}]}}},
        {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}]}}}},
    ],
)
def test_what_is_honoured_or_says_nothing_of_nodes_passes(spec):
    assert unsupported_fields(spec) == ([], [])


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"levitation": True}, "spec.levitation"),
        (container(magnetism=3), "spec.containers[].magnetism"),
        ({"affinity": {"moonAffinity": {"phase": "full"}}}, "spec.affinity.moonAffinity"),
        ({"topologySpreadConstraints": [{"maxSkew": 1, "flavour": 1}]}, "spec.topologySpreadConstraints[].flavour"),
        (
            {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"colour": "red"}]}}},
            "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[].colour",
        ),
        ({"volumes": [{"name": "v", "wormhole": {"to": "x"}}]}, "spec.volumes[].wormhole"),
        ({"resources": {"requests": {"cpu": "1"}, "wishes": 1}}, "spec.resources.wishes"),
    ],
)
def test_what_the_table_does_not_know_is_told_apart(spec, path):
    assert unsupported_fields(spec) == ([], [path])


def test_a_name_is_told_once():
    spec = {"containers": [{"name": str(number), "resources": {"claims": [{"name": "c"}]}} for number in range(5)]}
    assert unsupported_fields(spec) == (["spec.containers[].resources.claims"], [])


def test_the_table_has_no_empty_entry():
    assert all(entry is not None for entry in POD_SPEC.values())
