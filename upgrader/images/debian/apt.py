"""The indices of archives, brought and verified by apt: InRelease by the keyring, its dates, the hashes of lists."""

import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from upgrader.core.driver_build.driver_builds import digits
from upgrader.images.debian import complaints, names
from upgrader.images.debian.archives import Archives
from upgrader.images.debian.settings import ENGLISH, prepare
from upgrader.process import ProgramTimeoutError, run
from upgrader.process.places import locked, write_whole

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
    """A Packages list that apt has verified: `path` is it, as it is or xz-compressed."""

    suite: str
    component: str
    path: Path


class Apt:
    """apt in a folder, for these suites and components of the archives.

    Raises:
        ConfigurationError: the archives lack one that a suite lies in, or a path or name cannot be used.
    """

    def __init__(
        self, folder: Path, archives: Archives, suites: Sequence[str], components: Sequence[str], *, arch: str = "amd64"
    ) -> None:
        # a folder of its own for each, as apt deletes the lists of other sources
        facts = [sorted(archives.bases.items()), str(archives.keyring), suites, components, arch]
        self.folder = folder.absolute() / digits(facts, 16)
        self.archives = archives
        self.suites = tuple(dict.fromkeys(names.suite(one) for one in suites))
        self.components = tuple(dict.fromkeys(names.component(one) for one in components))
        self.arch = names.arch(arch)

    @contextmanager
    def updated(self) -> Iterator[None]:
        """Bring the lists up to date and have them verified; inside nobody else changes them.

        Raises:
            UntrustedArchiveError: a suite is not signed by the keyring, expired, or not what was signed.
            UnreachableArchiveError: an archive does not answer.
            ConfigurationError: an archive has no such suite or component.
        """
        with locked(self.folder / ".lock"):
            settings = prepare(self.folder, self.archives, self.arch)
            self._write_sources()
            words = ["apt-get", f"--config-file={settings}", "--quiet", "update"]
            try:
                finished = run(words, timeout=UPDATE_SECONDS, env=ENGLISH, check=False)
            except ProgramTimeoutError as error:
                raise complaints.too_slow(error) from error
            complaints.judge_update(finished, self.suites)
            yield

    def update(self) -> None:
        """As `updated`, for one who knows that nobody else is at it."""
        with self.updated():
            return

    def indices(self) -> Iterator[Index]:
        """The lists that were verified, inside `updated`. An empty one is not kept by apt."""
        for path in sorted((self.folder / "state/lists").iterdir()):
            found = _LIST.fullmatch(path.name)
            if found and found["suite"] in self.suites and found["component"] in self.components:
                yield Index(suite=found["suite"], component=found["component"], path=path)

    def signed(self) -> dict[str, str]:
        """SHA-256 of each suite's signed index."""
        digests: dict[str, str] = {}
        for suite in self.suites:
            for path in (self.folder / "state/lists").glob(f"*_dists_{suite}_*Release"):
                digests[suite] = hashlib.sha256(path.read_bytes()).hexdigest()
        return digests

    def _write_sources(self) -> None:
        for archive in dict.fromkeys(self.archives.of(suite) for suite in self.suites):
            source = _SOURCE.format(
                base=self.archives.base(archive),
                suites=" ".join(suite for suite in self.suites if self.archives.of(suite) == archive),
                components=" ".join(self.components),
                arch=self.arch,
                keyring=self.archives.keyring,
            )
            write_whole(self.folder / f"sources/{archive}.sources", source.encode())
