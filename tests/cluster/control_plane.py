"""A bare control plane for tests and the benchmark: etcd and kube-apiserver, and kube-scheduler where it is asked for.

There is no controller manager and no kubelet. So nodes are plain objects: nothing sets them Ready again, nothing taints
them, nothing binds claims or runs pods. What a test writes is the whole truth until it writes something else.

All listen on 127.0.0.1 on ports that were free, write into one folder, and are ended by their process ids, also when
one of them does not start, and by the kernel when whoever started them is killed.
"""

import base64
import ctypes
import json
import secrets
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

#: Seconds for a program to answer after its start; a loaded machine with two cores needs some ten for kube-apiserver.
PATIENCE = 90.0
#: Seconds to end by itself; none of them has anything to lose.
GRACE = 10.0

#: ServiceAccount waits for a controller's tokens; TaintNodesByCondition taints every new node not-ready, for a
#: controller to take away; StorageObjectInUseProtection has claims and volumes wait for a controller when deleted.
ADMISSION_OFF = ("ServiceAccount", "TaintNodesByCondition", "StorageObjectInUseProtection")

#: prctl(2): the signal that a process gets when its parent ends.
_PR_SET_PDEATHSIG = 1


class NotStarted(Exception):
    """A program ended or did not answer; the message has the end of its log."""


@dataclass(frozen=True)
class Process:
    """A running program and its log."""

    name: str
    process: "subprocess.Popen[bytes]"
    log: Path

    def check(self) -> None:
        """Raise `NotStarted` if it has ended."""
        if self.process.poll() is not None:
            raise NotStarted(f"{self.name} ended with {self.process.returncode}: {self.tail()}")

    def tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])

    def wait_until(self, ready: Callable[[], bool]) -> None:
        """Wait until it is ready. Raises `NotStarted` if it ends or takes too long."""
        deadline = time.monotonic() + PATIENCE
        while not ready():
            self.check()
            if time.monotonic() > deadline:
                raise NotStarted(f"{self.name} did not answer within {PATIENCE:.0f} s: {self.tail()}")
            time.sleep(0.02)


@dataclass(frozen=True)
class ControlPlane:
    """etcd and kube-apiserver, running.

    Attributes:
        server: URL of the API server.
        kubeconfig: of an administrator, who may do everything.
        folder: for logs and for what a test adds.
        programs: paths of the programs by name, kube-scheduler among them.
    """

    server: str
    kubeconfig: Path
    folder: Path
    programs: Mapping[str, str]
    etcd: Process
    api_server: Process

    @contextmanager
    def kube_scheduler(self, name: str = "kube-scheduler", port: int = 0, **configuration: Any) -> Iterator[Process]:
        """Run the real kube-scheduler beside, with these fields of KubeSchedulerConfiguration besides the usual ones.

        Without a port it is started, not ready: what it does next shows when it is. With one it has answered there that
        it knows all nodes and pods.
        """
        config = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            # Without its usual limit of 50 requests a second.
            "clientConnection": {"kubeconfig": str(self.kubeconfig), "qps": 10000, "burst": 10000},
            "leaderElection": {"leaderElect": False},
            **configuration,
        }
        file = self.folder / f"{name}.yaml"
        file.write_text(yaml.safe_dump(config))
        certificates = self.folder / f"{name}-certificates"
        arguments = [
            f"--config={file}",
            f"--secure-port={port}",
            "--bind-address=127.0.0.1",
            f"--cert-dir={certificates}",
        ]
        with running(name, [self.programs["kube-scheduler"], *arguments], self.folder) as process:
            if port:
                certificate = certificates / "kube-scheduler.crt"
                url = f"https://127.0.0.1:{port}/readyz"
                process.wait_until(lambda: certificate.exists() and answers(url, certificate=certificate))
            yield process


