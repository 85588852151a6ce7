"""The package lists of archives, downloaded and verified by apt: signatures, dates, hashes of lists."""

import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from upgrader.core.driver_build.driver_builds import hash_facts
from upgrader.images.debian import complaints, names
from upgrader.images.debian.archives import Archives
from upgrader.images.debian.settings import ENGLISH, write_settings
from upgrader.process import ProgramTimeoutError, run
from upgrader.process.places import hold_lock, write_atomically

UPDATE_SECONDS = 600.0
_LIST = re.compile(r".*_dists_(?P<suite>[a-z0-9.-]+)_(?P<component>[a-z0-9.-]+)_binary-[a-z0-9-]+_Packages(\.xz)?")
_SOURCE = """\
Types: deb
URIs: {base}
Suites: {suites}
Components: {components}
Architectures: {arch}
Targets: Packages
Signed-By: {keyring}
"""


class Index(Struct, frozen=True, kw_only=True):
    """A Packages list that apt has verified. `path` is the plain or xz-compressed file."""

    suite: str
    component: str
    path: Path


class Apt:
    """apt with its own state folder, for given suites and components of the archives.

    Raises:
        ConfigurationError: the archives lack the archive of a suite, or a path or name is invalid.
    """

    def __init__(
        self, folder: Path, archives: Archives, suites: Sequence[str], components: Sequence[str], *, arch: str = "amd64"
    ) -> None:
        # a separate folder for each, since apt deletes the lists of other sources
        facts = [sorted(archives.bases.items()), str(archives.keyring), suites, components, arch]
        self.folder = folder.absolute() / hash_facts(facts, 16)
        self.archives = archives
        self.suites = tuple(dict.fromkeys(names.check_suite(suite) for suite in suites))
        self.components = tuple(dict.fromkeys(names.check_component(component) for component in components))
        self.arch = names.check_arch(arch)

    @contextmanager
    def updated_lists(self) -> Iterator[None]:
        """Update and verify the lists. No other process changes them during the context.

        Raises:
            UntrustedArchiveError: a suite is not signed by the keyring, is expired, or differs from what was signed.
            UnreachableArchiveError: an archive does not answer.
            ConfigurationError: an archive has no such suite or component.
        """
        with hold_lock(self.folder / ".lock"):
            settings = write_settings(self.folder, self.archives, self.arch)
            self._write_sources()
            words = ["apt-get", f"--config-file={settings}", "--quiet", "update"]
            try:
                finished = run(words, timeout=UPDATE_SECONDS, env=ENGLISH, check=False)
            except ProgramTimeoutError as error:
                raise complaints.timeout_error(error) from error
            complaints.judge_update(finished, self.suites)
            yield

    def update_lists(self) -> None:
        """As `updated_lists`, for a caller that excludes concurrent updates itself."""
        with self.updated_lists():
            return

    def verified_indices(self) -> Iterator[Index]:
        """The verified lists, to be read inside `updated_lists`. apt does not store empty lists."""
        for path in sorted((self.folder / "state/lists").iterdir()):
            match = _LIST.fullmatch(path.name)
            if match and match["suite"] in self.suites and match["component"] in self.components:
                yield Index(suite=match["suite"], component=match["component"], path=path)

    def signed_digests(self) -> dict[str, str]:
        """SHA-256 of each suite's signed index."""
        digests: dict[str, str] = {}
        for suite in self.suites:
            for path in (self.folder / "state/lists").glob(f"*_dists_{suite}_*Release"):
                digests[suite] = hashlib.sha256(path.read_bytes()).hexdigest()
        return digests

    def _write_sources(self) -> None:
        for archive in dict.fromkeys(self.archives.archive_of(suite) for suite in self.suites):
            source = _SOURCE.format(
                base=self.archives.base_url(archive),
                suites=" ".join(suite for suite in self.suites if self.archives.archive_of(suite) == archive),
                components=" ".join(self.components),
                arch=self.arch,
                keyring=self.archives.keyring,
            )
            write_atomically(self.folder / f"sources/{archive}.sources", source.encode())
