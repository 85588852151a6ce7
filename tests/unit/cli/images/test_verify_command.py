"""`upgrader images verify` of a store: what nobody vouches for is not verified, whatever is right in it."""

import json

import pytest
from click.testing import CliRunner

from tests.support.driver_images import driver_files, known_headers, whole_image
from upgrader.cli.main import program
from upgrader.core.errors import UncheckedError, UnverifiedError

UNSIGNED = ["image-signature", "provenance", "sbom"]


@pytest.fixture
def verify(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    files = driver_files(tmp_path / "modules")

    def run(*words, **changes):
        whole_image(tmp_path / "image", {**files, **changes})
        return CliRunner().invoke(program, ["images", "verify", f"oci:{tmp_path / 'image'}", *words])

    return run


def test_an_image_of_a_store_is_not_verified(verify, tmp_path):
    known_headers(tmp_path / "cache")
    ended = verify("--output", "json")
    said = json.loads(ended.stdout)
    assert [one["check"] for one in said["checks"] if one["passed"] is False] == []
    assert (said["verified"], ended.exit_code) == (False, UncheckedError.exit_code)
    assert f"is not verified; checks not run: {', '.join(UNSIGNED)}\n" in ended.stderr


@pytest.mark.parametrize("words", [(), ("--boot",)], ids=["plain", "boot"])
def test_the_table_says_so_too_and_a_check_that_was_asked_for_counts(verify, words):
    ended = verify(*words)
    missing = [*UNSIGNED, "vermagic", "crc", *(["boot"] if words else [])]
    assert ended.exit_code == UncheckedError.exit_code
    assert f"is not verified; checks not run: {', '.join(missing)}\n" in ended.stderr
    assert "contents" in ended.stdout


def test_what_is_wrong_comes_first(verify):
    ended = verify("--output", "json", **{"load-order": b"other"})
    assert (json.loads(ended.stdout)["verified"], ended.exit_code) == (False, UnverifiedError.exit_code)
