"""Words that were dropped for those of docs/concepts/glossary.md do not come back."""

import re
from pathlib import Path

import pytest

from tests.support.repository import ROOT, written_pages

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
    r"ours|theirs": "the name of the owner: the operator, another operator, a user",
}
AVOIDED_IN_PAGES = (
    "anybody",
    "anyone",
    "at once",
    "everybody",
    "gives? back",
    "goes? on",
    "heard",
    "hears?",
    "houserules?",
    "(?:is|are|was|were) told",
    "let go",
    "nobody",
    "ours",
    "people",
    "persons?",
    "said",
    "says?",
    "somebody",
    "someone",
    "theirs",
    "there and back",
    "whoever",
)
"""Words and phrases that plain technical English avoids. Code and dated notes may still have them."""

DATED = "docs/contributing/design/"
"""Notes of their date, which are not rewritten."""

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
    if path.startswith(DATED):
        found -= {"ours", "theirs"}
    return {word for word in found if not (word.startswith("envelope") and DSSE.search(path))}


def test_no_dropped_word_comes_back() -> None:
    assert {path: found for path, text in texts().items() if (found := uses(path, text))} == {}


def test_names_in_dev_and_tests_state_the_owner() -> None:
    paths = [path for folder in ("dev", "tests") for path in (ROOT / folder).rglob("*.py") if path != Path(__file__)]
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in paths}
    assert [path for path, text in texts.items() if parts(text) & {"ours", "theirs"}] == []


def test_they_are_found_wherever_they_hide() -> None:
    text = "A Closure, next_closure, spec.errands, ClosureView: `leapFrogged`, the bring-back."
    assert uses("docs/x.md", text) == {"closure", "errands", "leapfrogged", "bring-back"}
    assert uses("docs/x.md", "an envelope") == {"envelope"}
    assert uses("upgrader/x.py", "in_ours, Closing") == {"ours"}
    assert uses("docs/contributing/design/2026-11-21-x.md", "ours") == set()
    assert uses("docs/guides/driver-images/trust.md", "a DSSE envelope") == set()


def test_terms_are_sorted_and_each_is_one_sentence() -> None:
    page = Path(ROOT / "docs/concepts/glossary.md").read_text()
    rows = re.findall(r"^\| ([A-Za-z ]+) \| (.+) \|$", page, re.MULTILINE)[1:]
    terms = [term for term, _ in rows]
    assert terms == sorted(terms, key=str.lower)
    assert len(terms) > 25
    assert [term for term, meaning in rows if not re.fullmatch(r"[A-Z].*[^.]\.", meaning) or ". " in meaning] == []


def avoided_words(text: str) -> list[str]:
    """Uses in prose, tables and headings. Code, quoted messages, and the user nobody are left out."""
    text = re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL)
    text = " ".join(re.sub(r"`[^`]*`", "", text).split())
    text = re.sub(r'user nobody|"[^"]*"', "", text)
    words = re.compile(rf"\b(?:{'|'.join(AVOIDED_IN_PAGES)})\b", re.IGNORECASE)
    return [use[0] for use in words.finditer(text)]


@pytest.mark.parametrize(
    "page",
    [page for page in written_pages() if page.name != "glossary.md"],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_pages_avoid_words(page: Path) -> None:
    assert avoided_words(page.read_text()) == []


def test_avoided_words_are_found() -> None:
    text = 'Whoever hears it is\ntold.\n```\nnobody\n```\n`says` by the user nobody: "they said"'
    assert avoided_words(text) == ["Whoever", "hears", "is told"]
