"""What is read from a kubeconfig, and that reading it in a child process tells the same and leaves nothing behind."""

import asyncio
import base64
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import yaml
from turb_kub.api import identity as module
from turb_kub.api.credentials import load_credentials
from turb_kub.api.errors import CredentialsError
from turb_kub.api.identity import Identity, read, read_in_child

from tests.api.running import until

PLUGIN = """#!/bin/sh
echo "asking the cloud" >&2
echo again >>"$0.count"
cat <<EOF
{}
EOF
"""
TOKEN = """{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "t"}}"""


@pytest.fixture(autouse=True)
def outside_a_cluster(monkeypatch):
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)


def plugin(folder, prints):
    path = folder / "plugin"
    path.write_text(PLUGIN.format(prints))
    path.chmod(0o755)
    return {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": str(path),
        "interactiveMode": "Never",
    }


def kubeconfig(folder, user, **cluster):
    config = {
        "current-context": "one",
        "contexts": [{"name": "one", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1001/", **cluster}}],
        "users": [{"name": "u", "user": user}],
    }
    path = folder / "config"
    path.write_text(yaml.safe_dump(config))
    return str(path)


def data(text):
    return base64.b64encode(text.encode()).decode()


SERVER = "https://127.0.0.1:1001"
GOOD = {
    "nothing": ({"x": 1}, {}, Identity(SERVER)),
    "inline": (
        {"client-certificate-data": data("cert\n"), "client-key-data": data("key\n")},
        {"certificate-authority-data": data("ca\n")},
        Identity(SERVER, ca="ca\n", certificate="cert\n", key="key\n"),
    ),
    "files": (
        {"client-certificate": "sub/cert", "client-key": "sub/key"},
        {"certificate-authority": "sub/ca"},
        Identity(SERVER, ca="a ca", certificate="a cert", key="a key"),
    ),
    "token": ({"token": "t"}, {}, Identity(SERVER, token="Bearer t")),
    "a number for a token": ({"token": 12}, {}, Identity(SERVER, token="Bearer 12")),
    "token file": ({"tokenFile": "sub/token"}, {}, Identity(SERVER, token="Bearer a token", token_file="sub/token")),
    "password": ({"username": "a", "password": "b"}, {}, Identity(SERVER, token="Basic YTpi")),
    "not verified": ({"token": "t"}, {"insecure-skip-tls-verify": True}, Identity(SERVER, "Bearer t", verify=False)),
    "another name": ({"token": "t"}, {"tls-server-name": "n"}, Identity(SERVER, "Bearer t", server_name="n")),
    "plugin": (TOKEN, {}, Identity(SERVER, token="Bearer t")),
    "plugin with a certificate": (
        TOKEN.replace('"token": "t"', '"clientCertificateData": "c", "clientKeyData": "k"'),
        {},
        Identity(SERVER, certificate="c", key="k"),
    ),
}
NO_PLUGIN = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "/none/such"}}
BAD = {
    "plugin with noise": (f"noise\n{TOKEN}", {}, "failed to decode process output"),
    "plugin that fails": ("{}\nEOF\necho no login >&2\nexit 3\ncat <<EOF", {}, "returned 3.*no login"),
    "plugin without a token": (TOKEN.replace("token", "other"), {}, "missing token"),
    "no such plugin": (NO_PLUGIN, {}, "/none/such"),
    "no such file": ({"token": "t"}, {"certificate-authority": "none"}, "none"),
    "no such token file": ({"tokenFile": "none"}, {}, "none"),
    "a number for a server": ({"token": "t"}, {"server": 5}, "int"),
    "a list for a server": ({"token": "t"}, {"server": [1]}, "."),
    "not base64": ({"token": "t"}, {"certificate-authority-data": "a"}, "."),
    "not text": ({"token": "t"}, {"certificate-authority-data": base64.b64encode(b"\xff").decode()}, "decode"),
    "a token of two lines": ({"token": "a\nb"}, {}, "characters that no token has"),
    "a proxy": ({"token": "t"}, {"proxy-url": "http://me:secret@127.0.0.1:1"}, r"no proxy \(proxy-url\): name"),
    "a text for a user": ("", {}, "."),
}


