"""Certificates and kubeconfigs: a CA for the cluster, and one certificate per user, node and server."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from upgrader.process import run
from upgrader.process.places import write_atomically
from upgrader_dev.devcluster.base.addresses import Addresses

DAYS = "30"
_OPENSSL_SECONDS = 20.0
_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


class Credentials:
    """The folder `pki` of a cluster. Existing files are kept."""

    def __init__(self, folder: Path, addresses: Addresses) -> None:
        self._folder = folder
        self._addresses = addresses

    @property
    def ca(self) -> Path:
        """The certificate of the CA."""
        return self._folder / "ca.crt"

    def path(self, name: str) -> Path:
        """NAME.crt, NAME.key or NAME.kubeconfig, for certificates that the methods below create."""
        return self._folder / name

    def make_authority(self, cluster: str) -> None:
        """Create the CA, and the key that signs service account tokens."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not self.ca.exists():
            _run_openssl(
                "req",
                "-x509",
                *_NEW_KEY,
                "-keyout",
                self.path("ca.key"),
                "-out",
                self.ca,
                *_make_subject(cluster + "-ca"),
            )
        if not self.path("sa.pub").exists():
            key = self.path("sa.key")
            _run_openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", key)
            _run_openssl("pkey", "-in", key, "-pubout", "-out", self.path("sa.pub"))

    def make_certificate(self, name: str, user: str, groups: Sequence[str] = (), names: Sequence[str] = ()) -> None:
        """Create a certificate for `user` (the CN) in `groups` (the O); `names` as in openssl's subjectAltName."""
        if self.path(f"{name}.crt").exists():
            return
        temporary = self.path(f"{name}.crt.new")
        extensions = ["keyUsage=digitalSignature,keyEncipherment", "extendedKeyUsage=clientAuth,serverAuth"]
        if names:
            extensions.append("subjectAltName=" + ",".join(names))
        added = [word for extension in extensions for word in ("-addext", extension)]
        signed = ("-CA", self.ca, "-CAkey", self.path("ca.key"))
        _run_openssl(
            *("req", "-x509", *_NEW_KEY, *signed, "-keyout", self.path(f"{name}.key"), "-out", temporary),
            *(*_make_subject(user, groups), *added),
        )
        temporary.rename(self.path(f"{name}.crt"))

    def write_kubeconfig(self, name: str, *, inline: bool = True) -> Path:
        """Write a kubeconfig for the certificate `name`; `inline`: with embedded certificates, for copying."""
        path = self.path(f"{name}.kubeconfig")
        certificate, key = self.path(f"{name}.crt"), self.path(f"{name}.key")
        write_atomically(
            path, _make_kubeconfig(self._addresses.server, self.ca, certificate, key, inline=inline), mode=0o600
        )
        return path


def _make_kubeconfig(server: str, ca: Path, certificate: Path, key: Path, *, inline: bool) -> bytes:
    # JSON is YAML, and kubectl and clients accept it
    def credential_field(field: str, path: Path) -> dict[str, object]:
        return {f"{field}-data": path.read_bytes()} if inline else {field: path.name}

    return msgspec.json.format(
        msgspec.json.encode(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [
                    {"name": "c", "cluster": {"server": server, **credential_field("certificate-authority", ca)}}
                ],
                "users": [
                    {
                        "name": "u",
                        "user": {
                            **credential_field("client-certificate", certificate),
                            **credential_field("client-key", key),
                        },
                    }
                ],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "c",
            }
        )
    )


def _make_subject(user: str, groups: Sequence[str] = ()) -> tuple[str, str]:
    return "-subj", "".join(f"/O={group}" for group in groups) + f"/CN={user}"


def _run_openssl(*words: str | Path) -> None:
    validity = ("-days", DAYS) if words[0] == "req" else ()
    run(["openssl", *words, *validity], timeout=_OPENSSL_SECONDS)
