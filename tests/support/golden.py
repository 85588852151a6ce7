"""Golden files: what people and programs see, kept beside the tests.

UPDATE_GOLDEN=1 (`make golden`) writes them anew; read the diff.
"""

import os
from pathlib import Path
from typing import Any

import yaml


class InFull(yaml.SafeDumper):
    """What stands in several places is written in each, as in the API server."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def in_full(manifest: dict[str, Any]) -> str:
    """A manifest as a person reads it."""
    return yaml.dump(manifest, Dumper=InFull, sort_keys=False, width=110)


def assert_golden(path: Path, text: str) -> None:
    """The text is what the file holds."""
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert path.exists(), f"{path} is not there: run with UPDATE_GOLDEN=1 and look at it"
    assert text == path.read_text()
