import ssl

import msgspec
import pytest

from upgrader.process import run
from upgrader_dev.devcluster.base.addresses import Addresses
from upgrader_dev.devcluster.base.credentials import Credentials


@pytest.fixture(scope="module")
def pki(tmp_path_factory):
    made = Credentials(tmp_path_factory.mktemp("cluster") / "pki", Addresses(octet=70))
    made.make_authority("dev")
    made.make_certificate("node", "system:node:gpu-a", ["system:nodes", "others"], ["IP:10.70.0.11", "DNS:gpu-a"])
    return made


def shown(path, *what):
    return run(["openssl", "x509", "-in", path, "-noout", *what], timeout=10).text


def test_user_and_groups_are_in_the_subject(pki):
    assert shown(pki.path("node.crt"), "-subject", "-nameopt", "RFC2253") == (
        "subject=CN=system:node:gpu-a,O=others,O=system:nodes"
    )


def test_addresses_and_names_are_in_the_certificate(pki):
    assert "IP Address:10.70.0.11, DNS:gpu-a" in shown(pki.path("node.crt"), "-ext", "subjectAltName")


def test_signed_by_the_authority(pki):
    run(["openssl", "verify", "-CAfile", pki.ca, pki.path("node.crt")], timeout=10)


def test_certificate_and_key_belong_together(pki):
    ssl.create_default_context(cafile=pki.ca).load_cert_chain(pki.path("node.crt"), pki.path("node.key"))


def test_the_token_key_has_its_public_half_apart(pki):
    derived = run(["openssl", "pkey", "-in", pki.path("sa.key"), "-pubout"], timeout=10).stdout

    assert derived == pki.path("sa.pub").read_bytes()


def test_what_is_there_is_kept(pki):
    before = pki.path("node.crt").read_bytes(), pki.ca.read_bytes()

    pki.make_authority("dev")
    pki.make_certificate("node", "somebody-else")

    assert (pki.path("node.crt").read_bytes(), pki.ca.read_bytes()) == before


def test_a_kubeconfig_has_all_in_it_and_nobody_else_may_read_it(pki):
    path = pki.write_kubeconfig("node")
    read = msgspec.yaml.decode(path.read_bytes())

    assert path.stat().st_mode & 0o777 == 0o600
    assert read["clusters"][0]["cluster"]["server"] == "https://10.70.0.2:443"
    data = msgspec.convert(read["users"][0]["user"]["client-key-data"], bytes, strict=True)
    assert data == pki.path("node.key").read_bytes()


def test_two_certificates_have_different_serials(pki):
    pki.make_certificate("other", "other")

    assert shown(pki.path("other.crt"), "-serial") != shown(pki.path("node.crt"), "-serial")
