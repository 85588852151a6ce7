"""Keys for signing modules, made by openssl for one test."""

from pathlib import Path

from upgrader.process import run


def make_key(folder: Path, name: str = "module", kind: str = "rsa:2048", passphrase: str = "") -> tuple[Path, Path]:
    """A private key and its certificate."""
    key, certificate = folder / f"{name}.key", folder / f"{name}.pem"
    hidden = ["-passout", f"pass:{passphrase}"] if passphrase else ["-noenc"]
    curve = ["-pkeyopt", "ec_paramgen_curve:P-256"] if kind == "ec" else []
    who = ["-subj", f"/CN={name} of a test", "-days", "2"]
    run(
        ["openssl", "req", "-x509", "-newkey", kind, *curve, *hidden, *who, "-keyout", key, "-out", certificate],
        timeout=60,
    )
    return key, certificate
