"""Redaction of a report: names, addresses, identifiers and secrets become pseudonyms.

The same text has the same pseudonym in the whole report, so that a reader can compare. Pseudonyms are hashes with a
key: without it, and it is no part of the report, nobody can try all addresses. Too much is replaced rather than too
little: a version such as 1.2.3.4 looks like an address.
"""

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Iterable, Mapping
from functools import partial

DIGITS = 10
SHORTEST_NAME, MOST_PIECES = 2, 40
"""Characters and pieces (between dots and dashes) of a name. Without names of one letter nothing would be left."""

_MADE = re.compile(r"(?:host|address|serial|secret|id)-[0-9a-f]{10}-redacted")
"""Pseudonyms, which are not replaced again."""

_WORD = re.compile(r"[0-9A-Za-z]+(?:[._-]+[0-9A-Za-z]+)*")
_SEPARATOR = re.compile(r"([._-]+)")
_EDGE, _END = "(?<![0-9A-Za-z])", "(?![0-9A-Za-z])"
_VALUE = r"[^\s\"'<>,;]"
_KEYS = r"(?i)(?:token|passw(?:or)?d|secret|api[_-]?key|authorization)[\"']?\s{0,8}[:=>]\s{0,8}[\"']?"
_SERIAL_KEY = r"(?i)serial(?:[ _-]?(?:number|no))?[\"']?\s{0,64}[:=>]\s{0,8}[\"']?"

# In this order. A group `value` is what is replaced of a longer text.
_PATTERNS = (
    ("secret", r"(?<=://)(?P<value>[^/\s@]{1,256})(?=@)"),
    ("host", rf"(?<!containerd)(?<!cri-o)(?<!docker)://(?P<value>{_WORD.pattern})"),  # those are versions
    ("secret", rf"{_EDGE}eyJ[0-9A-Za-z_-]{{8,}}(?:\.[0-9A-Za-z_-]+)*"),
    ("secret", rf"(?i){_EDGE}(?:bearer|basic)\s{{1,8}}(?P<value>{_VALUE}{{6,}})"),
    ("secret", rf"{_KEYS}(?P<value>(?!bearer|basic){_VALUE}{{4,}})"),
    ("serial", rf"{_SERIAL_KEY}(?P<value>(?={_VALUE}{{0,64}}[0-9]){_VALUE}{{4,}})"),
    ("id", rf"{_EDGE}(?:iqn|nqn|wwn|eui|naa)\.[0-9A-Za-z.:_-]+"),
    ("id", rf"{_EDGE}[0-9A-Fa-f]{{8}}-(?:[0-9A-Fa-f]{{4}}-){{3}}[0-9A-Fa-f]{{12}}{_END}"),
    ("id", rf"{_EDGE}[0-9A-Fa-f]{{32}}{_END}"),
    ("address", rf"{_EDGE}(?:[0-9A-Fa-f]{{2}}[:-]){{5,19}}[0-9A-Fa-f]{{2}}{_END}"),
    ("ip", rf"{_EDGE}(?=[0-9A-Fa-f.]{{0,60}}:)[0-9A-Fa-f:][0-9A-Fa-f:.]{{1,60}}(?<=[0-9A-Fa-f:]){_END}"),
    ("address", rf"{_EDGE}ip-(?:[0-9]{{1,3}}-){{3}}[0-9]{{1,3}}{_END}"),
    ("ip", r"(?<![0-9])(?<![0-9]\.)(?:[0-9]{1,3}\.){3}[0-9]{1,3}(?![0-9])(?!\.[0-9])"),
    ("id", rf"{_EDGE}0x(?!0000|ffff)[0-9A-Fa-f]{{16,40}}{_END}"),  # not of memory
    ("id", rf"{_EDGE}(?:[0-9A-Fa-f]{{4}}:){{3,7}}[0-9A-Fa-f]{{4}}{_END}"),
)


class Redactor:
    """Replaces everything that identifies a machine, a network or a person.

    Args:
        key: of the pseudonyms.
        names: of hosts and objects, which are known from the cluster and the node. Each is replaced where it is no part
            of a longer word; a name with dots also hides the names below it and beside it.
    """

    def __init__(self, key: bytes, names: Iterable[str] = ()) -> None:
        self._key = key
        known = {name.lower().strip(".") for name in names}
        known |= {name.partition(".")[2] for name in known if name.count(".") > 1}
        pieces = {name: len(_SEPARATOR.split(name)) for name in known if len(name) >= SHORTEST_NAME}
        self._names = frozenset(name for name, count in pieces.items() if count < 2 * MOST_PIECES)
        self._longest = max((pieces[name] for name in self._names), default=0)
        steps = [partial(_WORD.sub, lambda found: self._hide_names(found[0]))]
        steps += [partial(re.compile(pattern).sub, partial(self._hide_found, kind)) for kind, pattern in _PATTERNS]
        self._steps = tuple(steps)

    def redact_text(self, text: str) -> str:
        """The text with pseudonyms, in the same lines."""
        for step in self._steps:
            parts, begin = [], 0
            for made in _MADE.finditer(text):
                parts += [step(text[begin : made.start()]), made[0]]
                begin = made.end()
            text = "".join((*parts, step(text[begin:])))
        return text

    def redact_value(self, value: object) -> object:
        """A value of JSON with pseudonyms in its texts; the escapes of JSON would hide where a name begins."""
        if isinstance(value, str):
            return self.redact_text(value)
        if isinstance(value, Mapping):
            return {self.redact_value(key): self.redact_value(each) for key, each in value.items()}
        return [self.redact_value(each) for each in value] if isinstance(value, list | tuple) else value

    def _hide_names(self, word: str) -> str:
        """A word with the longest known names in it replaced; below a domain, the whole begin of the word."""
        pieces = _SEPARATOR.split(word)
        parts: list[str] = []
        at = 0
        while at < len(pieces):
            last = min(len(pieces), at + self._longest)
            last -= (last - at + 1) % 2  # it ends with a piece, not with a separator
            found = next((end for end in range(last, at, -2) if self._is_known(pieces[at:end])), at)
            name = "".join(pieces[at:found])
            if found > at:
                front = "".join(parts) if "." in name and parts and parts[-1] == "." else ""
                parts = [] if front else parts
                parts.append(self._make_pseudonym("host", front + name))
                at = found
            else:
                parts.append(pieces[at])
                at += 1
        return "".join(parts)

    def _is_known(self, pieces: list[str]) -> bool:
        return "".join(pieces).lower() in self._names

    def _hide_found(self, kind: str, found: re.Match[str]) -> str:
        value = found["value"] if "value" in found.re.groupindex else found[0]
        if kind == "ip":
            return self._make_pseudonym("address", value) if _may_be_machine(value) else found[0]
        return found[0][: len(found[0]) - len(value)] + self._make_pseudonym(kind, value)

    def _make_pseudonym(self, kind: str, text: str) -> str:
        digest = hmac.new(self._key, f"{kind}:{text.lower()}".encode(errors="replace"), hashlib.sha256).hexdigest()
        return f"{kind}-{digest[:DIGITS]}-redacted"


def _may_be_machine(text: str) -> bool:
    """Whether it is an address of a machine, or looks like one: four numbers, or `::` and a digit."""
    try:
        address = ipaddress.ip_address(text.strip("."))
    except ValueError:
        return ":" not in text or ("::" in text and any(letter.isalnum() for letter in text))
    return not (address.is_loopback or address.is_unspecified)
