"""Names of the operator's objects: a readable prefix, and a hash of the whole identity, so that no two collide."""

import hashlib
import re

LONGEST = 52
"""A Job's pods add a suffix to its name, and a pod's name becomes a host name of at most 63 characters."""


def hash_digits(*identity: str, count: int = 8) -> str:
    """Hex digits over an identity; parts are length-prefixed, so that ("a-b", "c") and ("a", "b-c") differ."""
    whole = "".join(f"{len(part)}:{part}" for part in identity)
    return hashlib.sha256(whole.encode()).hexdigest()[:count]


def object_name(readable: str, *identity: str) -> str:
    """A DNS-1123 label of at most 52 characters: the readable prefix, and 8 hex digits over the identity."""
    front = re.sub(r"[^a-z0-9]+", "-", readable.lower()).strip("-")[: LONGEST - 9].rstrip("-")
    return f"{front or 'x'}-{hash_digits(*identity)}"


def list_names(names: list[str]) -> str:
    """The first five names, and the number of the others."""
    shown = ", ".join(names[:5])
    return f"{shown} and {len(names) - 5} more" if len(names) > 5 else shown
