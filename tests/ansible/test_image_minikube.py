"""The image on Minikube: on every node or the play fails by the node's name. Minikube and Docker are stand-ins."""

import json
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from tests.ansible.conftest import Played, Workshop
from tests.ansible.minikube_double import Double, installed

BASE = "python:3.13-slim"


class Image:
    """A running profile of two nodes, and a source so small that its build needs no package."""

    def __init__(self, workshop: Workshop, double: Double) -> None:
        self.workshop, self.double = workshop, double
        self.source = workshop.folder / "source"
        (self.source / "src/turb_kub").mkdir(parents=True)
        (self.source / "src/turb_kub/__init__.py").write_text("")
        (self.source / "Dockerfile").write_text(f"ARG BASE={BASE}\nFROM $BASE\n")
        (self.source / "pyproject.toml").write_text('version = "1.0"\n')
        for name in ("requirements.txt", "requirements-build.txt"):
            (self.source / name).write_text("")
        self.path = workshop.folder / "path"
        self.path.mkdir()
        # Nothing else: a Docker of this machine would be asked in earnest.
        for name in ("chmod", "cp", "id", "ls", "mkdir", "mv", "rm", "sh", "sleep", "touch", "uname"):
            found = shutil.which(name)
            assert found
            (self.path / name).symlink_to(found)
        workshop.work.mkdir(parents=True)
        self.nodes = [workshop.name, f"{workshop.name}-m02"]
        double.run(
            "start", "--output=json", "--nodes=2", "--container-runtime=docker", "--wait=all", "-p", workshop.name
        )

    def docker(self) -> None:
        """A Docker on this machine that has every base, builds nothing that fails, and saves an image as its name."""
        script = (
            "case $1 in\n"
            'image) case "$*" in *turb-kub:*) test -e built || { echo No such image >&2; exit 1; } ;; esac\n'
            "echo 100; echo 1 ;;\n"
            "run) echo 3.13.1 x86_64 ;;\n"
            "build) touch built ;;\n"
            'save) echo "$4" >"$3" ;;\n'
            "esac\n"
        )
        (self.path / "docker").write_text(f"#!/bin/sh\ncd {self.workshop.folder}\n{script}")
        (self.path / "docker").chmod(0o755)

    def play(self, *arguments: str, **variables: Any) -> Played:
        record = {
            "provider": "minikube",
            "minikube": str(self.double.program),
            "profile": self.workshop.name,
            "kubeconfig": str(self.workshop.work / "kubeconfig"),
            "nodes": self.nodes,
        }
        given = {
            "cluster_provider_used": "minikube",
            "cluster_record": record,
            "cluster_cache_dir": str(self.workshop.folder / "cache"),
            "image_context_dir": str(self.source),
        }
        return self.workshop.play("image.yml", *arguments, env={"PATH": str(self.path)}, **(given | variables))

    def on(self, node: str) -> list[str]:
        """The images of ours on a node."""
        images = self.double.profile(self.workshop.name).get("images", {}).get(node, {})
        return sorted(name for name in images if name.startswith(("turb-kub:", "localhost/")))


@pytest.fixture
def image(workshop: Workshop) -> Iterator[Image]:
    with installed(workshop.folder / "double") as double:
        yield Image(workshop, double)


def test_the_image_is_built_on_every_node_without_a_docker_here_and_then_left_alone(image: Image) -> None:
    dry = image.play("--check")
    assert (dry.code, image.double.mutations()) == (0, []), dry.output
    assert dry.changes() == ["image : provider_minikube | Say what would be done"]

    first = image.play()
    assert (first.code, image.double.mutations()) == (0, ["ssh", "ssh", "image build"]), first.output
    reference = first.answer("Name the image after its source")["ansible_facts"]["image_reference"]
    assert [image.on(node) for node in image.nodes] == [[reference]] * 2
    assert {call["kubeconfig"] for call in image.double.calls()} == {str(image.workshop.work / "kubeconfig")}

    image.double.forget()
    again = image.play()
    assert (again.code, again.changed, image.double.mutations()) == (0, 0, []), again.output


def test_a_build_that_fails_on_one_node_fails_by_its_name_with_its_output(image: Image) -> None:
    image.double.set(build_fails_on=[image.nodes[1]])
    played = image.play()
    assert played.code != 0
    assert played.failure.startswith(f"{image.nodes[1]} did not get the image turb-kub:")
    assert played.failure.splitlines()[-1] == "The command '/bin/sh -c false' returned a non-zero code: 1"


def test_a_node_that_is_stopped_is_named(image: Image) -> None:
    image.double.run("node", "stop", "m02", "-p", image.workshop.name)
    played = image.play()
    assert played.code != 0
    assert f"The node {image.nodes[1]} can't be asked for its images" in played.failure
    assert image.double.mutations() == []


def test_a_base_that_a_node_can_not_pull_is_loaded_by_a_tag_of_its_own(image: Image) -> None:
    image.docker()
    image.double.set(pull_fails_on=[image.nodes[1]])
    played = image.play()
    assert (played.code, image.double.mutations()) == (0, ["ssh", "ssh", "image load", "image build"]), played.output
    own = "localhost/turb-kub/base:python-3.13-slim"
    assert [own in image.on(node) for node in image.nodes] == [True, True]
    assert f"ARG BASE={own}\n" in (image.workshop.work / "image/context/Dockerfile").read_text()


def test_a_base_that_one_node_does_not_get_is_said(image: Image) -> None:
    image.docker()
    image.double.set(pull_fails_on=image.nodes, load_fails_on=[image.nodes[0]])
    played = image.play()
    assert f"{image.nodes[0]} did not get the base localhost/turb-kub/base:python-3.13-slim" in played.failure


def test_a_base_that_nobody_can_pull_is_said_with_what_to_do(image: Image) -> None:
    image.double.set(pull_fails_on=image.nodes)
    played = image.play(image_base="example.org/base:1", image_python="3.13")
    assert played.failure == (
        "The nodes can't pull the base example.org/base:1 (Error response from daemon: no route to the registry), and"
        " this machine has no Docker to pull it with. Set image_base to an image that the nodes can pull, or to"
        " debootstrap to make one from Debian's packages."
    )


def test_an_image_that_is_loaded_is_verified_too(image: Image) -> None:
    image.docker()
    played = image.play(image_transport="load")
    # Minikube exits with 0 although it did not find the image.
    assert played.failure.startswith(f"{' and '.join(image.nodes)} did not get the image turb-kub:")
    assert "was not found; unable to add it to cache" in played.failure

    reference = played.answer("Name the image after its source")["ansible_facts"]["image_reference"]
    image.double.set(host_images=[reference])
    played = image.play(image_transport="load")
    assert played.code == 0, json.dumps(played.failure)
    assert [image.on(node) for node in image.nodes] == [[reference]] * 2


def test_loading_needs_a_docker_here(image: Image) -> None:
    assert "There is no Docker on this machine to build the image with" in image.play(image_transport="load").failure
