import traceback

import pytest

from upgrader.core.errors import ConfigurationError
from upgrader.images.debian.archives import FROZEN, KEYRING, MIRROR, Archives, configured_archives


@pytest.fixture
def keyring(tmp_path):
    (tmp_path / "keys.gpg").write_bytes(b"")
    return tmp_path / "keys.gpg"


@pytest.mark.parametrize(
    ("mirror", "base"),
    [
        ("https://mirror.example.org/", "https://mirror.example.org/debian/"),
        ("http://mirror.example.org/of/debian", "http://mirror.example.org/of/debian/debian/"),
        ("file:/srv/mirror", "file:/srv/mirror/debian/"),
        ("/srv/mirror/", "file:/srv/mirror/debian/"),
    ],
)
def test_a_mirror_is_an_address_or_a_folder(keyring, mirror, base):
    found = configured_archives({MIRROR: mirror, KEYRING: str(keyring), FROZEN: "1"})
    assert found.base_url("debian") == base
    assert found.base_url("debian-security") == base.removesuffix("debian/") + "debian-security/"
    assert (found.keyring, found.frozen) == (keyring, True)


def test_a_suite_lies_in_one_archive(keyring):
    found = configured_archives({MIRROR: "/srv", KEYRING: str(keyring)})
    suites = ("bookworm", "bookworm-backports", "bookworm-security", "sid")
    assert [found.archive_of(suite) for suite in suites] == ["debian", "debian", "debian-security", "debian"]


@pytest.mark.parametrize("mirror", ["ftp://x", "https://a b", 'https://a"b', "https://a [trusted=yes]", "mirror"])
def test_what_is_no_address_is_refused(keyring, mirror):
    with pytest.raises(ConfigurationError, match="is not an address of an archive"):
        configured_archives({MIRROR: mirror, KEYRING: str(keyring)})


@pytest.mark.parametrize(
    "mirror", ["https://me:s3cr3t@example.org", "mirror:http://s3cr3t@example.org/x", "http:s3cr3t@x"]
)
def test_a_password_is_for_apts_own_file_and_not_for_command_lines(keyring, mirror):
    with pytest.raises(ConfigurationError, match=r"auth\.conf\.d") as raised:
        configured_archives({MIRROR: mirror, KEYRING: str(keyring)})
    assert "s3cr3t" not in "".join(traceback.format_exception(raised.value))


def test_a_folder_may_have_an_at_sign_in_it(keyring):
    assert (
        configured_archives({MIRROR: "/srv/me@here", KEYRING: str(keyring)}).base_url("debian")
        == "file:/srv/me@here/debian/"
    )


@pytest.mark.parametrize("suite", ["../x", "trixie main", "-x", "trixie]"])
def test_a_suite_is_checked_before_it_stands_in_a_source(keyring, suite):
    with pytest.raises(ConfigurationError, match="is not a suite"):
        configured_archives({MIRROR: "/srv", KEYRING: str(keyring)}).archive_of(suite)


def test_without_the_keys_there_is_no_archive(tmp_path):
    with pytest.raises(ConfigurationError, match=r"the keyring .* does not exist"):
        configured_archives({MIRROR: "/srv", KEYRING: str(tmp_path / "none")})


def test_an_archive_that_the_machine_does_not_have(keyring):
    with pytest.raises(ConfigurationError, match="has no archive debian-security"):
        Archives(bases={"debian": "file:/srv/debian/"}, keyring=keyring).base_url("debian-security")


def test_the_machines_own_archives(keyring, tmp_path, monkeypatch):
    """apt-get's answer as apt 2.6 and 3.0 give it, with an archive of somebody else between."""
    said = "Other\\thttp://other.example.org/\\nDebian-Security\\thttp://m.example.org/s/\\nDebian\\thttp://m.example.org/d/\\n"
    (tmp_path / "apt-get").write_text(f"#!/bin/sh\nprintf '{said}'\n")
    (tmp_path / "apt-get").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    found = configured_archives({KEYRING: str(keyring)})
    assert found.bases == {"debian": "http://m.example.org/d/", "debian-security": "http://m.example.org/s/"}
    (tmp_path / "apt-get").write_text("#!/bin/sh\n")
    with pytest.raises(ConfigurationError, match="apt on this machine is configured with no Debian archive"):
        configured_archives({KEYRING: str(keyring)})
