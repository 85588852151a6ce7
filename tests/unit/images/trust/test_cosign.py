"""cosign's command lines, and what is made of its answers; the real one: tests/images."""

import asyncio
import json
import traceback

import pytest

from upgrader.core.errors import ConfigurationError, ProcessError
from upgrader.images.trust import cosign as door
from upgrader.images.trust.cosign import Cosign
from upgrader.images.trust.values import Bundle, PublicKey, SigningKey

STATEMENT = b'{"a": 1}'
KIND = "https://example.com/kind"
KEY = PublicKey(pem="-----BEGIN PUBLIC KEY-----\n", hint="h")
BUNDLE = Bundle(data=b"{}", predicate_type=KIND)
WRITES = """#!/bin/sh
# notes how it was called and what it was given; writes a bundle as the real one
here=$(dirname "$0")
printf '%s\\n' "$@" > "$here/words"
env > "$here/environment"
while [ $# -gt 0 ]; do
  case "$1" in
    --statement|--signing-config|--trusted-root|--key) cp "$2" "$here/given$1" 2>/dev/null ;;
    --bundle) if [ -f "$2" ]; then cp "$2" "$here/given$1"; else printf made > "$2"; fi ;;
  esac
  shift
done
"""


@pytest.fixture
def program(tmp_path):
    def write(text):
        path = tmp_path / "cosign"
        path.write_text(text)
        path.chmod(0o755)
        return Cosign(path)

    return write


def sign(cosign, tmp_path, password="battery staple"):  # noqa: S107
    return asyncio.run(cosign.sign(STATEMENT, KIND, SigningKey(path=tmp_path / "my.key", password=password)))


def test_it_signs_without_a_log_and_gets_its_password_by_the_environment(program, tmp_path):
    made = sign(program(WRITES), tmp_path)
    assert made == Bundle(data=b"made", predicate_type=KIND)
    assert (tmp_path / "given--statement").read_bytes() == STATEMENT
    assert json.loads((tmp_path / "given--signing-config").read_text()) == door.SIGNING_CONFIG
    assert json.loads((tmp_path / "given--trusted-root").read_text()) == door.TRUSTED_ROOT
    words = (tmp_path / "words").read_text().split("\n")
    assert words[:4] == ["attest-blob", "--yes", "--key", str(tmp_path / "my.key")]
    assert "staple" not in "".join(words)
    assert "COSIGN_PASSWORD=battery staple" in (tmp_path / "environment").read_text()


def test_it_verifies_one_type_about_one_digest_with_one_key(program, tmp_path):
    assert asyncio.run(program(WRITES).find_refusal(BUNDLE, KEY, "d" * 64)) is None
    words = (tmp_path / "words").read_text().split("\n")
    assert words[:2] == ["verify-blob-attestation", "--insecure-ignore-tlog=true"]
    assert words[words.index("--type") + 1] == KIND
    assert words[words.index("--digest") + 1 : words.index("--digest") + 4] == ["d" * 64, "--digestAlg", "sha256"]
    assert (tmp_path / "given--key").read_text() == KEY.pem
    assert (tmp_path / "given--bundle").read_bytes() == BUNDLE.data


def test_a_refused_signature_is_a_reason(program):
    cosign = program("#!/bin/sh\necho 'Error: failed to verify signature: it is wrong' >&2\nexit 1\n")
    assert asyncio.run(cosign.find_refusal(BUNDLE, KEY, "d" * 64)) == "it is wrong"


@pytest.mark.parametrize("said", ["no space left on device", "failed to read", "", "panic: nil"])
def test_any_other_failure_is_doubt(program, said):
    cosign = program(f"#!/bin/sh\necho 'Error: {said}' >&2\nexit 1\n")
    with pytest.raises(ProcessError, match="ended with exit code 1"):
        asyncio.run(cosign.find_refusal(BUNDLE, KEY, "d" * 64))


@pytest.mark.parametrize(
    "said", ["reading key: decrypt: encrypted: decryption failed", "reading key: invalid pem block"]
)
def test_a_key_that_cannot_be_used_is_the_callers(program, tmp_path, said):
    cosign = program(f'#!/bin/sh\necho "Error: {said} $COSIGN_PASSWORD" >&2\nexit 1\n')
    with pytest.raises(ConfigurationError, match=r"my\.key cannot be used") as raised:
        sign(cosign, tmp_path)
    assert said in raised.value.details
    assert "staple" not in "".join(traceback.format_exception(raised.value))


def test_a_public_key_that_cosign_does_not_know(program):
    cosign = program("#!/bin/sh\necho 'Error: loading public key: asn1' >&2\nexit 1\n")
    with pytest.raises(ConfigurationError, match="the public key cannot be used"):
        asyncio.run(cosign.find_refusal(BUNDLE, KEY, "d" * 64))


def test_no_cosign_says_where_there_is_one(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigurationError, match="cosign is missing"):
        door.find_cosign()
