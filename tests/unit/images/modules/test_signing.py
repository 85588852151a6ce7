import hashlib

import pytest

from tests.support.kernel_modules import Sample
from tests.support.signing_keys import make_key
from upgrader.core.driver_build.driver_builds import CheckName, Verdict
from upgrader.core.errors import ConfigurationError
from upgrader.images.modules import ModuleSigningKey, ModuleUnreadableError, open_key, read_module, sign_module
from upgrader.images.modules.signing import PASSPHRASE, certificate_fingerprint, certificate_key_id, check_signatures
from upgrader.images.modules.trailer import with_signature
from upgrader.process import run


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys")
    return {name: make_key(folder, name) for name in ("own", "other")}


@pytest.fixture
def module(tmp_path):
    return Sample(version="1.0").write(tmp_path)


def _verdict(passed, reason):
    return Verdict(check=CheckName.SIGNATURE, passed=passed, reason=reason)


def test_a_signed_module_is_verified_with_the_certificate_and_is_otherwise_as_before(keys, module):
    plain, before = module.read_bytes(), read_module(module)
    key = open_key(*keys["own"])
    assert key == ModuleSigningKey(key=keys["own"][0], certificate=keys["own"][1])
    sign_module(module, key)
    after = read_module(module)
    assert after.signature.content == len(plain)
    assert module.read_bytes().startswith(plain)
    assert (after.versions, after.exports) == (before.versions, before.exports)
    verdict = check_signatures([module], keys["own"][1])
    assert verdict == _verdict(passed=True, reason="1 modules signed by the key of own.pem")


def test_signing_twice_gives_the_same_bytes(keys, module, tmp_path):
    (tmp_path / "other").mkdir()
    other = Sample(version="1.0").write(tmp_path / "other")
    key = open_key(*keys["own"])
    sign_module(module, key)
    sign_module(other, key)
    once = module.read_bytes()
    assert other.read_bytes() == once
    sign_module(module, key)
    assert module.read_bytes() == once


def test_a_signature_of_another_key_is_replaced(keys, module):
    sign_module(module, open_key(*keys["other"]))
    assert check_signatures([module], keys["own"][1]).passed is False
    sign_module(module, open_key(*keys["own"]))
    assert check_signatures([module], keys["own"][1]).passed is True


def test_what_is_unsigned_changed_or_of_another_key_is_refused(keys, module, tmp_path):
    own, other = keys["own"][1], keys["other"][1]
    assert check_signatures([module], own) == _verdict(passed=False, reason="sample.ko is not signed")
    sign_module(module, open_key(*keys["own"]))
    changed = "sample.ko has a signature of another key, or was changed after it was signed"
    assert check_signatures([module], other) == _verdict(passed=False, reason=changed)
    data = bytearray(module.read_bytes())
    data[200] ^= 1
    module.write_bytes(bytes(data))
    assert check_signatures([module], own) == _verdict(passed=False, reason=changed)
    module.write_bytes(with_signature(Sample().encoded(), b"no message"))
    assert check_signatures([module], own) == _verdict(passed=False, reason=changed)


def test_a_signature_does_not_vouch_for_itself_by_the_certificate_that_it_carries(keys, module, tmp_path):
    key, certificate = keys["other"]
    who = ["-md", "sha256", "-signer", certificate, "-inkey", key, "-outform", "DER"]
    carried = tmp_path / "message"
    run(["openssl", "cms", "-sign", "-binary", *who, "-in", module, "-out", carried], timeout=60)
    module.write_bytes(with_signature(module.read_bytes(), carried.read_bytes()))
    assert check_signatures([module], certificate).passed is True
    assert check_signatures([module], keys["own"][1]).passed is False


def test_without_a_certificate_nothing_is_claimed(module):
    reason = "no key is configured: kernels that enforce signatures reject these modules"
    assert check_signatures([module], None) == _verdict(passed=None, reason=reason)


def test_a_key_that_is_none_is_refused_before_anything_is_built(keys, tmp_path):
    text = tmp_path / "text"
    text.write_text("no key\n")
    own, other = keys["own"], keys["other"]
    for key, certificate, said in [
        (text, own[1], "text is not a readable private key"),
        (tmp_path / "absent", own[1], "absent is not a readable private key"),
        (own[1], own[1], "own.pem is not a readable private key"),
        (own[0], text, "text is not an X.509 certificate"),
        (own[0], other[1], "other.pem is not the certificate of the key"),
    ]:
        with pytest.raises(ConfigurationError, match=said):
            open_key(key, certificate)
    with pytest.raises(ConfigurationError, match="md5"):
        open_key(*own, "md5")
    with pytest.raises(ConfigurationError, match=r"text is not an X\.509 certificate"):
        check_signatures([], text)


def test_a_key_that_signs_differently_each_time_is_refused(tmp_path):
    with pytest.raises(ConfigurationError, match="not an RSA key"):
        open_key(*make_key(tmp_path, kind="ec"))


def test_an_encrypted_key_is_opened_with_its_passphrase_from_the_environment(tmp_path, module, monkeypatch):
    key, certificate = make_key(tmp_path, passphrase="open sesame")  # noqa: S106 - of a key of this test
    with pytest.raises(ConfigurationError, match=PASSPHRASE):
        open_key(key, certificate)
    monkeypatch.setenv(PASSPHRASE, "open sesame")
    sign_module(module, open_key(key, certificate))
    assert check_signatures([module], certificate).passed


def test_what_cannot_be_read_is_not_signed_over(keys, tmp_path):
    path = tmp_path / "x.ko"
    path.write_bytes(b"\x00" * 4 + b"~Module signature appended~\n")
    with pytest.raises(ModuleUnreadableError, match="truncated"):
        sign_module(path, open_key(*keys["own"]))
    assert path.read_bytes() == b"\x00" * 4 + b"~Module signature appended~\n"


def test_a_fingerprint_is_of_the_whole_certificate_and_not_of_its_key_alone(keys, tmp_path):
    """A signature names issuer and serial number: a renewed certificate of the same key gives other bytes."""
    key, certificate = keys["own"]
    renewed = tmp_path / "renewed.pem"
    words = ["openssl", "req", "-x509", "-new", "-key", key, "-subj", "/CN=renewed", "-days", "3", "-out", renewed]
    run(words, timeout=60)
    der = run(["openssl", "x509", "-in", certificate, "-outform", "DER"], timeout=60).stdout
    assert certificate_fingerprint(certificate) == hashlib.sha256(der).hexdigest()
    assert certificate_fingerprint(renewed) != certificate_fingerprint(certificate)
    with pytest.raises(ConfigurationError, match=r"not an X\.509 certificate"):
        certificate_fingerprint(key)


def test_the_key_id_is_that_of_the_certificate_in_a_keyring(keys, tmp_path):
    key, certificate = keys["own"]
    shown = run(["openssl", "x509", "-in", certificate, "-noout", "-text"], timeout=60).text
    assert certificate_key_id(certificate) == shown.partition("Key Identifier:")[2].split()[0].replace(":", "").lower()
    bare = tmp_path / "bare.pem"
    words = ["openssl", "req", "-x509", "-new", "-key", key, "-subj", "/CN=bare", "-set_serial", "0x0a1b2c"]
    run([*words, "-addext", "subjectKeyIdentifier=none", "-out", bare], timeout=60)
    assert certificate_key_id(bare) == "0a1b2c"
    with pytest.raises(ConfigurationError, match=r"not an X\.509 certificate"):
        certificate_key_id(key)
