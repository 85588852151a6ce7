"""Hiding of passwords and tokens in commands and their output."""

import re
import shlex
from collections.abc import Iterable, Sequence

HIDDEN = "***"

_SECRET_FLAG = re.compile(r"^(--?(?:[a-z-]+-)?(?:password|passwd|creds|token|secret|api-key))(=.*)?$", re.IGNORECASE)
_USER_INFO = re.compile(r"(?<=://)[^/\s]+@")  # up to the last @: a password may contain @


def redact_text(text: str, secrets: Iterable[str] = ()) -> str:
    """Replace the given secrets, and user:password in URLs, by HIDDEN."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, HIDDEN)
    return _USER_INFO.sub(f"{HIDDEN}@", text)


def redact_command(command: Sequence[str], secrets: Iterable[str] = ()) -> str:
    """A command in shell syntax, without the given secrets and the values of flags for secrets."""
    words: list[str] = []
    hide_next = False
    for word in command:
        flag = _SECRET_FLAG.match(word)
        if hide_next:
            words.append(HIDDEN)
        elif flag and flag[2]:
            words.append(f"{flag[1]}={HIDDEN}")
        else:
            words.append(shlex.quote(word))
        hide_next = not hide_next and flag is not None and flag[2] is None
    return redact_text(" ".join(words), secrets)
