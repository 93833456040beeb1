"""Who the scheduler is to the API server, and how it notices that its token was renewed."""

import pytest
import yaml
from turb_kub.api import credentials as module
from turb_kub.api.credentials import REREAD_AFTER, load_credentials
from turb_kub.api.errors import CredentialsError


class Clock:
    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.fixture(autouse=True)
def outside_a_cluster(monkeypatch):
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)


def kubeconfig(folder, **user):
    config = {
        "current-context": "one",
        "contexts": [
            {"name": "one", "context": {"cluster": "c", "user": "u"}},
            {"name": "two", "context": {"cluster": "d", "user": "u"}},
        ],
        "clusters": [
            {"name": "c", "cluster": {"server": "http://127.0.0.1:1001/"}},
            {"name": "d", "cluster": {"server": "http://127.0.0.1:1002"}},
        ],
        "users": [{"name": "u", "user": user}],
    }
    path = folder / "config"
    path.write_text(yaml.safe_dump(config))
    return str(path)


async def token(found):
    return await found.authorization()


async def test_the_context_says_which_server(tmp_path):
    path = kubeconfig(tmp_path, token="t")
    assert (await load_credentials(path, None)).server == "http://127.0.0.1:1001"
    assert (await load_credentials(path, "two")).server == "http://127.0.0.1:1002"


async def test_the_environment_may_name_the_file(tmp_path, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", kubeconfig(tmp_path, token="t"))
    assert await token(await load_credentials(None, None)) == "Bearer t"


async def test_a_token_file_is_read_again_after_a_minute_and_no_sooner(tmp_path, clock):
    file = tmp_path / "token"
    file.write_text("first")
    found = await load_credentials(kubeconfig(tmp_path, tokenFile="token"), None)
    file.write_text("second")
    clock.now += REREAD_AFTER - 1
    assert await token(found) == "Bearer first"
    clock.now += 2
    assert await token(found) == "Bearer second"


async def test_a_line_break_at_the_end_of_a_token_file_is_not_part_of_the_token(tmp_path):
    (tmp_path / "token").write_text("first\n")
    found = await load_credentials(kubeconfig(tmp_path, tokenFile="token"), None)
    assert await token(found) == "Bearer first"


@pytest.mark.parametrize("text", ["gar\nbage", "gar\0bage", "gar\tbage", "gärbage"])
async def test_a_token_that_no_header_may_hold_is_not_taken(tmp_path, clock, text):
    file = tmp_path / "token"
    file.write_text("first")
    found = await load_credentials(kubeconfig(tmp_path, tokenFile="token"), None)
    file.write_text(text)
    clock.now += REREAD_AFTER + 1
    assert await token(found) == "Bearer first"
    with pytest.raises(CredentialsError, match="characters that no token has"):
        await load_credentials(kubeconfig(tmp_path, tokenFile="token"), None)


async def test_after_a_401_a_token_file_is_read_at_once(tmp_path):
    file = tmp_path / "token"
    file.write_text("first")
    found = await load_credentials(kubeconfig(tmp_path, tokenFile="token"), None)
    file.write_text("second")
    await found.refresh()
    assert await token(found) == "Bearer second"


async def test_a_token_file_that_is_gone_leaves_the_old_token_in_use(tmp_path, clock):
    file = tmp_path / "token"
    file.write_text("first")
    found = await load_credentials(kubeconfig(tmp_path, tokenFile="token"), None)
    file.unlink()
    clock.now += REREAD_AFTER + 1
    assert await token(found) == "Bearer first"
    file.write_text("second")
    clock.now += REREAD_AFTER + 1
    assert await token(found) == "Bearer second"


async def test_in_a_cluster_the_pods_own_identity_is_taken_and_read_again(tmp_path, monkeypatch, clock):
    from kubernetes.aio.config import incluster_config
    from turb_kub.api import credentials

    (tmp_path / "token").write_text("first")
    (tmp_path / "ca.crt").write_text("a certificate")
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    monkeypatch.setattr(credentials, "_ssl_context", lambda identity: None)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    found = await load_credentials(None, None)
    assert found.server == "https://10.0.0.1:443"
    assert (await token(found)).lower() == "bearer first"
    (tmp_path / "token").write_text("second")
    clock.now += REREAD_AFTER + 1
    assert (await token(found)).lower() == "bearer second"


async def test_outside_a_cluster_nothing_is_taken_by_accident(monkeypatch, tmp_path):
    (tmp_path / ".kube").mkdir()
    kubeconfig(tmp_path / ".kube", token="t")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(CredentialsError, match="name a kubeconfig file"):
        await load_credentials(None, None)


async def test_certificates_that_are_none(tmp_path):
    path = kubeconfig(tmp_path, token="t")
    config = yaml.safe_load((tmp_path / "config").read_text())
    (tmp_path / "ca.crt").write_text("rubbish")
    config["clusters"][0]["cluster"] = {"server": "https://127.0.0.1:1", "certificate-authority": "ca.crt"}
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    with pytest.raises(CredentialsError, match="certificates of the kubeconfig could not be read"):
        await load_credentials(path, None)
