"""Archives of others unpacked over each other, in a folder that none of them gets out of.

tar keeps one archive inside its folder: what its own links lead to is made last. The next archive finds those links in
place and would write through them. So each is unpacked into a folder of its own, which is empty, and put in place from
there by names: a link is followed only where it ends in a folder inside the root.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from upgrader.core.errors import ProcessError
from upgrader.process import run


def extract(words: Sequence[str | Path], root: Path, *, timeout: float, stdin: bytes = b"") -> None:
    """Unpack one archive over what is in a folder; files and links replace what has their name.

    Args:
        words: of tar's command line, all but the folder.
        root: the folder; nobody else writes to it meanwhile.
        timeout: seconds for tar.
        stdin: the archive, where `words` names no file.

    Raises:
        ProcessError: it is no archive, the disk is full, or it goes through a link that leads out of the root.
    """
    try:
        # in the root, so that moving is renaming, and what a killed build leaves goes with it
        with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=root) as beside:
            start = ["tar", "--extract", "--no-same-owner", "--directory", beside]
            run([*start, *words], timeout=timeout, stdin=stdin)
            _put_in_place(Path(beside), root)
    except OSError as error:
        raise ProcessError(f"an archive does not fit into {root}", details=str(error)) from error


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
                folders.append((path, _led_to(place, inside)))
            elif place.is_dir():
                place.chmod(path.stat().st_mode & 0o7777)
                folders.append((path, place))
            else:
                place.unlink(missing_ok=True)
                path.rename(place)


def _led_to(link: Path, root: Path) -> Path:
    """The folder inside the root that a link in it stands for, as /bin does for /usr/bin."""
    try:
        end = link.resolve(strict=True)
    except (OSError, RuntimeError):  # nothing there, or a loop
        end = None
    if end is None or not end.is_dir() or not end.is_relative_to(root):
        raise ProcessError(
            f"an archive has files below {link.relative_to(root)}, which is a link that leads to no folder of its own",
            details=f"the link says {str(link.readlink())!r}; nothing was written there",
        )
    return end
