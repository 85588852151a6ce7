"""Packages downloaded by apt's own helper, with the machine's proxies and passwords, retries and resumption."""

from pathlib import Path

from upgrader.images.debian import complaints, names
from upgrader.images.debian.archives import Archives
from upgrader.images.debian.settings import ENGLISH, write_settings
from upgrader.process import ProgramTimeoutError, run
from upgrader.process.places import hold_lock

SECONDS = 1800.0
_HELPER = "/usr/lib/apt/apt-helper"


class Fetcher:
    """Downloads packages by path, so that files which no index names any more can be fetched, too.

    `folder` contains apt's settings and may be shared by several processes. `seconds` is the time-out for one package.
    """

    def __init__(self, folder: Path, archives: Archives, *, seconds: float = SECONDS) -> None:
        self._folder = folder.absolute()
        self._archives = archives
        self._seconds = seconds

    def download(self, archive: str, path: str, sha256: str, target: Path) -> None:
        """Download a file of an archive to `target`. An existing file is taken as its beginning.

        The caller must compare the digest although apt does so, too: for a `file:` archive apt leaves a link.

        Raises:
            MissingPackageError: the archive does not have the file any more.
            HashMismatchError: the contents differ from the digest.
            UnreachableArchiveError: no answer, or not in time; the partial file stays.
            DiskFullError: no space left.
        """
        address = self._archives.base_url(archive) + names.check_path(path)
        with hold_lock(self._folder / ".lock"):
            settings = write_settings(self._folder, self._archives, "amd64")
        words: list[str | Path] = [_HELPER, f"--config-file={settings}", "download-file", address, target]
        try:
            finished = run(
                [*words, f"SHA256:{names.check_sha256(sha256)}"], timeout=self._seconds, env=ENGLISH, check=False
            )
        except ProgramTimeoutError as error:
            raise complaints.timeout_error(error) from error
        finally:
            target.with_name(f"{target.name}.FAILED").unlink(
                missing_ok=True
            )  # apt's copy of a file with another digest
        complaints.judge_download(finished, path.rpartition("/")[2], target)
