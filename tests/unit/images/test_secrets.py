"""Modules and an image signed, and the image pushed, with secrets that nobody but the programs and registries gets."""

import base64
import json
import traceback
from pathlib import Path

import pytest
from aiohttp import web

from tests.support.image_registry import ImageRegistry, serving
from tests.support.kernel_modules import Sample
from tests.support.secrets import Secrets, programs
from tests.support.signing_keys import make_key
from tests.support.trusting import driver_layout, facts
from upgrader.core.errors import ConfigurationError, RegistryError
from upgrader.images import trust
from upgrader.images.modules import open_key, sign_module
from upgrader.images.modules.signing import PASSPHRASE
from upgrader.images.registry.client import RegistryClient
from upgrader.images.registry.login import read_logins
from upgrader.images.trust.cosign import Cosign
from upgrader.images.trust.keys import PASSWORD

COSIGN = """#!/bin/sh
# writes a bundle as the real one, and says more than the real one; fails where it was given no statement's key
while [ $# -gt 0 ]; do
  case "$1" in
    --bundle) printf made > "$2" ;;
    --key) case "$2" in *broken*) echo "Error: reading key: with $COSIGN_PASSWORD" >&2; exit 1 ;; esac ;;
  esac
  shift
done
echo "used $COSIGN_PASSWORD" >&2
"""


@pytest.fixture
def secrets() -> Secrets:
    return Secrets()


@pytest.fixture
def shown(capsys, caplog):
    """Errors are shown with their tracebacks, logs and both outputs are read at the end."""

    def all_of(*errors: BaseException) -> str:
        out, err = capsys.readouterr()
        told = [line for error in errors for line in traceback.format_exception(error)]
        details = [f"{getattr(error, 'details', '')} {error!r}" for error in errors]
        # what the test's own server logs of requests is not of the product
        logged = [record.getMessage() for record in caplog.records if record.name != "aiohttp.access"]
        return "\n".join([out, err, *logged, *told, *details])

    with caplog.at_level("DEBUG"):
        yield all_of


def cosign(folder: Path) -> Cosign:
    path = folder / "cosign"
    path.write_text(COSIGN)
    path.chmod(0o755)
    return Cosign(path)


def signing_key(folder: Path, secrets: Secrets, name: str = "cosign.key") -> trust.SigningKey:
    body = secrets.make("private key of images")
    path = folder / name
    path.write_text(
        f"-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----\n{body}\n-----END ENCRYPTED SIGSTORE PRIVATE KEY-----"
    )
    return trust.signing_key(path, {PASSWORD: secrets.make("password of the key")})


def login(folder: Path, host: str, secrets: Secrets, **entry: str) -> Path:
    password = secrets.make("password at the registry")
    secrets.keep("password at the registry", f"me:{password}")
    known = entry or {"auth": base64.b64encode(f"me:{password}".encode()).decode()}
    path = folder / "auth.json"
    path.write_text(json.dumps({"auths": {host: known}}))
    return path


def closed(registry: ImageRegistry, given: str, *, token: str = "") -> None:
    """A registry that wants to know who asks, by a token of its own where it has one."""

    def guard(request: web.Request) -> web.Response | None:
        said = request.headers.get("Authorization", "")
        if token and request.path == "/token":
            return web.json_response({"token": token} if said == given else {})
        if said == (f"Bearer {token}" if token else given):
            return None
        challenge = f'Bearer realm="http://{registry.host}/token"' if token else 'Basic realm="here"'
        return web.Response(status=401, headers={"WWW-Authenticate": challenge})

    registry.answer = guard


@pytest.mark.parametrize("by_token", [False, True], ids=["password", "token"])
async def test_an_image_is_signed_and_pushed_without_a_word_of_its_secrets(tmp_path, secrets, shown, by_token):
    key, layout = signing_key(tmp_path, secrets), driver_layout(tmp_path / "image")
    async with serving(ImageRegistry(referrers=True)) as registry:
        path = login(tmp_path, registry.host, secrets)
        given = "Basic " + json.loads(path.read_text())["auths"][registry.host]["auth"]
        closed(registry, given, token=secrets.make("token of the registry") if by_token else "")
        known = read_logins(path)
        with programs() as started:
            async with RegistryClient(insecure=(registry.host,), logins=known) as client:
                image = await client.push(layout, f"{registry.host}/drivers/a:1")
                said = facts(layout.image.digest)
                await trust.publish_signatures(image, said, key=key, cosign=cosign(tmp_path), registry=client)
    assert len(started) == 3  # SBOM, provenance, signature
    assert all("attest-blob" in line for line in started)
    pushed = b"".join([*registry.blobs.values(), *registry.manifests.values()]).decode(errors="replace")
    places = {
        "arguments": "\n".join(started),
        "logs": shown(),
        "values": repr((key, known)),
        "what was pushed": pushed,
        "addresses": "\n".join(registry.seen),
    }
    assert {place: found for place, text in places.items() if (found := secrets.shown_in(text))} == {}


