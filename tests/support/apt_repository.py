"""Debian archives in a folder, signed by a throw-away key: what real apt is run against, ways to be wrong."""

import contextlib
import hashlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

from tests.support.freeze_index import COMPONENTS, FROZEN
from upgrader.images.debian.archives import DEBIAN, SECURITY, Archives
from upgrader.process import run

DAY = timedelta(days=1)
_GPG = ("gpg", "--batch", "--quiet", "--pinentry-mode", "loopback", "--passphrase", "")


class Key:
    """A signing key in a folder of its own, and `keyring`, which has its public half."""

    def __init__(self, home: Path, *, made: datetime | None = None, days: int = 0) -> None:
        self._home = home
        # The clock stands still: a key that took a second to make would be of the future when it signs.
        self._then = [f"--faked-system-time={made:%Y%m%dT%H%M%S}!"] if made else []
        self._gpg(
            "--quick-generate-key", "throw-away <nobody@example.org>", "ed25519", "sign", f"{days}d" if days else "0"
        )
        self.keyring = home / "keyring.gpg"
        self.keyring.write_bytes(self._gpg("--export"))

    def sign(self, text: str) -> bytes:
        """`text`, signed in the clear."""
        return self._gpg("--clearsign", "--digest-algo", "SHA512", stdin=text.encode())

    def _gpg(self, *words: str, stdin: bytes = b"") -> bytes:
        command = [*_GPG, f"--homedir={self._home}", *self._then, *words]
        return run(command, timeout=30, stdin=stdin).stdout


@contextlib.contextmanager
def throw_away_key(**more: object) -> Iterator[Key]:
    """A key that is gone afterwards, with the agent that gpg starts for it."""
    home = Path(tempfile.mkdtemp(prefix="key"))  # sockets have short names, pytest's folders do not
    home.chmod(0o700)
    try:
        yield Key(home, **more)  # type: ignore[arg-type]
    finally:
        run(["gpgconf", f"--homedir={home}", "--kill", "all"], timeout=30, check=False)
        shutil.rmtree(home)


class Repository:
    """`archives` is what a test gives to the product; suites come to be by `publish`."""

    def __init__(self, folder: Path, key: Key) -> None:
        self.folder = folder
        self.key = key
        bases = {name: f"file:{folder}/{name}/" for name in (DEBIAN, SECURITY)}
        self.archives = Archives(bases=bases, keyring=key.keyring)

    def suite(self, suite: str) -> Path:
        """The folder of a suite."""
        return self.folder / (SECURITY if suite.endswith("-security") else DEBIAN) / "dists" / suite

    def publish(
        self,
        suite: str,
        lists: Mapping[str, str],
        *,
        valid: timedelta | None = DAY,
        dated: datetime | None = None,
        key: Key | None = None,
    ) -> None:
        """Write and sign a suite of these Packages texts by component."""
        place = self.suite(suite)
        shutil.rmtree(place, ignore_errors=True)
        hashes = []
        for component, text in lists.items():
            path = place / component / "binary-amd64/Packages"
            path.parent.mkdir(parents=True)
            path.write_text(text)
            data = text.encode()
            hashes.append(f" {hashlib.sha256(data).hexdigest()} {len(data)} {path.relative_to(place)}")
        now = dated or datetime.now(UTC)
        fields = {"Origin": "Debian", "Suite": suite, "Codename": suite, "Date": _date(now)}
        if valid is not None:
            fields["Valid-Until"] = _date(now + valid)
        fields |= {"Components": " ".join(lists), "Architectures": "amd64", "SHA256": "\n".join(["", *hashes])}
        release = "".join(f"{name}: {value}\n" for name, value in fields.items())
        (place / "InRelease").write_bytes((key or self.key).sign(release))

    def publish_frozen(self) -> None:
        """The suites of the frozen index."""
        for suite, lists in frozen().items():
            self.publish(suite, lists)


def frozen() -> dict[str, dict[str, str]]:
    """Packages texts by suite and component, made by tests/support/freeze_index.py out of the real archives."""
    found: dict[str, dict[str, str]] = {}
    for path in sorted(FROZEN.glob("*.packages")):
        suite, component, _ = path.name.split(".")
        found.setdefault(suite, dict.fromkeys(COMPONENTS, ""))[component] = path.read_text(encoding="utf-8")
    return found


def _date(moment: datetime) -> str:
    return format_datetime(moment.astimezone(UTC)).replace("+0000", "UTC")
