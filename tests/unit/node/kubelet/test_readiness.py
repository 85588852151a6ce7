import base64
import http.server
import json
import ssl
import threading
import traceback

import pytest

from tests.support.secrets import Secrets
from tests.support.tls import Authority
from upgrader.core.node_protocol.orders import Reason
from upgrader.node.host.host import Host
from upgrader.node.host.processes import RunningKubelet
from upgrader.node.host.task_result import OrderFailedError
from upgrader.node.kubelet import readiness
from upgrader.node.kubelet.credentials import read_access
from upgrader.node.kubelet.readiness import NodeReadiness, ready_fault

NODE = {
    "kind": "Node",
    "status": {
        "nodeInfo": {"kubeletVersion": "v1.35.4", "bootID": "b"},
        "conditions": [
            {"type": "MemoryPressure", "status": "False"},
            {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-11-21T09:00:00Z"},
        ],
    },
}
HEARTBEAT = 1795251600.0


class Server:
    """Answers GET as it is told; counts as an API server when it has certificates."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.answers: dict[str, tuple[int, bytes]] = {}
        self.seen: list[tuple[str, str, str]] = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                peer = self.connection.getpeercert() if tls else None
                name = dict(pair[0] for pair in peer["subject"])["commonName"] if peer else ""
                outer.seen.append((self.path, name, self.headers.get("Authorization", "")))
                code, body = outer.answers.get(self.path, (404, b"not found"))
                self.send_response(code)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if tls:
            self.http.socket = tls.wrap_socket(self.http.socket, server_side=True)
        self.port = self.http.server_port
        self._thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()
        self._thread.join()


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    authority = Authority(tmp_path_factory.mktemp("pki"))
    authority.sign("api", subject="/CN=api", address="127.0.0.1")
    authority.sign("node", subject="/O=system:nodes/CN=system:node:gpu-a")
    return authority


@pytest.fixture
def api(authority):
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(authority.folder / "api.crt", authority.folder / "api.key")
    tls.load_verify_locations(authority.folder / "ca.crt")
    tls.verify_mode = ssl.CERT_OPTIONAL
    server = Server(tls)
    server.answers["/api/v1/nodes/gpu-a"] = (200, json.dumps(NODE).encode())
    yield server
    server.close()


@pytest.fixture
def kubelet_server():
    server = Server()
    yield server
    server.close()


def kubelet(*arguments):
    return RunningKubelet(pid=1, started=0.0, sha256="", arguments=("--kubeconfig", "/etc/kube/config", *arguments))


def kubeconfig(host, server, user, cluster):
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "x",
        "contexts": [
            {"name": "other", "context": {"cluster": "no", "user": "no"}},
            {"name": "x", "context": {"cluster": "c", "user": "u"}},
        ],
        "clusters": [{"name": "c", "cluster": {"server": f"https://127.0.0.1:{server.port}", **cluster}}],
        "users": [{"name": "u", "user": user}],
    }
    path = host.root / "etc/kube/config"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(config))


def data(authority, name):
    return base64.b64encode(authority.text(name).encode()).decode()


@pytest.fixture
def host(tmp_path, authority):
    host = Host(root=tmp_path)
    (tmp_path / "etc/kube/pki").mkdir(parents=True)
    for name in ("ca.crt", "node.crt", "node.key"):
        (tmp_path / "etc/kube/pki" / name).write_text(authority.text(name))
    both = authority.text("node.crt") + authority.text("node.key")
    (tmp_path / "etc/kube/pki/dated.pem").write_text(both)
    (tmp_path / "etc/kube/pki/current.pem").symlink_to("/etc/kube/pki/dated.pem")
    return host


VIEW = NodeReadiness(kubelet_version="v1.35.4", ready=True, heartbeat=HEARTBEAT)
FILES = {"client-certificate": "pki/node.crt", "client-key": "pki/node.key"}
KUBEADM = {"client-certificate": "/etc/kube/pki/current.pem", "client-key": "/etc/kube/pki/current.pem"}


@pytest.mark.parametrize("user", [FILES, KUBEADM], ids=["relative files", "link with an absolute target"])
def test_the_node_is_read_with_the_kubelets_client_certificate(api, host, user):
    kubeconfig(host, api, user, {"certificate-authority": "/etc/kube/pki/ca.crt"})
    assert readiness.read_own_node(host, kubelet(), "gpu-a") == VIEW
    assert api.seen == [("/api/v1/nodes/gpu-a", "system:node:gpu-a", "")]


def test_certificates_may_stand_in_the_kubeconfig_itself(api, host, authority):
    user = {"client-certificate-data": data(authority, "node.crt"), "client-key-data": data(authority, "node.key")}
    kubeconfig(host, api, user, {"certificate-authority-data": data(authority, "ca.crt")})
    assert readiness.read_own_node(host, kubelet(), "gpu-a") == VIEW


def test_a_token_file_is_used_too(api, host):
    (host.root / "etc/kube/token").write_text("secret\n")
    kubeconfig(host, api, {"tokenFile": "token"}, {"certificate-authority": "pki/ca.crt"})
    readiness.read_own_node(host, kubelet(), "gpu-a")
    assert api.seen == [("/api/v1/nodes/gpu-a", "", "Bearer secret")]


@pytest.mark.parametrize(
    ("user", "shown"),
    [
        ({"exec": {"command": "aws"}}, "`exec` plugins are not supported"),
        ({}, "neither a client certificate nor a token"),
        ({"client-certificate": "pki/none.crt", "client-key": "pki/node.key"}, "No such file"),
        ({"client-certificate": "pki/ca.crt", "client-key": "pki/node.key"}, "KEY_VALUES_MISMATCH"),
        ({"client-certificate-data": "%%%", "client-key-data": "AAAA"}, "cannot be used"),
    ],
)
def test_credentials_that_cannot_be_used_say_why(api, host, user, shown):
    kubeconfig(host, api, user, {"certificate-authority": "pki/ca.crt"})
    with pytest.raises(OrderFailedError, match=shown) as caught:
        readiness.read_own_node(host, kubelet(), "gpu-a")
    assert caught.value.reason is Reason.MISSING


@pytest.mark.parametrize(
    "text",
    [
        "users:\n- name: u\n  user:\n    token: {token}\n   client-key-data: {token}\n",
        "users: [{{name: u, user: {{token: '{token}",
        "{token}",
        "users: [{{name: u, user: {token}}}]",
        "\xff{token}",
    ],
)
def test_a_kubeconfig_that_is_none_is_named_and_not_quoted(host, text):
    secrets = Secrets()
    path = host.root / "etc/kube/config"
    path.write_bytes(text.format(token=secrets.make("token")).encode("latin-1"))
    with pytest.raises(OrderFailedError, match="/etc/kube/config of the kubelet cannot be used") as caught:
        readiness.read_own_node(host, kubelet(), "gpu-a")
    assert secrets.shown_in("".join(traceback.format_exception(caught.value))) == []


def test_a_token_that_no_header_can_hold_is_not_quoted(api, host):
    secrets = Secrets()
    kubeconfig(host, api, {"token": secrets.make("token") + "\nx"}, {"certificate-authority": "pki/ca.crt"})
    with pytest.raises(OrderFailedError, match="characters other than visible ASCII") as caught:
        readiness.read_own_node(host, kubelet(), "gpu-a")
    assert secrets.shown_in("".join(traceback.format_exception(caught.value))) == []
    assert api.seen == []


def test_a_token_is_in_no_error_about_an_answer_and_in_no_value(api, host):
    secrets = Secrets()
    token = secrets.make("token")
    kubeconfig(host, api, {"token": token}, {"certificate-authority": "pki/ca.crt"})
    api.answers["/api/v1/nodes/gpu-a"] = (401, b"Unauthorized")
    with pytest.raises(OSError, match="401") as caught:
        readiness.read_own_node(host, kubelet(), "gpu-a")
    assert api.seen[0][2] == f"Bearer {token}"
    shown = "".join(traceback.format_exception(caught.value)) + repr(read_access(host, "/etc/kube/config"))
    assert secrets.shown_in(shown) == []


def test_a_context_that_names_nothing(api, host):
    kubeconfig(host, api, FILES, {})
    path = host.root / "etc/kube/config"
    path.write_text(path.read_text().replace('"current-context": "x"', '"current-context": "y"'))
    with pytest.raises(OrderFailedError, match="no entry named 'y'"):
        readiness.read_own_node(host, kubelet(), "gpu-a")


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        ((403, b"no"), "returned 403 for GET /api/v1/nodes/gpu-a: no"),
        ((200, b"{}"), "is not a Node"),
        ((200, b"<html>"), "is not a Node"),
    ],
)
def test_other_answers_are_no_answer(api, host, answer, shown):
    kubeconfig(host, api, FILES, {"certificate-authority": "pki/ca.crt"})
    api.answers["/api/v1/nodes/gpu-a"] = answer
    with pytest.raises(OSError, match=shown):
        readiness.read_own_node(host, kubelet(), "gpu-a")


def test_a_server_of_another_authority_is_not_believed(api, host, tmp_path_factory):
    other = Authority(tmp_path_factory.mktemp("other"))
    (host.root / "etc/kube/pki/ca.crt").write_text(other.text("ca.crt"))
    kubeconfig(host, api, FILES, {"certificate-authority": "pki/ca.crt"})
    with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
        readiness.read_own_node(host, kubelet(), "gpu-a")


@pytest.mark.parametrize(
    ("view", "since", "shown"),
    [
        (VIEW, HEARTBEAT, ""),
        (VIEW, HEARTBEAT + 0.9, ""),
        (VIEW, HEARTBEAT + 1.1, "no heartbeat since the restart, the last at 2026-11-21T09:00:00Z"),
        (
            NodeReadiness(kubelet_version="v1.34.4", ready=True, heartbeat=HEARTBEAT),
            0,
            "the Node still has kubelet v1.34.4",
        ),
        (NodeReadiness(kubelet_version="v1.35.4", ready=False, heartbeat=HEARTBEAT), 0, "the node is not Ready"),
    ],
)
def test_what_counts_as_ready_again(view, since, shown):
    assert ready_fault(view, version="1.35.4", since=since) == shown
    assert ready_fault(view, version="v1.35.4", since=since) == shown


def test_a_node_without_conditions_is_not_ready(api, host):
    kubeconfig(host, api, FILES, {"certificate-authority": "pki/ca.crt"})
    bare = {"status": {"nodeInfo": {"kubeletVersion": "v1"}}}
    api.answers["/api/v1/nodes/gpu-a"] = (200, json.dumps(bare).encode())
    assert readiness.read_own_node(host, kubelet(), "gpu-a") == NodeReadiness(
        kubelet_version="v1", ready=False, heartbeat=0.0
    )


def test_healthz_is_asked_where_the_flags_say(host, kubelet_server):
    kubelet_server.answers["/healthz"] = (200, b"ok")
    assert readiness.healthz_fault(host, kubelet(f"--healthz-port={kubelet_server.port}")) == ""


def test_healthz_is_asked_where_the_configuration_says(host, kubelet_server):
    (host.root / "etc/kube/kubelet.yaml").write_text(
        f"kind: KubeletConfiguration\nhealthzPort: {kubelet_server.port}\nhealthzBindAddress: 0.0.0.0\nmaxPods: 9\n"
    )
    kubelet_server.answers["/healthz"] = (500, b"pleg was last seen active 3m ago")
    fault = readiness.healthz_fault(host, kubelet("--config", "/etc/kube/kubelet.yaml"))
    assert fault == "its /healthz returned 500 pleg was last seen active 3m ago"


def test_healthz_that_nobody_serves(host, kubelet_server):
    kubelet_server.http.socket.close()
    assert "does not respond" in readiness.healthz_fault(host, kubelet(f"--healthz-port={kubelet_server.port}"))


def test_healthz_that_is_switched_off_is_no_guess(host):
    with pytest.raises(OrderFailedError, match="disabled"):
        readiness.healthz_fault(host, kubelet("--healthz-port=0"))
