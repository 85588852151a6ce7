"""Modes of a file tree that do not depend on the umask of whoever made it: the same parts give the same layer."""

import os
from pathlib import Path

_FOLDER, _PROGRAM, _FILE = 0o755, 0o755, 0o644
_RUN, _SPECIAL = 0o100, 0o7000


def fix_modes(root: Path) -> None:
    """0755 for folders and programs, 0644 for files; what a package has set beyond (setuid) stays. Links are left."""
    root.chmod(_FOLDER)
    for place, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = Path(place, name)
            if path.is_symlink():
                continue
            mode = path.stat().st_mode
            plain = _FOLDER if path.is_dir() else _PROGRAM if mode & _RUN else _FILE
            path.chmod(plain if path.is_dir() else plain | (mode & _SPECIAL))
