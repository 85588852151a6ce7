from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from aiohttp import web

from tests.support.apt_repository import DAY, throw_away_key
from tests.support.file_server import serving
from upgrader.core.driver_build.driver_builds import FailureClass
from upgrader.core.errors import ConfigurationError
from upgrader.images.debian.apt import Apt, Index
from upgrader.images.debian.errors import UnreachableArchiveError, UntrustedArchiveError
from upgrader.images.debian.stanzas import read_stanzas

LISTS = {"main": "Package: tool\nVersion: 1\n\nPackage: other\nVersion: 2\n"}


@pytest.fixture
def apt(tmp_path, repository):
    return Apt(tmp_path / "apt", repository.archives, ("trixie",), ("main",))


@pytest.fixture
def no_retries(tmp_path, monkeypatch):
    """A setting of the machine that stays."""
    settings = tmp_path / "machine.conf"
    settings.write_text('Acquire::Retries "0";')
    monkeypatch.setenv("APT_CONFIG", str(settings))


def refusal(apt):
    with pytest.raises(UntrustedArchiveError) as refused:
        apt.update_lists()
    assert refused.value.kind is FailureClass.TRANSIENT
    return refused.value


def test_signed_lists_are_there_to_be_read(apt, repository):
    repository.publish("trixie", LISTS)
    with apt.updated_lists():
        (index,) = apt.verified_indices()
        assert index == Index(suite="trixie", component="main", path=index.path)
        assert list(read_stanzas(index, lambda name: name == "other")) == [{"Package": "other", "Version": "2"}]
        assert set(apt.signed_digests()) == {"trixie"}


def test_both_archives_are_asked_for_their_suites(tmp_path, repository):
    repository.publish("trixie", LISTS)
    repository.publish("trixie-security", LISTS)
    both = Apt(tmp_path / "apt", repository.archives, ("trixie", "trixie-security"), ("main",))
    both.update_lists()
    assert {index.suite for index in both.verified_indices()} == {"trixie", "trixie-security"}


def test_another_key_is_refused(apt, repository, other_key):
    repository.publish("trixie", LISTS, key=other_key)
    assert refusal(apt).brief == "trixie is not signed by a key of the keyring; none of it was read"


def test_a_key_that_has_expired_is_refused(tmp_path, repository):
    with throw_away_key(made=datetime.now(UTC) - 10 * DAY, days=1) as old:
        repository.publish("trixie", LISTS, key=old)
        trusting = msgspec.structs.replace(repository.archives, keyring=old.keyring)
        assert "trixie is not signed" in refusal(Apt(tmp_path / "apt", trusting, ("trixie",), ("main",))).brief


@pytest.mark.parametrize("scheme", ["file", "http"])
def test_without_a_signature_it_is_refused(tmp_path, repository, scheme):
    repository.publish("trixie", LISTS)
    signed = repository.suite("trixie") / "InRelease"
    plain = signed.read_text().split("\n\n", 1)[1].split("-----BEGIN PGP SIGNATURE")[0]
    signed.unlink()
    signed.with_name("Release").write_text(plain)
    with serving(repository.folder) as address:
        bases = repository.archives.bases if scheme == "file" else {"debian": f"{address}/debian/"}
        asked = msgspec.structs.replace(repository.archives, bases=bases)
        refused = refusal(Apt(tmp_path / "apt", asked, ("trixie",), ("main",)))
    assert refused.brief == "trixie is not signed by a key of the keyring; none of it was read"


def test_a_changed_release_file_is_refused(apt, repository):
    repository.publish("trixie", LISTS)
    signed = repository.suite("trixie") / "InRelease"
    signed.write_text(signed.read_text().replace("Origin: Debian", "Origin: Nobody"))
    assert refusal(apt).brief == "trixie is not signed by a key of the keyring; none of it was read"


def test_a_release_file_past_its_date_is_refused(apt, repository):
    repository.publish("trixie", LISTS, dated=datetime.now(UTC) - 10 * DAY, valid=DAY)
    assert refusal(apt).brief == "trixie is out of date; none of it was read"


def test_a_frozen_mirror_may_be_past_its_date_but_must_be_signed(tmp_path, repository, other_key):
    frozen = msgspec.structs.replace(repository.archives, frozen=True)
    apt = Apt(tmp_path / "apt", frozen, ("trixie",), ("main",))
    repository.publish("trixie", LISTS, dated=datetime.now(UTC) - 10 * DAY, valid=DAY)
    apt.update_lists()
    assert len(list(apt.verified_indices())) == 1
    repository.publish("trixie", LISTS, dated=datetime.now(UTC) - 9 * DAY, valid=DAY, key=other_key)
    assert "trixie is not signed" in refusal(apt).brief


def test_a_release_file_of_the_future_is_refused(apt, repository):
    repository.publish("trixie", LISTS, dated=datetime.now(UTC) + 2 * DAY)
    assert refusal(apt).brief == "trixie is dated in the future; none of it was read"


