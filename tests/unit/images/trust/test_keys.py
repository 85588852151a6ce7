"""Files that should be keys, and are not: said before anything is done with them."""

import pytest

from upgrader.core.errors import ConfigurationError
from upgrader.images.trust.keys import parse_public_key, public_key, signing_key
from upgrader.images.trust.values import SigningKey

# of a pair that was made for this test, and whose other half is gone
PUBLIC = """-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEbrmKNc4+vAB/xIFSPcXDeWlp8aI8
LNNs1WlMDe8ycYyvyPNee0L0jMYh2ag5IRo6cLSK07U0t4lPfJ/jiYqTnw==
-----END PUBLIC KEY-----
"""
PRIVATE = "-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED SIGSTORE PRIVATE KEY-----\n"
PLAIN = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"


@pytest.fixture
def file(tmp_path):
    def write(text):
        path = tmp_path / "key"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def test_a_public_key_and_the_hint_that_cosign_gives_for_it(file):
    key = public_key(file(PUBLIC))
    assert (key.pem, key.hint) == (PUBLIC, "/DouM85k+DzEaZI5WZ4adkK+BduaKilvY0zAe7FUVvg=")
    assert parse_public_key(PUBLIC, "a Secret") == key


@pytest.mark.parametrize(
    ("text", "details"),
    [
        ("", "no PEM of a public key"),
        ("hello", "no PEM of a public key"),
        (b"\xff\xfe", "not text"),
        (PUBLIC + PUBLIC, "no PEM of a public key"),
        (PUBLIC.replace("==", ""), "adding"),
        (PRIVATE, "verification does not need"),
        (PLAIN, "verification does not need"),
    ],
)
def test_what_is_no_public_key(file, text, details):
    with pytest.raises(ConfigurationError, match=r"not a public key|is not a key") as raised:
        public_key(file(text))
    assert details in raised.value.details
    assert "cosign generate-key-pair" in raised.value.resolution


@pytest.mark.parametrize("text", ["", "hello", PUBLIC, PLAIN, "\n" + PRIVATE])
def test_what_does_not_sign(file, text):
    with pytest.raises(ConfigurationError, match="not a signing key of cosign") as raised:
        signing_key(file(text), {"COSIGN_PASSWORD": "x"})
    assert "cosign import-key-pair" in raised.value.resolution


@pytest.mark.parametrize("read", [public_key, signing_key])
def test_a_file_that_is_not_there(tmp_path, read):
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read(tmp_path / "nothing")


def test_a_key_without_its_password_is_refused_before_cosign_would_ask_a_terminal(file):
    with pytest.raises(ConfigurationError, match=r"the password of .* is missing") as raised:
        signing_key(file(PRIVATE), {})
    assert "Set COSIGN_PASSWORD" in raised.value.resolution


@pytest.mark.parametrize("password", ["", "battery staple"])
def test_a_password_comes_from_the_environment_and_is_never_shown(file, password):
    path = file(PRIVATE)
    key = signing_key(path, {"COSIGN_PASSWORD": password})
    assert key == SigningKey(path=path, password=password)
    assert "staple" not in repr(key)