def written(folder, user, cluster, name):
    (folder / "sub").mkdir()
    for file in ("cert", "key", "ca", "token"):
        (folder / "sub" / file).write_text(f"a {file}")
    if name == "a text for a user":
        user = "text"
    elif isinstance(user, str):
        user = {"exec": plugin(folder, user)}
    return kubeconfig(folder, user, **cluster)


def told_by_child(capsys, monkeypatch, *arguments):
    """What the child process would tell: its `main`, without the seconds that another Python takes."""
    monkeypatch.setattr(sys, "argv", ["identity", *arguments])
    module.main()
    return module._identity_of(capsys.readouterr().out.encode().strip().rpartition(b"\n")[2])


@pytest.mark.parametrize("name", GOOD)
def test_what_a_kubeconfig_says(name, tmp_path, capsys, monkeypatch):
    user, cluster, expected = GOOD[name]
    path = written(tmp_path, user, cluster, name)
    found = asyncio.run(read(path, None))
    if expected.token_file:
        assert found.token_file == str(tmp_path / expected.token_file)
        found = Identity(**{**vars_of(found), "token_file": expected.token_file})
    assert found == expected
    assert told_by_child(capsys, monkeypatch, path, "one") == asyncio.run(read(path, None))


def vars_of(identity):
    return {name: getattr(identity, name) for name in identity.__struct_fields__}


@pytest.mark.parametrize("name", BAD)
def test_what_a_kubeconfig_can_not_say(name, tmp_path, capsys, monkeypatch):
    user, cluster, why = BAD[name]
    path = written(tmp_path, user, cluster, name)
    with pytest.raises(CredentialsError, match=why) as told:
        asyncio.run(read(path, None))
    assert "\n" not in str(told.value)
    with pytest.raises(CredentialsError) as told_too:
        told_by_child(capsys, monkeypatch, path, "")
    assert str(told_too.value) == str(told.value)
    assert not capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "[]", "text", "5", "{", "a: \t b", "users: 5", "clusters: [5]", "\xff"])
def test_a_file_that_is_no_kubeconfig(text, tmp_path, capsys, monkeypatch):
    path = tmp_path / "config"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(CredentialsError, match=r"^kubeconfig .* could not be used: .") as told:
        told_by_child(capsys, monkeypatch, str(path), "")
    assert "\n" not in str(told.value)


def test_a_context_that_is_not_there(tmp_path):
    with pytest.raises(CredentialsError, match=r"context none could not be used: .*none"):
        asyncio.run(read(kubeconfig(tmp_path, {"token": "t"}), "none"))


def test_in_a_cluster(tmp_path, capsys, monkeypatch):
    from kubernetes.aio.config import incluster_config

    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    with pytest.raises(CredentialsError, match=r"in-cluster identity could not be read: .*token"):
        told_by_child(capsys, monkeypatch, "", "")
    (tmp_path / "token").write_text("t\n")
    (tmp_path / "ca.crt").write_text("ca")
    expected = Identity("https://[fd00::1]:443", "bearer t", str(tmp_path / "token"), "ca")
    assert asyncio.run(read(None, None)) == expected
    assert told_by_child(capsys, monkeypatch, "", "") == expected


# -- the real child --


async def test_a_child_tells_the_same_whatever_lies_in_the_folder(tmp_path, monkeypatch):
    cluster = {"certificate-authority-data": data("ca\n"), "tls-server-name": "n"}
    path = kubeconfig(tmp_path, {"exec": plugin(tmp_path, TOKEN)}, **cluster)
    # A folder that happens to have a file of that name is not where packages come from.
    (tmp_path / "yaml.py").write_text("raise SystemExit(1)")
    monkeypatch.chdir(tmp_path)
    assert await read_in_child(path, None) == await read(path, None)


