"""The provider kind with a real engine and real kubelets, and with an engine that has bad days."""

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.ansible.conftest import BUILDING, CACHE, ROOT, Workshop
from tests.ansible.engine import docker, require_docker

pytestmark = pytest.mark.cluster

NAME = "turb-kub-test-kind"
NODES = [f"{NAME}-control-plane", f"{NAME}-worker"]
KUBECONFIG = "# the user's own, of which no byte may change\ncurrent-context: production\n"


def containers() -> dict[str, str]:
    """The cluster's containers and what state each is in."""
    told = docker("ps", "-a", "--filter", f"label=io.x-k8s.kind.cluster={NAME}", "--format", "{{.Names}} {{.State}}")
    return dict(line.split() for line in told.splitlines())


@pytest.fixture(scope="module")
def kind(tmp_path_factory) -> Iterator[Workshop]:
    """A folder whose cluster is gone after the tests of this file."""
    require_docker()
    workshop = Workshop(tmp_path_factory.mktemp("kind"), NAME)
    workshop.defaults["cluster_provider"] = "kind"
    own = workshop.home / ".kube/config"
    own.parent.mkdir()
    own.write_text(KUBECONFIG)
    yield workshop
    workshop.play("down.yml")


@pytest.fixture(scope="module")
def up(kind: Workshop) -> Workshop:
    """The cluster, brought up once; from empty caches its programs and its node image are built."""
    played = kind.play("up.yml", patience=BUILDING)
    assert played.code == 0, played.output
    return kind


def ask(workshop: Workshop, *arguments: str) -> Any:
    """What kubectl says of the cluster, as the record leads to it."""
    record = json.loads((workshop.work / "record.json").read_text())
    command = [record["kubectl"], "--kubeconfig", record["kubeconfig"], "--context", NAME, *arguments, "-o", "json"]
    process = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


def test_two_real_kubelets_are_ready_and_run_nothing_that_was_pulled(up: Workshop) -> None:
    nodes = ask(up, "get", "nodes")["items"]
    assert [node["metadata"]["name"] for node in nodes] == NODES
    for node in nodes:
        assert [each["status"] for each in node["status"]["conditions"] if each["type"] == "Ready"] == ["True"]
        assert not node["spec"].get("taints"), "both nodes take pods"
        assert node["status"]["nodeInfo"]["containerRuntimeVersion"].startswith("containerd://")


