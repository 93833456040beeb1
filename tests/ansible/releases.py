"""A server of releases for the tests: files laid out as their publishers do, and what was asked for."""

import hashlib
import http.server
import io
import platform
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import yaml

from tests.ansible.conftest import ROOT

VERSIONS: dict[str, str] = yaml.safe_load((ROOT / "roles/cluster/vars/main.yml").read_text())["cluster_versions"]
ARCH = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
SOURCES = {
    "etcd": "etcd",
    "kube-apiserver": "kubernetes",
    "kube-controller-manager": "kubernetes",
    "kubectl": "kubernetes",
    "kwok": "kwok",
    "kwokctl": "kwok",
}


def script(name: str, origin: str) -> bytes:
    """A program that reports the pinned version, and where it came from."""
    return f"#!/bin/sh\necho {name} {VERSIONS[SOURCES[name]]}\n# {origin}\n".encode()


def release(name: str) -> dict[str, bytes]:
    """The files of a program's release by path, with the checksum if its publisher gives one."""
    version = VERSIONS[SOURCES[name]]
    program = script(name, "downloaded")
    if name == "etcd":
        archive = io.BytesIO()
        folder = f"etcd-{version}-linux-{ARCH}"
        with tarfile.open(fileobj=archive, mode="w:gz") as tar:
            for member, data in {"README.md": b"text", "etcd": program, "etcdctl": b"#!/bin/sh\n"}.items():
                info = tarfile.TarInfo(f"{folder}/{member}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
        digest = hashlib.sha256(archive.getvalue()).hexdigest()
        sums = f"{'0' * 64}  etcd-{version}-linux-riscv64.tar.gz\n{digest}  {folder}.tar.gz\n"
        return {f"/etcd/{version}/{folder}.tar.gz": archive.getvalue(), f"/etcd/{version}/SHA256SUMS": sums.encode()}
    if SOURCES[name] == "kubernetes":
        path = f"/kubernetes/{version}/bin/linux/{ARCH}/{name}"
        # Only the sum, without a name and without a line's end.
        return {path: program, f"{path}.sha256": hashlib.sha256(program).hexdigest().encode()}
    return {f"/kwok/{version}/{name}-linux-{ARCH}": program}


class Releases(http.server.ThreadingHTTPServer):
    """A server of releases that remembers what it was asked for."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def urls(self) -> dict[str, str]:
        """The role's cluster_download_urls for this server."""
        return {source: f"{self.url}/{source}" for source in ("kubernetes", "etcd", "kwok", "minikube")}


class Answer(http.server.BaseHTTPRequestHandler):
    server: Releases

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        data = self.server.files.get(self.path)
        self.send_response(200 if data is not None else 404)
        self.send_header("Content-Length", str(len(data or b"")))
        self.end_headers()
        self.wfile.write(data or b"")

    def log_message(self, *args: Any) -> None:
        """Say nothing: the test looks at what was asked."""


@contextmanager
def serving() -> Iterator[Releases]:
    """A server for as long as the context lasts."""
    with Releases() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()