def test_changed_lists_are_refused(apt, repository):
    repository.publish("trixie", LISTS)
    path = repository.suite("trixie") / "main/binary-amd64/Packages"
    path.write_text(path.read_text().replace("Version: 2", "Version: 3"))
    assert refusal(apt).brief == "trixie has lists that differ from its signed Release file; none of it was read"


def test_the_suite_at_fault_is_named_and_not_its_neighbour(tmp_path, repository, other_key):
    repository.publish("trixie", LISTS)
    repository.publish("trixie-security", LISTS, key=other_key)
    both = Apt(tmp_path / "apt", repository.archives, ("trixie", "trixie-security"), ("main",))
    assert refusal(both).brief.startswith("trixie-security is not signed")


def test_lists_of_before_are_not_taken_for_those_of_now(apt, repository, other_key):
    repository.publish("trixie", LISTS)
    apt.update_lists()
    repository.publish("trixie", LISTS, dated=datetime.now(UTC) + timedelta(minutes=1), key=other_key)
    refusal(apt)


def test_a_suite_that_is_not_there_is_a_wrong_setting(apt, repository):
    repository.publish("bookworm", LISTS)
    with pytest.raises(ConfigurationError, match="the archive has no suite trixie"):
        apt.update_lists()


@pytest.mark.parametrize(
    ("status", "error", "says"),
    [
        (404, ConfigurationError, "the archive has no suite trixie"),
        (403, UnreachableArchiveError, "trixie cannot be read"),
        (503, UnreachableArchiveError, "trixie cannot be read"),
    ],
)
def test_only_what_the_archive_says_itself_is_absence(tmp_path, repository, no_retries, status, error, says):
    async def answer(_request):
        return web.Response(status=status)

    with serving(repository.folder, answer=answer) as address:
        bases = {"debian": f"{address}/debian/"}
        apt = Apt(tmp_path / "apt", msgspec.structs.replace(repository.archives, bases=bases), ("trixie",), ("main",))
        with pytest.raises(error, match=says):
            apt.update_lists()


def test_a_component_that_is_not_there_is_a_wrong_setting(tmp_path, repository):
    repository.publish("trixie", LISTS)
    with pytest.raises(ConfigurationError, match="no component 'non-free'"):
        Apt(tmp_path / "apt", repository.archives, ("trixie",), ("main", "non-free")).update_lists()


def test_an_archive_that_does_not_answer_is_doubt(tmp_path, repository, no_retries):
    silent = msgspec.structs.replace(repository.archives, bases={"debian": "http://127.0.0.1:9/debian/"})
    with pytest.raises(UnreachableArchiveError, match="trixie cannot be read"):
        Apt(tmp_path / "apt", silent, ("trixie",), ("main",)).update_lists()


def test_one_that_no_longer_answers_is_doubt_too(tmp_path, repository, no_retries):
    repository.publish("trixie", LISTS)
    with serving(repository.folder) as address:
        bases = {"debian": f"{address}/debian/"}
        apt = Apt(tmp_path / "apt", msgspec.structs.replace(repository.archives, bases=bases), ("trixie",), ("main",))
        apt.update_lists()
    with pytest.raises(UnreachableArchiveError, match="trixie cannot be read"):
        apt.update_lists()


def test_the_machines_exceptions_from_checking_do_not_hold_here(apt, repository, tmp_path, monkeypatch):
    repository.publish("trixie", LISTS)
    signed = repository.suite("trixie") / "InRelease"
    signed.rename(signed.with_name("Release"))
    settings = tmp_path / "machine.conf"
    settings.write_text('Acquire::AllowInsecureRepositories "true";\nAPT::Get::AllowUnauthenticated "true";\n')
    monkeypatch.setenv("APT_CONFIG", str(settings))
    refusal(apt)


def test_the_machines_hooks_are_not_run(apt, repository, tmp_path, monkeypatch):
    repository.publish("trixie", LISTS)
    hooks = tmp_path / "machine.conf"
    kinds = ("Pre-Invoke", "Post-Invoke", "Post-Invoke-Success")
    hooks.write_text("".join(f'APT::Update::{kind} {{ "touch {tmp_path}/ran-{kind}"; }};\n' for kind in kinds))
    monkeypatch.setenv("APT_CONFIG", str(hooks))
    apt.update_lists()
    assert list(tmp_path.glob("ran-*")) == []


@pytest.mark.parametrize("folder", ['a"b', "a b", "a;b", "a#b"])
def test_a_folder_that_would_change_apts_settings_is_refused(tmp_path, repository, folder):
    repository.publish("trixie", LISTS)
    with pytest.raises(ConfigurationError, match="does not accept the path"):
        Apt(tmp_path / folder, repository.archives, ("trixie",), ("main",)).update_lists()