def test_every_node_claims_the_memory_of_the_whole_machine(up: Workshop) -> None:
    # Why there is a NODE_MEM_LIMIT_MB at all.
    whole = int(re.search(r"MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text())[1])  # type: ignore[index]
    for node in ask(up, "get", "nodes")["items"]:
        assert node["status"]["capacity"]["memory"] == f"{whole}Ki"


def test_second_run_changes_nothing(up: Workshop) -> None:
    started = docker("inspect", "--format", "{{.State.StartedAt}}", *NODES)
    again = up.play("up.yml")
    assert again.code == 0, again.output
    assert again.changes() == []
    assert docker("inspect", "--format", "{{.State.StartedAt}}", *NODES) == started


def test_kubeconfig_has_the_one_context_and_the_users_own_is_untouched(up: Workshop) -> None:
    config = yaml.safe_load((up.work / "kubeconfig").read_text())
    assert [context["name"] for context in config["contexts"]] == [NAME]
    assert config["current-context"] == NAME
    assert (up.home / ".kube/config").read_text() == KUBECONFIG
    assert [path.name for path in up.home.rglob("*") if path.is_file()] == ["config"]


def test_stopped_node_is_started_and_a_lost_kubeconfig_is_written_again(up: Workshop) -> None:
    docker("stop", "--time=5", NODES[1])
    (up.work / "kubeconfig").unlink()
    dry = up.play("up.yml", "--check")
    assert dry.code == 0, dry.output
    assert containers()[NODES[1]] == "exited", "a dry run starts nothing"
    again = up.play("up.yml")
    assert again.code == 0, again.output
    assert containers() == dict.fromkeys(NODES, "running")
    assert [node["metadata"]["name"] for node in ask(up, "get", "nodes")["items"]] == NODES


def test_another_number_of_nodes_is_refused(up: Workshop) -> None:
    played = up.play("up.yml", cluster_node_count=3)
    assert played.code != 0
    assert f"asked for are {NODES[0]}, {NODES[1]}, {NODES[1]}2" in played.failure
    assert "make down" in played.failure
    assert containers() == dict.fromkeys(NODES, "running")


def test_cluster_of_somebody_else_is_left_alone(up: Workshop, tmp_path: Path) -> None:
    other = Workshop(tmp_path, NAME)
    played = other.play("up.yml", cluster_provider="kind")
    assert played.code != 0
    assert "was not made from" in played.failure
    assert other.play("down.yml").code == 0
    assert containers() == dict.fromkeys(NODES, "running")


def test_teardown_leaves_nothing_and_is_fine_twice(up: Workshop) -> None:
    down = up.play("down.yml")
    assert down.code == 0, down.output
    assert containers() == {}
    assert f"turb-kub-{NAME}" not in docker("network", "ls", "--format", "{{.Name}}")
    assert not docker("images", "--quiet", "localhost/turb-kub/node")
    assert not up.work.exists()
    assert (up.home / ".kube/config").read_text() == KUBECONFIG
    again = up.play("down.yml")
    assert again.code == 0, again.output
    assert again.changed == 0


# -- an engine that has bad days ------------------------------------------------------------------------------------


@pytest.fixture
def stand_in(workshop: Workshop, tmp_path: Path) -> Callable[[str], dict[str, str]]:
    """Puts a docker before the real one that does what a shell says by `$1 $2`; returns the environment for it."""

    def put(script: str) -> dict[str, str]:
        folder = tmp_path / "stand-in"
        folder.mkdir()
        program = folder / "docker"
        program.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/calls\ncase "$1 $2" in\n{script}\nesac\n')
        program.chmod(0o755)
        return {"PATH": f"{folder}:{os.environ['PATH']}"}

    return put


def test_engine_that_does_not_run_is_one_sentence(workshop: Workshop, stand_in) -> None:
    env = stand_in('*) echo "Cannot connect to the Docker daemon at unix:///nowhere." >&2; exit 1 ;;')
    played = workshop.play("up.yml", env=env, cluster_provider="kind")
    assert played.code != 0
    assert "Cannot connect to the Docker daemon at unix:///nowhere." in played.failure
    assert "cluster_provider to kwok" in played.failure
    assert not workshop.work.exists()


def test_no_docker_at_all_is_one_sentence(workshop: Workshop, tmp_path: Path) -> None:
    # All that the system has, without docker.
    folder = tmp_path / "bin"
    folder.mkdir()
    for program in [*Path("/usr/bin").iterdir(), *Path("/bin").iterdir()]:
        if program.name != "docker" and not (folder / program.name).is_symlink():
            (folder / program.name).symlink_to(program)
    played = workshop.play("up.yml", env={"PATH": str(folder)}, cluster_provider="kind")
    assert played.code != 0
    assert "The provider kind needs a Docker engine" in played.failure


def test_image_that_is_named_and_can_not_be_had_is_one_sentence(workshop: Workshop, stand_in) -> None:
    env = stand_in(
        """version*) echo 20.10 ;;
        ps*) ;;
        *) echo "Error: manifest for example/node:1 not found" >&2; exit 1 ;;"""
    )
    played = workshop.play("up.yml", env=env, cluster_provider="kind", cluster_kind_node_image="example/node:1")
    assert played.code != 0
    assert "example/node:1 is not on this machine and can't be pulled (Error: manifest for" in played.failure
    assert "cluster_kind_node_image" in played.failure


def test_official_image_is_taken_where_it_can_be_pulled(workshop: Workshop, stand_in, tmp_path: Path) -> None:
    env = stand_in(
        """version*) echo 20.10 ;;
        ps*) ;;
        "pull --quiet") ;;
        *) echo "Error: No such image" >&2; exit 1 ;;"""
    )
    # An empty cache for images, so that none of ours is found there; the programs are the real ones.
    played = workshop.play(
        "up.yml", env=env, cluster_provider="kind", cluster_kind_image_tar=str(tmp_path / "none.tar")
    )
    stock = yaml.safe_load((ROOT / "roles/cluster/vars/kind.yml").read_text())["cluster_kind_stock_image"]
    calls = (tmp_path / "calls").read_text().splitlines()
    assert f"pull --quiet {stock}" in calls
    config = (workshop.work / "kind/config.yaml").read_text()
    assert "disableDefaultCNI" not in config
    assert "imageRepository" not in config
    # kind itself meets the stand-in, which can make no cluster: its reason is shown.
    assert played.code != 0
    assert "kind could not create the cluster" in played.failure
    assert workshop.play("down.yml", env=env).code == 0


def test_official_image_is_the_one_that_this_release_of_kind_names() -> None:
    pin = yaml.safe_load((ROOT / "roles/cluster/vars/main.yml").read_text())["cluster_versions"]["kind"]
    named = CACHE / f"go/mod/sigs.k8s.io/kind@{pin}/pkg/apis/config/defaults/image.go"
    if not named.is_file():
        pytest.skip("kind was not built here, so its source is not in the cache")
    stock = yaml.safe_load((ROOT / "roles/cluster/vars/kind.yml").read_text())["cluster_kind_stock_image"]
    assert f'"{stock}"' in named.read_text()