@contextmanager
def control_plane(folder: Path, programs: Mapping[str, str]) -> Iterator[ControlPlane]:
    """Run etcd and kube-apiserver in a folder of their own until the block is left.

    Args:
        programs: paths by name, at least of etcd and kube-apiserver.

    Raises:
        NotStarted: one of them can't be started.
    """
    etcd_port, peer_port, port = free_ports(3)
    token = secrets.token_hex(16)
    (folder / "tokens.csv").write_text(f"{token},admin,admin,system:masters\n")
    (folder / "service-accounts.key").write_text(_private_key())
    etcd_url, server = f"http://127.0.0.1:{etcd_port}", f"https://127.0.0.1:{port}"
    with ExitStack() as stack:
        etcd = stack.enter_context(
            running(
                "etcd",
                [
                    programs["etcd"],
                    f"--data-dir={folder / 'etcd'}",
                    f"--listen-client-urls={etcd_url}",
                    f"--advertise-client-urls={etcd_url}",
                    f"--listen-peer-urls=http://127.0.0.1:{peer_port}",
                    f"--initial-advertise-peer-urls=http://127.0.0.1:{peer_port}",
                    f"--initial-cluster=default=http://127.0.0.1:{peer_port}",
                    "--unsafe-no-fsync",
                ],
                folder,
            )
        )
        etcd.wait_until(lambda: answers(f"{etcd_url}/health"))
        api_server = stack.enter_context(
            running(
                "kube-apiserver",
                [
                    programs["kube-apiserver"],
                    f"--etcd-servers={etcd_url}",
                    "--bind-address=127.0.0.1",
                    "--advertise-address=127.0.0.1",
                    f"--secure-port={port}",
                    f"--cert-dir={folder / 'certificates'}",
                    f"--token-auth-file={folder / 'tokens.csv'}",
                    "--authorization-mode=RBAC",
                    "--service-account-issuer=https://kubernetes.default.svc",
                    f"--service-account-key-file={folder / 'service-accounts.key'}",
                    f"--service-account-signing-key-file={folder / 'service-accounts.key'}",
                    "--service-cluster-ip-range=10.0.0.0/24",
                    "--endpoint-reconciler-type=none",
                    "--delete-collection-workers=8",
                    f"--disable-admission-plugins={','.join(ADMISSION_OFF)}",
                ],
                folder,
            )
        )
        # It makes its certificate at the start, with the authority's behind it.
        certificate = folder / "certificates/apiserver.crt"
        api_server.wait_until(lambda: certificate.exists() and answers(f"{server}/readyz", token, certificate))
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(_kubeconfig(server, token, certificate))
        yield ControlPlane(server, kubeconfig, folder, programs, etcd, api_server)


@contextmanager
def running(name: str, command: list[str], folder: Path, cwd: Path | None = None) -> Iterator[Process]:
    """Run a program that ends with the block, or with this process.

    Its log goes into the folder, where it runs too unless `cwd` says another.
    """
    log = folder / f"{name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=cwd or folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            preexec_fn=end_with_parent,  # noqa: PLW1509 - it makes one system call
        )
    try:
        yield Process(name, process, log)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def end_with_parent() -> None:
    """Have this process, just forked, killed when its parent ends in whatever way, SIGKILL among them (Linux only)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def free_ports(count: int) -> list[int]:
    """Ports on which nobody listens, each another one."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


def answers(url: str, token: str = "", certificate: Path | None = None) -> bool:
    """Whether a URL is answered with 200."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        context = None if certificate is None else ssl.create_default_context(cafile=certificate)
        if context is not None:
            # What kube-apiserver makes for itself lacks what strict verification (Python 3.13) asks for.
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        with urllib.request.urlopen(request, timeout=5, context=context) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def _private_key() -> str:
    """A key for the tokens of service accounts: an ECPrivateKey of RFC 5915, curve P-256, without its public half."""
    # Less than 2^255, and so less than the curve's order.
    number = bytes([secrets.randbelow(128), *secrets.token_bytes(31)])
    der = bytes.fromhex("30310201010420") + number + bytes.fromhex("a00a06082a8648ce3d030107")
    return f"-----BEGIN EC PRIVATE KEY-----\n{base64.b64encode(der).decode()}\n-----END EC PRIVATE KEY-----\n"


def _kubeconfig(server: str, token: str, certificate: Path) -> str:
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "bare",
            "clusters": [{"name": "bare", "cluster": {"server": server, "certificate-authority": str(certificate)}}],
            "users": [{"name": "admin", "user": {"token": token}}],
            "contexts": [{"name": "bare", "context": {"cluster": "bare", "user": "admin"}}],
        }
    )
