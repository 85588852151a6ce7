"""What is shown of a command and of its output: never a password or a token."""

import re
import shlex
from collections.abc import Iterable, Sequence

HIDDEN = "***"

_SECRET_FLAG = re.compile(r"^(--?(?:[a-z-]+-)?(?:password|passwd|creds|token|secret|api-key))(=.*)?$", re.IGNORECASE)
_USER_INFO = re.compile(r"(?<=://)[^/\s]+@")  # up to the last @: a password may hold others


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """`text` without the given secrets and without user:password in addresses."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, HIDDEN)
    return _USER_INFO.sub(f"{HIDDEN}@", text)


def shown(command: Sequence[str], secrets: Iterable[str] = ()) -> str:
    """A command as a shell would take it, secrets hidden: the given ones and the values of flags that hold one."""
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
    return redact(" ".join(words), secrets)
