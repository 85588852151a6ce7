"""Short text files of the kernel and of the node's configuration."""

from pathlib import Path


def read_line(path: Path) -> str:
    """The contents of a file with one line.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is empty.
    """
    return require_text(path.read_text(encoding="utf-8").strip())


def require_text(text: str) -> str:
    """The text.

    Raises:
        ValueError: it is empty.
    """
    if not text:
        raise ValueError("it is empty")
    return text


def read_optional(path: Path) -> str:
    """The contents of a file without space at both ends; empty if the file does not exist."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except (FileNotFoundError, NotADirectoryError):
        return ""