def program(folder, text):
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("text", ["exit 1", "echo rubbish", "echo '{\"identity\": 5}'"])
async def test_a_child_that_fails_is_told_in_one_sentence(text, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", program(tmp_path, text))
    with pytest.raises(CredentialsError, match="the process that reads the kubeconfig failed: "):
        await read_in_child("x", None)


async def test_a_child_that_cannot_be_started(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))
    with pytest.raises(CredentialsError, match="the process that reads the kubeconfig failed: "):
        await read_in_child("x", None)


async def test_what_else_a_child_prints_does_not_matter(tmp_path, monkeypatch):
    line = '{"identity": {"server": "https://h"}}'
    monkeypatch.setattr(sys, "executable", program(tmp_path, f"echo noise; echo; echo '{line}'; echo noise >&2"))
    assert await read_in_child("x", None) == Identity("https://h")


@pytest.mark.parametrize("how", ["cancelled", "timed out"])
async def test_a_child_that_hangs_is_ended_with_its_plugin(how, tmp_path, monkeypatch):
    pids = tmp_path / "pids"
    hangs = f"sleep 600 & echo $$ $! >{pids}.new; mv {pids}.new {pids}; wait"
    monkeypatch.setattr(sys, "executable", program(tmp_path, hangs))
    if how == "cancelled":
        task = asyncio.create_task(read_in_child("x", None))
        await until(pids.exists)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    else:
        monkeypatch.setattr(module, "PATIENCE", 0.3)
        with pytest.raises(CredentialsError, match="took longer than"):
            await read_in_child("x", None)
        if not pids.exists():
            return  # ended before it began
    for pid in pids.read_text().split():
        await until(partial(gone, int(pid)))


def gone(pid):
    """Whether a process has ended, waited for or not."""
    try:
        os.kill(pid, 0)
        return "State:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except (ProcessLookupError, FileNotFoundError):
        return True


def test_the_scheduler_does_not_load_what_only_the_child_needs():
    code = (
        "import sys, turb_kub.cli.run; "
        "print(*sorted(sys.modules.keys() & {'kubernetes', 'aiohttp', 'turb_kub.api.identity'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["turb_kub.api.identity"]


# -- renewed --


async def test_after_a_401_a_plugin_is_asked_anew_and_once_for_all_who_wait(tmp_path):
    path = kubeconfig(tmp_path, {"exec": plugin(tmp_path, TOKEN)})
    found = await load_credentials(path, None)
    assert await found.authorization() == "Bearer t"
    plugin(tmp_path, TOKEN.replace('"t"', '"u"'))
    await asyncio.gather(*(found.refresh() for _ in range(20)))
    assert await found.authorization() == "Bearer u"
    assert (tmp_path / "plugin.count").read_text().split() == ["again"] * 2
    plugin(tmp_path, "rubbish")
    await found.refresh()
    assert await found.authorization() == "Bearer u"


async def test_who_stops_waiting_for_a_new_token_does_not_stop_the_others():
    reading, go_on = asyncio.Event(), asyncio.Event()
    started = 0

    async def reader(kubeconfig, context):
        nonlocal started
        started += 1
        if started > 1:
            reading.set()
            await go_on.wait()
        return Identity("http://h", f"Bearer {started}")

    found = await load_credentials(__file__, None, reader)
    first, second = (asyncio.create_task(found.refresh()) for _ in range(2))
    await reading.wait()
    first.cancel()
    await asyncio.wait([first])
    go_on.set()
    await second
    assert started == 2
    assert await found.authorization() == "Bearer 2"


async def test_an_empty_token_file_leaves_the_old_token_in_use(tmp_path):
    (tmp_path / "token").write_text("first")
    found = await load_credentials(kubeconfig(tmp_path, {"tokenFile": "token"}), None)
    (tmp_path / "token").write_text("\n")
    await found.refresh()
    assert await found.authorization() == "Bearer first"
