"""The control plane that the other tests stand on: what is written stays as it is, and nothing is left running."""

import pytest

from tests.ansible.conftest import processes_of
from tests.api.conftest import bare_node
from tests.cluster.control_plane import NotStarted, control_plane

pytestmark = pytest.mark.cluster


async def test_nothing_changes_a_node_or_a_pod(admin):
    made = [
        await admin.call("POST", "/api/v1/nodes", bare_node("n", ready="Unknown", unschedulable=True)),
        await admin.create_pod("p", nodeName="n"),
    ]
    assert "taints" not in made[0]["spec"]
    assert made[0]["status"]["conditions"][0]["status"] == "Unknown"
    assert made[1]["spec"].get("tolerations") == [
        {"effect": "NoExecute", "key": f"node.kubernetes.io/{key}", "operator": "Exists", "tolerationSeconds": 300}
        for key in ("not-ready", "unreachable")
    ]
    assert [await admin.call("GET", "/api/v1/nodes/n"), await admin.pod("p")] == made


def test_a_program_that_does_not_start_is_told_and_the_others_are_ended(bare, tmp_path):
    broken = {**bare.programs, "kube-apiserver": "/bin/false"}
    with pytest.raises(NotStarted, match=r"^kube-apiserver ended with 1: "), control_plane(tmp_path, broken):
        pass
    assert not processes_of(tmp_path)
    assert (tmp_path / "etcd").is_dir()
