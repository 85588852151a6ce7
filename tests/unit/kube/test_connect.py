"""Which cluster: as kubectl finds it, else the pod's own, else a sentence that says what to do."""

import pytest

from tests.support.http import write_kubeconfig
from upgrader.core.errors import ConfigurationError
from upgrader.kube.connect import Access, ApiServerLogin


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


async def server_of(login):
    await login.load()
    return (await login.access()).server


async def test_a_named_kubeconfig_comes_first(home, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", write_kubeconfig(home / "b", "https://b"))
    assert await server_of(ApiServerLogin(write_kubeconfig(home / "a", "https://a"))) == "https://a"
    assert await server_of(ApiServerLogin()) == "https://b"


async def test_the_usual_place_is_found(home):
    (home / ".kube").mkdir()
    write_kubeconfig(home / ".kube" / "config", "https://usual")
    assert await server_of(ApiServerLogin()) == "https://usual"


async def test_the_access_is_told_in_plain_words(home):
    login = ApiServerLogin(write_kubeconfig(home / "a", "https://a"))
    await login.load()
    assert await login.access() == Access(server="https://a", token="t0")  # noqa: S106 - of a stub


async def test_no_cluster_is_said(home):
    with pytest.raises(ConfigurationError, match="no cluster is configured") as raised:
        await ApiServerLogin().load()
    assert "upgrader dev up" in raised.value.resolution


@pytest.mark.parametrize(
    ("name", "context"), [("missing", None), ("broken", None), ("good", "no-such-context")], ids=str
)
async def test_a_kubeconfig_that_cannot_be_used_is_named(home, name, context):
    (home / "broken").write_text("clusters: {")
    write_kubeconfig(home / "good", "https://a")
    with pytest.raises(ConfigurationError, match=f"the kubeconfig {home / name} cannot be used") as raised:
        await ApiServerLogin(str(home / name), context).load()
    assert "--kubeconfig" in raised.value.resolution


@pytest.fixture
def pod(home, monkeypatch):
    """The folder of a pod's service account."""
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    (home / "ca.crt").write_text("a certificate")
    (home / "token").write_text("t0")
    return home


async def test_a_pod_uses_its_service_account(pod):
    login = ApiServerLogin(service_account=pod)
    await login.load()
    found = Access(server="https://10.0.0.1:443", ca_file=str(pod / "ca.crt"), token="t0")  # noqa: S106 - of a stub
    assert await login.access() == found


@pytest.mark.parametrize(
    ("token", "why"),
    [(b"", "Token file exists but empty."), (b"\xff", "a part of it cannot be read (UnicodeDecodeError)")],
)
async def test_a_service_account_that_cannot_be_used_is_named(pod, token, why):
    (pod / "token").write_bytes(token)
    with pytest.raises(ConfigurationError) as raised:
        await ApiServerLogin(service_account=pod).load()
    assert (raised.value.brief, raised.value.details, raised.value.resolution) == (
        f"the service account in {pod} cannot be used",
        why,
        "Mount its token into the pod (automountServiceAccountToken), or specify a kubeconfig.",
    )
