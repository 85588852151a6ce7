"""Certificates for servers and clients of tests, made by openssl."""

from pathlib import Path

from upgrader.process import run

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2")


class Authority:
    """A CA in a folder, and what it signs: NAME.crt and NAME.key."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._openssl("req", "-x509", *_KEY, "-keyout", "ca.key", "-out", "ca.crt", "-subj", "/CN=test-ca")

    def sign(self, name: str, *, subject: str, address: str = "") -> None:
        """A certificate for a server (with its IP address) or a client."""
        names = ("-addext", f"subjectAltName=IP:{address}") if address else ()
        signer = ("-CA", "ca.crt", "-CAkey", "ca.key")
        out = ("-keyout", f"{name}.key", "-out", f"{name}.crt")
        self._openssl("req", "-x509", *_KEY, *signer, *out, "-subj", subject, *names)

    def text(self, name: str) -> str:
        return (self.folder / name).read_text()

    def _openssl(self, *words: str) -> None:
        run(["openssl", *words], timeout=20, cwd=self.folder)