async def test_what_goes_wrong_is_said_without_them(tmp_path, secrets, shown):
    key, layout = signing_key(tmp_path, secrets, "broken.key"), driver_layout(tmp_path / "image")
    async with serving(ImageRegistry()) as registry:
        known = read_logins(login(tmp_path, registry.host, secrets))
        closed(registry, "Basic of somebody else")
        with programs() as started, pytest.raises(ConfigurationError) as signing:
            await trust.sign_image(facts(layout.image.digest), key=key, cosign=cosign(tmp_path))
        async with RegistryClient(insecure=(registry.host,), logins=known) as client:
            with pytest.raises(RegistryError) as pushing:
                await client.push(layout, f"{registry.host}/drivers/a:1")
    assert "***" in signing.value.details
    assert secrets.shown_in("\n".join(started) + shown(signing.value, pushing.value)) == []


async def test_a_token_that_no_header_can_hold_is_not_shown(tmp_path, secrets, shown):
    """Libraries quote it in their error."""
    token = secrets.make("token")
    path = login(tmp_path, "registry.example", secrets, registrytoken=f"{token}\n")
    with pytest.raises(ConfigurationError, match="contains no registry logins") as of_file:
        read_logins(path)
    async with serving(ImageRegistry()) as registry:
        known = read_logins(login(tmp_path, registry.host, secrets))
        closed(registry, known[registry.host].basic_header, token=f"{token}\n")
        async with RegistryClient(insecure=(registry.host,), logins=known) as client:
            with pytest.raises(RegistryError, match="no header may contain") as of_server:
                await client.digest(f"{registry.host}/drivers/a:1")
    assert secrets.shown_in(shown(of_file.value, of_server.value)) == []


@pytest.mark.parametrize("text", ['{"auths": ' + "[" * 100_000, '{"auths": {"a": {"auth": "\\ud800"}}}'])
def test_a_file_of_logins_that_nobody_wrote(tmp_path, text):
    (tmp_path / "auth.json").write_text(text)
    with pytest.raises(ConfigurationError, match="contains no registry logins"):
        read_logins(tmp_path / "auth.json")


async def test_an_address_that_a_registry_signed_is_not_shown(tmp_path, secrets, shown):
    """Storages take uploads and give layers at addresses that hold the right to them."""
    signature, layout = secrets.make("signature of an address"), driver_layout(tmp_path / "image")
    async with serving(ImageRegistry()) as registry:
        there = f"/v2/drivers/a/manifests/1?sig={signature}"
        registry.answer = lambda _request: web.Response(status=307, headers={"Location": there})
        async with RegistryClient(insecure=(registry.host,)) as client:
            with pytest.raises(RegistryError) as around:
                await client.digest(f"{registry.host}/drivers/a:1")
        up = f"http://127.0.0.1:1/up?sig={signature}"
        registry.answer = lambda request: (
            web.Response(status=202, headers={"Location": up}) if request.method == "POST" else None
        )
        async with RegistryClient(insecure=(registry.host,)) as client:
            with pytest.raises(RegistryError) as up_to_nobody:
                await client.push(layout, f"{registry.host}/drivers/a:1")
    errors = (around.value, up_to_nobody.value)
    assert secrets.shown_in(shown(*errors)) == []


def test_modules_are_signed_without_their_passphrase_on_a_command_line(tmp_path, secrets, shown, monkeypatch):
    passphrase = secrets.make("passphrase of the modules' key")
    key, certificate = make_key(tmp_path, passphrase=passphrase)
    secrets.keep("the modules' key", key.read_text().splitlines()[2])
    module = Sample(version="1.0").write(tmp_path)
    monkeypatch.setenv(PASSPHRASE, passphrase)
    with programs() as started:
        sign_module(module, open_key(key, certificate))
        monkeypatch.setenv(PASSPHRASE, secrets.make("wrong passphrase"))
        with pytest.raises(ConfigurationError) as raised:
            open_key(key, certificate)
    assert any(line.startswith("openssl cms") for line in started)
    assert secrets.shown_in("\n".join(started) + shown(raised.value)) == []
    assert secrets.shown_in(module.read_bytes().decode(errors="replace")) == []
