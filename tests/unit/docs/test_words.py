"""Words that were dropped for those of docs/concepts/glossary.md do not come back."""

import re
from pathlib import Path

from tests.support.repository import ROOT

DROPPED = {
    r"conversations?": "checkpoint request",
    r"talk(s|ed|ing)?": "checkpoint request",
    r"harvest(s|ed|ing)?": "wait for completion",
    r"visit(s|ed|ing)?": "node upgrade",
    r"closures?": "upgrade group",
    r"errands?": "node pod, pod result",
    r"expended": "terminated, expendable",
    r"bring-?backs?": "repair",
    r"leap-?frog(ged|s)?": "early restart",
    r"so-manieth": "the number of",
    r"envelopes?": "limits",
    r"uncover(ed|s)?": "without a driver image, to remove a driver",
}
DSSE = re.compile(r"images/|/trust/|fuzz/|driver-image-trust")
"""Where an envelope is one of DSSE, the format of signatures."""


def texts() -> dict[str, str]:
    """Everything that people read or call: documentation, CRDs, manifests, the code of the product."""
    folders = {"docs": "*.md", "crds": "*.yaml", "deploy": "*.yaml", "upgrader": "*.py"}
    paths = [path for folder, pattern in folders.items() for path in (ROOT / folder).rglob(pattern)]
    return {str(path.relative_to(ROOT)): path.read_text() for path in (*paths, ROOT / "README.md")}


def parts(text: str) -> set[str]:
    """Words, those inside of identifiers too: `ClosureView`, `next_closure` and `closures` have the word closure."""
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text).replace("_", " ")
    return {word.lower() for word in re.findall(r"[A-Za-z][A-Za-z-]*", f"{text} {apart}")}


def uses(path: str, text: str) -> set[str]:
    words = parts(text)
    found = {word for word in words for dropped in DROPPED if re.fullmatch(dropped, word)}
    return {word for word in found if not (word.startswith("envelope") and DSSE.search(path))}


def test_no_dropped_word_comes_back() -> None:
    assert {path: found for path, text in texts().items() if (found := uses(path, text))} == {}


def test_they_are_found_wherever_they_hide() -> None:
    text = "A Closure, next_closure, spec.errands, ClosureView: `leapFrogged`, the bring-back."
    assert uses("docs/x.md", text) == {"closure", "errands", "leapfrogged", "bring-back"}
    assert uses("docs/x.md", "an envelope") == {"envelope"}
    assert uses("docs/guides/driver-images/trust.md", "a DSSE envelope") == set()


def test_terms_are_sorted_and_each_is_one_sentence() -> None:
    page = Path(ROOT / "docs/concepts/glossary.md").read_text()
    rows = re.findall(r"^\| ([A-Za-z ]+) \| (.+) \|$", page, re.MULTILINE)[1:]
    terms = [term for term, _ in rows]
    assert terms == sorted(terms, key=str.lower)
    assert len(terms) > 25
    assert [term for term, meaning in rows if not re.fullmatch(r"[A-Z].*[^.]\.", meaning) or ". " in meaning] == []
