"""Unpacks archives over each other into a folder, and prevents every write outside of that folder.

tar keeps a single archive inside its folder: it creates the archive's links last. The next archive would write through
these links. So each archive is unpacked into an empty folder, and its files are moved from there by name. A link is
followed only if it leads to a folder inside the root.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from upgrader.core.errors import ProcessError
from upgrader.process import run


def extract_archive(words: Sequence[str | Path], root: Path, *, timeout: float, stdin: bytes = b"") -> None:
    """Unpack one archive over the contents of a folder. Files and links replace those of the same name.

    Args:
        words: arguments of tar, except for the folder.
        root: the folder; no other process writes to it meanwhile.
        timeout: seconds for tar.
        stdin: the archive, if `words` name no file.

    Raises:
        ProcessError: the archive is invalid, the disk is full, or a path leads through a link out of the root.
    """
    try:
        # inside the root: moves are renames, and the remains of a killed build are removed with it
        with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=root) as beside:
            start = ["tar", "--extract", "--no-same-owner", "--directory", beside]
            run([*start, *words], timeout=timeout, stdin=stdin)
            _put_in_place(Path(beside), root)
    except OSError as error:
        raise ProcessError(f"an archive cannot be unpacked into {root}", details=str(error)) from error


def _put_in_place(source: Path, root: Path) -> None:
    inside = root.resolve(strict=True)
    folders = [(source, inside)]
    while folders:
        folder, target = folders.pop()
        for path in sorted(folder.iterdir()):
            place = target / path.name
            if path.is_symlink() or not path.is_dir():
                path.replace(place)
            elif place.is_symlink():
                folders.append((path, _link_target(place, inside)))
            elif place.is_dir():
                place.chmod(path.stat().st_mode & 0o7777)
                folders.append((path, place))
            else:
                place.unlink(missing_ok=True)
                path.rename(place)


def _link_target(link: Path, root: Path) -> Path:
    """The folder inside the root that a link refers to, as /bin refers to /usr/bin."""
    try:
        end = link.resolve(strict=True)
    except (OSError, RuntimeError):  # a dangling link, or a loop
        end = None
    if end is None or not end.is_dir() or not end.is_relative_to(root):
        raise ProcessError(
            f"an archive has files below {link.relative_to(root)}, which is a link to no folder of the archive",
            details=f"the link's target is {str(link.readlink())!r}; nothing was written there",
        )
    return end
