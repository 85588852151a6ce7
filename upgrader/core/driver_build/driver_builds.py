"""Driver builds: identity, inputs, build key, tag, verdicts, failures.

https://github.com/opencontainers/distribution-spec defines the characters of a tag.
"""

import hashlib
import json
import re
from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct

TAG_LIMIT = 128
_PLAIN = re.compile(r"[A-Za-z0-9.-]")


class Identity(Struct, frozen=True, kw_only=True, order=True):
    """A driver for a kernel: one image per identity is in service at a time.

    `kernel` is the exact release, the output of `uname -r`; `os` the distribution's code name; `arch` Debian's name.
    """

    vendor: str
    recipe: str
    driver: str
    flavour: str = ""
    kernel: str
    os: str
    arch: str = "amd64"

    @property
    def tag(self) -> str:
        """A registry tag; two identities of one recipe never have the same."""
        facts = (self.driver, self.flavour, self.kernel, self.os, self.arch)
        tag = escape_opening("__".join(escape_tag(fact) for fact in facts))
        return tag if len(tag) <= TAG_LIMIT else hash_facts([("identity", list(facts))], 64)

    def __str__(self) -> str:
        return f"{self.recipe} {self.driver} for {self.kernel}"


class Input(Struct, frozen=True, kw_only=True, order=True):
    """An input of a build. `sha256` is 64 hex digits of its contents.

    `kind` is package, recipe, compiler, base-image or option; an input without a file (a compiler's version text, an
    option) has the digest of its text.
    """

    kind: str
    name: str
    version: str
    sha256: str


class FailureClass(StrEnum):
    """Why a cell has no image. TRANSIENT and PUSH end by themselves; the others last until an input changes."""

    UNSUPPORTED = "unsupported"
    HEADERS_MISSING = "headers-missing"
    TOOLCHAIN_MISSING = "toolchain-missing"
    CONFTEST = "conftest"
    COMPILE = "compile"
    CRC = "crc"
    VERMAGIC = "vermagic"
    SIGNATURE = "signature"
    BOOT = "boot"
    PUSH = "push"
    TRANSIENT = "transient"


class BuildFailure(Struct, frozen=True, kw_only=True):
    """A failed build: `first_error` is one line of the tool's output, `symbol` the name that it is about."""

    kind: FailureClass
    first_error: str
    symbol: str = ""

    @property
    def final(self) -> bool:
        """Whether the same inputs would fail in the same way; a push that a registry refused may succeed later."""
        return self.kind not in {FailureClass.TRANSIENT, FailureClass.PUSH}


class CheckName(StrEnum):
    """Checks before an image is published, repeated by its consumer."""

    CONTENTS = "contents"
    VERMAGIC = "vermagic"
    CRC = "crc"
    SIGNATURE = "signature"
    VERSIONS = "versions"
    BOOT = "boot"
    IMAGE_SIGNATURE = "image-signature"
    SBOM = "sbom"
    PROVENANCE = "provenance"
    MANIFEST = "manifest"


class Verdict(Struct, frozen=True, kw_only=True):
    """The result of one check; `passed` is None if it was not made; `reason` states why, in each case."""

    check: CheckName
    passed: bool | None
    reason: str
    symbols: tuple[str, ...] = ()


def build_key(identity: Identity, inputs: Sequence[Input]) -> str:
    """64 hex digits over the identity and all inputs; their order does not count. Same key, same image."""
    facts = [[entry.kind, entry.name, entry.version, entry.sha256] for entry in sorted(inputs)]
    named = [(name, getattr(identity, name)) for name in identity.__struct_fields__]
    return hash_facts([("identity", named), ("inputs", facts)], 64)


def escape_tag(text: str) -> str:
    """`text` in characters that a tag may contain: every other byte as `_` and two hex digits. Injective."""
    letters = (chr(byte) for byte in text.encode(errors="surrogatepass"))
    return "".join(letter if _PLAIN.fullmatch(letter) else f"_{ord(letter):02x}" for letter in letters)


def escape_opening(text: str) -> str:
    """Escaped text with which a tag may begin: with neither a dot nor a hyphen at its start. Injective."""
    return f"_{ord(text[0]):02x}{text[1:]}" if text[:1] in {".", "-"} else text


def hash_facts(facts: object, count: int) -> str:
    """The first `count` hex digits of the SHA-256 of facts as JSON."""
    data = json.dumps(facts, separators=(",", ":"), ensure_ascii=True).encode()
    return hashlib.sha256(data).hexdigest()[:count]
