"""The role `image` on kind: with the real Docker engine and nodes that are played, and on bad days with both played."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.ansible.conftest import ROOT, Played, Workshop
from tests.ansible.engine import docker, require_docker

NODES = ["test-control-plane", "test-worker"]
#: A name of its own, so that no image of a user is touched.
IMAGE = "turb-kub-test-image"


class Yard:
    """A cluster of kind that is played: its nodes are folders with a file for each image.

    Of docker only `exec` is played, and what a test says besides; `kind load` notes the image on the nodes it names.
    """

    def __init__(self, workshop: Workshop, also: str = "") -> None:
        self.workshop = workshop
        self.folder = workshop.folder / "yard"
        for node in NODES:
            (self.folder / "nodes" / node).mkdir(parents=True)
        real = shutil.which("docker") or "false"
        self.program(
            "docker",
            f"""case "$1 $2" in
            {also}
            exec*)
                [ -d {self.folder}/nodes/"$2" ] || {{ echo "Error: No such container: $2" >&2; exit 1; }}
                [ -e {self.folder}/nodes/"$2/$5" ] && exit 0
                echo "FATA[0000] no such image \\"$5\\" present" >&2; exit 1 ;;
            esac
            exec {real} "$@" """,
        )
        self.program(
            "kind",
            f"""for argument; do case $argument in --nodes=*) nodes=${{argument#--nodes=}} ;; esac; done
            for node in $(echo "$nodes" | tr , ' '); do touch {self.folder}/nodes/"$node/$3"; done""",
        )
        workshop.defaults |= {
            "image_name": IMAGE,
            "image_base": "debootstrap",
            # Not the user's, which a build of ours would replace.
            "_image_built_archive": str(self.folder / "kept.tar"),
            "cluster_record": {
                "provider": "kind",
                "cluster_name": "test",
                "nodes": NODES,
                "docker": str(self.folder / "docker"),
                "docker_shim": "",
                "kind": str(self.folder / "kind"),
            },
        }

    def program(self, name: str, script: str) -> None:
        """Put a program there that notes how it is called."""
        path = self.folder / name
        path.write_text(f'#!/bin/sh\necho {name} "$@" >>{self.folder}/calls\n{script}\n')
        path.chmod(0o755)

    def calls(self) -> list[str]:
        """How the programs were called since the last time that this was asked, without the questions to nodes."""
        file = self.folder / "calls"
        lines = file.read_text().splitlines() if file.exists() else []
        file.unlink(missing_ok=True)
        return [line for line in lines if not line.startswith("docker exec")]

    def images(self) -> dict[str, list[str]]:
        return {node: sorted(path.name for path in (self.folder / "nodes" / node).iterdir()) for node in NODES}

    def play(self, *arguments: str, **variables: Any) -> Played:
        return self.workshop.play("image.yml", *arguments, patience=600, **variables)


# -- the real engine ---------------------------------------------------------------------------------------------------


class Built:
    """The image, built once for the tests that follow."""

    def __init__(self, yard: Yard, played: Played) -> None:
        self.yard = yard
        self.played = played
        self.reference = str(played.answer("Name the image after its source")["ansible_facts"]["image_reference"])
        self.base = str(played.answer("Take it as the base")["ansible_facts"]["_image_base_reference"])

    def run(self, *command: str) -> str:
        """What a command says in it, as restricted as in the cluster and without any network."""
        limits = ["--rm", "--read-only", "--user=65532", "--cap-drop=ALL", "--network=none"]
        return docker("run", *limits, "--security-opt=no-new-privileges", self.reference, *command)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Built]:
    require_docker()
    if os.geteuid() != 0 and not os.environ.get("REQUIRE_DOCKER"):
        pytest.skip("the base is made by debootstrap, which needs root")
    yard = Yard(Workshop(tmp_path_factory.mktemp("image"), "turb-kub-test-image"))
    try:
        played = yard.play()
        assert played.code == 0, played.output
        yield Built(yard, played)
    finally:
        yard.workshop.play("image_down.yml")


def test_image_comes_to_every_node_and_its_size_is_told(built: Built) -> None:
    assert built.yard.images() == {node: [built.reference] for node in NODES}
    inspected = [
        int(docker("image", "inspect", "--format", "{{.Size}}", name)) for name in (built.reference, built.base)
    ]
    over = (inspected[0] - inspected[1]) / 1e6
    assert 0 < over <= 220
    assert f"{over:.0f} MB over its base {built.base}" in built.played.answer("Say how large it is")["msg"]


def test_scheduler_runs_without_root_network_or_a_place_to_write(built: Built) -> None:
    assert built.run("turb-kub", "version") == "turb-kub 0.1.0"
    assert built.run("id", "-u") == "65532"
    modules = "import turb_kub.cli.run, turb_kub.cli.status, numpy, uvloop, kubernetes.client.models.v1_pod"
    assert built.run("python3", "-c", f"{modules}; print(numpy.arange(3).sum())") == "3"
    policies = (
        "from importlib.metadata import entry_points as e; print(*(p.name for p in e(group='turb_kub.policies')))"
    )
    assert built.run("python3", "-c", policies) == "least-requested-memory"


def test_image_says_what_it_is(built: Built) -> None:
    config = json.loads(docker("image", "inspect", "--format", "{{json .Config}}", built.reference))
    project = (ROOT / "scheduler/pyproject.toml").read_text()
    labels = {name.removeprefix("org.opencontainers.image."): value for name, value in config["Labels"].items()}
    assert f'version = "{labels.pop("version")}"' in project
    assert f'description = "{labels.pop("description")}"' in project
    assert f'license = "{labels.pop("licenses")}"' in project
    assert labels == {
        "title": "turb-kub",
        "source": yaml.safe_load((ROOT / "galaxy.yml").read_text())["repository"],
        "revision": built.reference.split(":")[1],
        "base.name": built.base,
    }
    assert (config["User"], config.get("Entrypoint"), config["Cmd"]) == ("65532:65532", None, ["turb-kub", "run"])


def test_nothing_of_the_build_and_of_this_machine_is_left(built: Built) -> None:
    script = r"""
        for program in cc gcc g++ make pip pip3 debootstrap; do command -v $program; done
        find / -xdev \( -name '*.whl' -o -name 'pip-*' -o -path '*/.cache/*' -o -path '/build*' -o -path '/own*' \)
        ls /var/lib/apt/lists /var/cache/apt /var/log /tmp /root 2>/dev/null | grep -v ':$'
        cat /etc/apt/sources.list.d/* 2>/dev/null; ls /etc/apt/apt.conf.d | grep turb-kub
        true"""
    assert built.run("sh", "-c", script).split() == []
    sources = built.run("cat", "/etc/apt/sources.list").splitlines()
    assert {line.split()[2] for line in sources} == {
        "http://deb.debian.org/debian",
        "http://deb.debian.org/debian-security",
    }


def test_what_runs_is_compiled_since_it_could_not_be_later(built: Built) -> None:
    script = """
import sys, turb_kub.cli.run
from pathlib import Path
found = [m for m in sys.modules.values() if hasattr(m, '__cached__') and str(m.__file__).endswith('.py')]
files = {m.__file__: Path(m.__cached__) for m in found}
print(len(files) > 300, 'not compiled:', *(name for name, compiled in files.items() if not compiled.exists()))
print('compiled by hash:', int.from_bytes(files[turb_kub.cli.run.__file__].read_bytes()[4:8], 'little'))
"""
    assert built.run("python3", "-c", script) == "True not compiled:\ncompiled by hash: 1"


def test_second_run_changes_nothing_and_only_asks_the_nodes(built: Built) -> None:
    built.yard.calls()
    again = built.yard.play()
    assert again.code == 0, again.output
    assert again.changes() == []
    assert built.yard.calls() == []


def test_node_that_lost_it_gets_it_again_and_no_other_does(built: Built) -> None:
    (built.yard.folder / "nodes" / NODES[1] / built.reference).unlink()
    built.yard.calls()
    again = built.yard.play()
    assert again.changes() == [f"image : provider_kind | Load it to {NODES[1]}"]
    assert [call for call in built.yard.calls() if call.startswith("kind")] == [
        f"kind load docker-image {built.reference} --name=test --nodes={NODES[1]}"
    ]


def test_engine_that_lost_it_gets_it_from_the_cache(built: Built) -> None:
    docker("image", "rm", "--force", built.reference)
    (built.yard.folder / "nodes" / NODES[0] / built.reference).unlink()
    built.yard.calls()
    again = built.yard.play()
    assert again.code == 0, again.output
    assert not [call for call in built.yard.calls() if call.startswith("docker build")]
    assert built.run("turb-kub", "version") == "turb-kub 0.1.0"
    assert built.yard.images() == {node: [built.reference] for node in NODES}


@pytest.mark.parametrize("sums", ["as they were", "made to fit"])
def test_wheel_that_was_tampered_with_fails_the_build(built: Built, tmp_path: Path, sums: str) -> None:
    context = shutil.copytree(built.yard.workshop.work / "image/context", tmp_path / "context")
    (wheel,) = (context / "wheels").glob("pluggy-*.whl")
    with wheel.open("ab") as file:
        file.write(b"\n")
    if sums == "made to fit":
        digest = subprocess.run(["sha256sum", wheel], capture_output=True, text=True, check=True).stdout.split()[0]
        listing = context / "wheels/SHA256SUMS"
        rest = [line for line in listing.read_text().splitlines() if wheel.name not in line]
        listing.write_text("\n".join([*rest, f"{digest}  {wheel.name}", ""]))
    command = ["docker", "build", "--network=none", "--force-rm", str(context)]
    build = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if steps := re.findall(r"^ ---> ([0-9a-f]{12})$", build.stdout, re.MULTILINE):
        docker("image", "rm", steps[-1])  # the legacy builder leaves what it had
    assert build.returncode != 0
    said = build.stdout + build.stderr
    if sums == "made to fit":
        assert "THESE PACKAGES DO NOT MATCH THE HASHES" in said
    else:
        assert "turb-kub: a wheel is not the one that the lock names" in said


def test_teardown_removes_what_was_made_and_nothing_else(built: Built) -> None:
    docker("tag", built.base, "example.com/of-somebody:1")
    try:
        played = built.yard.workshop.play("image_down.yml")
        assert played.code == 0, played.output
        assert docker("image", "ls", "--quiet", IMAGE) == ""
        revision = built.reference.split(":")[1]
        assert docker("image", "ls", "--all", "--quiet", f"--filter=label=turb-kub.io/revision={revision}") == ""
        assert docker("image", "ls", "--quiet", "example.com/of-somebody:1") != ""
        assert built.yard.workshop.play("image_down.yml").changes() == []
    finally:
        docker("image", "rm", "example.com/of-somebody:1")


# -- bad days ----------------------------------------------------------------------------------------------------------

#: Answers of an engine that has nothing and can get nothing.
OFFLINE = """"image inspect") echo "Error: No such image: $5" >&2; exit 1 ;;
    pull*) echo "Error response from daemon: dial tcp: lookup registry.example.com: no such host" >&2; exit 1 ;;
    load*) exit 0 ;;"""


@pytest.fixture
def yard(workshop: Workshop) -> Callable[[str], Yard]:
    return lambda also: Yard(workshop, also)


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"image_transport": "build"}, "image_transport is build, but nodes of kind have nothing to build with"),
        ({"image_python": "3"}, 'image_python is "3", but has to be a version such as 3.13, or empty.'),
        ({"image_base": "-v /:/host"}, 'image_base is "-v /:/host", but has to be the name of an image'),
        ({"cluster_provider_used": "existing"}, "image_existing_reference is empty, but nothing is brought to nodes"),
    ],
)
def test_setting_that_can_not_be_is_one_sentence(yard, variables: dict[str, Any], says: str) -> None:
    played = yard("").play(**variables)
    assert played.code != 0
    assert says in played.output.replace('\\"', '"')


def test_existing_cluster_pulls_what_the_user_names(yard) -> None:
    place = yard("")
    played = place.play(cluster_provider_used="existing", image_existing_reference="registry.example.com/turb-kub:1")
    assert played.code == 0, played.output
    assert "they pull registry.example.com/turb-kub:1 themselves" in played.output
    assert place.calls() == []


def test_dry_run_says_what_it_would_do_and_does_not_do_it(yard) -> None:
    place = yard("")
    (place.folder / "nodes" / NODES[0] / "other:1").touch()
    played = place.play("--check")
    assert played.code == 0, played.output
    assert played.changes() == ["image : provider_kind | Say what would be done"]
    assert f"loaded to {', '.join(NODES)}." in played.answer("Say what would be done")["msg"]
    assert place.calls() == []


def test_dry_run_without_a_cluster_asks_nobody(yard) -> None:
    place = yard("")
    played = place.play("--check", cluster_available=False)
    assert played.code == 0, played.output
    assert "There is no cluster yet" in played.output
    assert not (place.folder / "calls").exists()


def test_engine_that_does_not_run_is_one_sentence(yard) -> None:
    played = yard('image*) echo "Cannot connect to the Docker daemon at unix:///nowhere." >&2; exit 1 ;;').play()
    assert played.failure == (
        "Docker on this machine can't be asked for the image: Cannot connect to the Docker daemon at unix:///nowhere."
    )


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        (
            {"image_base": "registry.example.com/base:1"},
            "The base registry.example.com/base:1 can't be pulled (Error response from daemon: dial tcp: lookup"
            " registry.example.com: no such host). Set image_base to an image that can, or to debootstrap to make one"
            " from Debian's packages.",
        ),
        (
            {"image_base": "python:3.13-slim", "_image_can_debootstrap": False},
            "The base python:3.13-slim can't be pulled (Error response from daemon: dial tcp: lookup"
            " registry.example.com: no such host), and making one from Debian's packages needs root and the program"
            " debootstrap. Install it and run the play as root, or set image_base to an image that can be pulled.",
        ),
    ],
    ids=["named", "default"],
)
def test_base_that_can_not_be_had_is_one_sentence(yard, variables: dict[str, Any], says: str) -> None:
    assert yard(OFFLINE).play(**variables).failure == says


def test_default_base_that_can_not_be_pulled_gives_way_to_debians_packages(yard, tmp_path: Path) -> None:
    archive = tmp_path / "base.tar"
    archive.write_bytes(b"made before")
    place = yard(OFFLINE + "\nrun*) echo 'exec: \"python3\": not found' >&2; exit 127 ;;")
    played = place.play(image_base="python:3.13-slim", _image_can_debootstrap=True, _image_debian_archive=str(archive))
    assert (
        "the image is built on Debian's own packages instead" in played.answer("Say that the default gives way")["msg"]
    )
    assert f"docker load --quiet --input {archive}" in place.calls()
    # And one that has no Python is one sentence.
    assert played.failure.startswith(
        "The scheduler can't run on the base localhost/turb-kub/base:debootstrap-bookworm-"
    )
    assert "not found. Set image_base to an image with Python 3.11 or newer and glibc" in played.failure


def test_failing_build_shows_its_own_output(yard, tmp_path: Path) -> None:
    archive = tmp_path / "base.tar"
    archive.write_bytes(b"made before")
    place = yard(
        OFFLINE + "\nrun*) echo 3.11.2 x86_64; exit 0 ;;"
        "\nbuild*) echo Step 3/9; echo 'no space left on device' >&2; exit 1 ;;"
    )
    played = place.play(_image_debian_archive=str(archive))
    assert played.failure.startswith(f"The image {IMAGE}:")
    assert played.failure.endswith(
        "could not be built. What the build says at its end:\nStep 3/9\nno space left on device"
    )
    assert place.images() == {node: [] for node in NODES}


def test_node_that_does_not_get_the_image_fails_the_play_by_name(yard) -> None:
    place = yard('"image inspect") echo sha256:0; exit 0 ;;')
    place.program("kind", f'touch {place.folder}/nodes/{NODES[0]}/"$3"; echo "ERROR: ctr: no space left" >&2; exit 1')
    played = place.play()
    assert played.code != 0
    assert played.failure.startswith(f"{NODES[1]} did not get the image {IMAGE}:")
    assert "What loading it said:\nERROR: ctr: no space left" in played.failure


def test_node_that_can_not_be_asked_fails_the_play_by_name(yard) -> None:
    place = yard("")
    (place.folder / "nodes" / NODES[1]).rmdir()
    played = place.play()
    assert played.code != 0
    assert f"The node {NODES[1]} can't be asked for its images: Error: No such container: {NODES[1]}" in played.output
