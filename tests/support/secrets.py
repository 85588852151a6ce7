"""Secrets of a test, told from everything else by their text, and the programs that were started meanwhile."""

import base64
import hashlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote


class Secrets:
    """Canaries by what they are; `shown_in` names those that a text holds, also as base64 or in an address."""

    def __init__(self) -> None:
        self._forms: dict[str, set[str]] = {}

    def make(self, what: str) -> str:
        """A secret that stands nowhere else."""
        return self.keep(what, f"canary-{hashlib.sha256(what.encode()).hexdigest()[:24]}")

    def keep(self, what: str, text: str) -> str:
        """A text that is as secret: what a password is sent as, a line of a key."""
        encoded = base64.b64encode(text.encode()).decode()
        self._forms.setdefault(what, set()).update({text, encoded, quote(text, safe="")})
        return text

    def shown_in(self, text: str) -> list[str]:
        """What a text gives away."""
        return sorted(what for what, forms in self._forms.items() if any(form in text for form in forms))


_recording: list[list[str]] = []
_hooked: list[bool] = []


@contextmanager
def programs() -> Iterator[list[str]]:
    """The command lines of all programs that this process starts in the block, whoever starts them."""
    if not _hooked:  # a hook cannot be taken away again
        sys.addaudithook(_heed)
        _hooked.append(True)
    lines: list[str] = []
    _recording.append(lines)
    try:
        yield lines
    finally:
        _recording.remove(lines)


def _heed(event: str, arguments: tuple[object, ...]) -> None:
    if _recording and event in {"subprocess.Popen", "os.posix_spawn", "os.exec"}:
        words = arguments[1]
        line = " ".join(str(word) for word in words) if isinstance(words, list | tuple) else str(words)
        for lines in _recording:
            lines.append(line)
