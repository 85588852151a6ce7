"""Packages fetched by apt's own downloader: the machine's proxies and passwords, retries, resuming."""

from pathlib import Path

from upgrader.images.debian import complaints, names
from upgrader.images.debian.archives import Archives
from upgrader.images.debian.settings import ENGLISH, prepare
from upgrader.process import ProgramTimeoutError, run
from upgrader.process.places import locked

SECONDS = 1800.0
_HELPER = "/usr/lib/apt/apt-helper"


class Fetcher:
    """Fetches by where a package lies, so also what an archive still has and no index names any more.

    `folder` is apt's place for settings; many may use it at once. `seconds` is for one package.
    """

    def __init__(self, folder: Path, archives: Archives, *, seconds: float = SECONDS) -> None:
        self._folder = folder.absolute()
        self._archives = archives
        self._seconds = seconds

    def download(self, archive: str, path: str, sha256: str, target: Path) -> None:
        """Fetch a file of an archive to `target`; what is there already is taken as its beginning.

        apt compares the digest too, but the caller must: of a `file:` archive it leaves a link.

        Raises:
            MissingPackageError: the archive has it no more.
            HashMismatchError: the archive sent something else.
            UnreachableArchiveError: no answer, or not in time; what came stays.
            DiskFullError: no space left.
        """
        address = self._archives.base(archive) + names.path(path)
        with locked(self._folder / ".lock"):
            settings = prepare(self._folder, self._archives, "amd64")
        words: list[str | Path] = [_HELPER, f"--config-file={settings}", "download-file", address, target]
        try:
            finished = run([*words, f"SHA256:{names.sha256(sha256)}"], timeout=self._seconds, env=ENGLISH, check=False)
        except ProgramTimeoutError as error:
            raise complaints.too_slow(error) from error
        finally:
            target.with_name(f"{target.name}.FAILED").unlink(missing_ok=True)  # apt's copy of what had another digest
        complaints.judge_download(finished, path.rpartition("/")[2], target)
