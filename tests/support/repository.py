"""Places in the repository, and the manifests that its documentation shows."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from upgrader.api.names import GROUP

ROOT = Path(__file__).parents[2]

DATED = ROOT / "docs/contributing/design"
GENERATED = {ROOT / "docs" / page for page in ("reference/phases.md", "reference/plan-json.md")}
"""Pages that `make generate` writes."""

FORECAST = ROOT / "docs/contributing/forecast-1750.md"
"""The page that tests/bench/page.py writes."""

_BLOCK = re.compile(r"^```ya?ml\n(.*?)^```", re.MULTILINE | re.DOTALL)


def documented_manifests() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every manifest of our own kinds in the documentation: where it stands, and the manifest."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    texts = [(page, block) for page in pages for block in _BLOCK.findall(page.read_text())]
    texts += [(page, page.read_text()) for page in sorted((ROOT / "docs").rglob("*.yaml"))]
    for page, text in texts:
        for manifest in yaml.safe_load_all(text):
            if isinstance(manifest, dict) and str(manifest.get("apiVersion", "")).startswith(f"{GROUP}/"):
                yield f"{page.relative_to(ROOT)}: {manifest['kind']} {manifest['metadata']['name']}", manifest


def written_pages() -> list[Path]:
    """The pages that people write and keep current: neither generated ones nor dated notes."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in pages if DATED not in page.parents and page not in {*GENERATED, FORECAST}]
