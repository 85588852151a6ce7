"""apt with a state of its own: what it downloads and believes is decided here, and nothing of the machine is changed.

apt checks the signature of every suite's InRelease with the archives' keyring, its dates, and the hashes of the indices.
The machine's own settings of proxies, certificates and passwords stay; its sources, preferences, trusted keys,
exceptions from checking and hooks do not.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from upgrader.core.driver_builds import digits
from upgrader.core.errors import ConfigurationError
from upgrader.images.debian import complaints, names
from upgrader.images.debian.archives import Archives
from upgrader.process import ProgramTimeoutError, run
from upgrader.process.places import locked, write_whole

UPDATE_SECONDS = 600.0
DOWNLOAD_SECONDS = 1800.0
_HELPER = "/usr/lib/apt/apt-helper"
_ENGLISH = {"LC_ALL": "C.UTF-8", "LANGUAGE": "C"}
_LIST = re.compile(r".*_dists_(?P<suite>[a-z0-9.-]+)_(?P<component>[a-z0-9.-]+)_binary-[a-z0-9-]+_Packages(\.xz)?")
_UNQUOTABLE = re.compile(r'["\s;#]')

# Without a user to change to, apt needs no access for that user to the folder, which may lie in root's home.
_SETTINGS = """\
Dir::State "{folder}/state";
Dir::State::lists "{folder}/state/lists";
Dir::State::status "/dev/null";
Dir::Cache "{folder}/cache";
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
Dir::Etc::sourcelist "/dev/null";
Dir::Etc::sourceparts "{folder}/sources";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Dir::Etc::trusted "/dev/null";
Dir::Etc::trustedparts "/dev/null";
APT::Sandbox::User "";
APT::Architecture "{arch}";
#clear APT::Architectures;
APT::Architectures "{arch}";
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
APT::Update::Error-Mode "any";
APT::Get::AllowUnauthenticated "false";
Acquire::AllowInsecureRepositories "false";
Acquire::AllowWeakRepositories "false";
Acquire::AllowDowngradeToInsecureRepositories "false";
Acquire::Check-Valid-Until "{dated}";
Acquire::Check-Date "true";
Acquire::PDiffs "false";
Acquire::GzipIndexes "true";
Acquire::IndexTargets::deb::Packages::KeepCompressedAs "xz";
Acquire::Languages "none";
Acquire::Retries "3";
Acquire::http::Timeout "30";
Acquire::https::Timeout "30";
pkgCacheFile::Generate "false";
"""

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
        for place in (folder, archives.keyring):
            if _UNQUOTABLE.search(str(place)):
                raise ConfigurationError(f"apt cannot be given the path {str(place)!r}", resolution="Use a plainer one.")
        facts = [sorted(archives.bases.items()), suites, components, arch]  # apt deletes the lists of other sources
        self.folder = folder.absolute() / digits(facts, 16)
        self.archives = archives
        self.suites = tuple(dict.fromkeys(names.suite(one) for one in suites))
        self.components = tuple(dict.fromkeys(names.component(one) for one in components))
        self.arch = names.arch(arch)
        self._settings = self.folder / "apt.conf"

    def update(self) -> None:
        """Bring the lists up to date and have them verified; one process at a time.

        Raises:
            UntrustedArchiveError: a suite is not signed by the keyring, is expired, or its lists are not what was signed.
            UnreachableArchiveError: an archive does not answer.
            ConfigurationError: an archive has no such suite or component.
        """
        with locked(self.folder / ".lock"):
            self._prepare()
            words = ["apt-get", f"--config-file={self._settings}", "--quiet", "--error-on=any", "update"]
            try:
                finished = run(words, timeout=UPDATE_SECONDS, env=_ENGLISH, check=False)
            except ProgramTimeoutError as error:
                raise complaints.too_slow(error) from error
            complaints.judge_update(finished, self.suites)

    def indices(self) -> Iterator[Index]:
        """The lists that the last `update` has verified. An empty one is not kept by apt."""
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

    def download(self, archive: str, path: str, sha256: str, target: Path) -> None:
        """Fetch a file of an archive to `target`; what is there already is taken as its beginning.

        apt compares the hash as well; the caller must do so all the same (a `file:` archive leaves a link).

        Raises:
            UnreachableArchiveError, MissingPackageError, DiskFullError, UntrustedArchiveError: as they say.
        """
        address = self.archives.base(archive) + names.path(path)
        self._prepare()
        words = [_HELPER, f"--config-file={self._settings}", "download-file", address, target]
        try:
            finished = run([*words, f"SHA256:{names.sha256(sha256)}"], timeout=DOWNLOAD_SECONDS, env=_ENGLISH, check=False)
        except ProgramTimeoutError as error:
            raise complaints.too_slow(error) from error
        complaints.judge_download(finished, path.rpartition("/")[2], target)

    def _prepare(self) -> None:
        for place in ("state/lists/partial", "cache/archives/partial", "sources"):
            (self.folder / place).mkdir(parents=True, exist_ok=True)
        dated = "false" if self.archives.frozen else "true"
        settings = _SETTINGS.format(folder=self.folder, arch=self.arch, dated=dated)
        write_whole(self._settings, settings.encode())
        for archive in dict.fromkeys(self.archives.of(suite) for suite in self.suites):
            source = _SOURCE.format(
                base=self.archives.base(archive),
                suites=" ".join(suite for suite in self.suites if self.archives.of(suite) == archive),
                components=" ".join(self.components),
                arch=self.arch,
                keyring=self.archives.keyring,
            )
            write_whole(self.folder / f"sources/{archive}.sources", source.encode())
