"""File modes that do not depend on the umask of the build machine, so that the same files give the same layer."""

import os
from pathlib import Path

_FOLDER, _PROGRAM, _FILE = 0o755, 0o755, 0o644
_RUN, _SPECIAL = 0o100, 0o7000


def fix_modes(root: Path) -> None:
    """Set 0755 on folders and programs and 0644 on other files. Bits beyond these, such as setuid, and links stay."""
    root.chmod(_FOLDER)
    for place, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = Path(place, name)
            if path.is_symlink():
                continue
            mode = path.stat().st_mode
            plain = _FOLDER if path.is_dir() else _PROGRAM if mode & _RUN else _FILE
            path.chmod(plain if path.is_dir() else plain | (mode & _SPECIAL))
