"""`upgrader build --packages`: why no build was begun is told to people, and with its class to the controller."""

import asyncio

import msgspec
import pytest
from aiohttp import web
from click.testing import CliRunner

from tests.support import driver_builds as made
from tests.support.image_registry import ImageRegistry, serving
from tests.support.signing_keys import make_key
from upgrader.cli.base import exit_codes
from upgrader.cli.main import program
from upgrader.core.driver_build.build_results import BuildRefusal, BuildResult, CellState, read_message
from upgrader.core.driver_build.driver_builds import BuildFailure, FailureClass
from upgrader.core.errors import ConfigurationError, RegistryError, UnverifiedError
from upgrader.images.debian.carrying import PACKAGE, PACKAGES
from upgrader.images.drivers.publish.bundles import DEFINITION
from upgrader.images.drivers.recipe.definition import encode_definition
from upgrader.images.layout import MANIFEST, LayoutWriter
from upgrader.images.modules.signing import certificate_fingerprint
from upgrader.images.registry.client import RegistryClient

PUBLIC = "-----BEGIN PUBLIC KEY-----\nMFkw\n-----END PUBLIC KEY-----\n"
WISH = {"recipe": "nvidia-open", "driver": "550.163.01", "kernel": made.RELEASE, "os": "trixie"}
IMAGE = "drivers/packages:one"


class Bench:
    """A registry, and a builder beside it that has no archive."""

    def __init__(self, registry, tmp_path):
        self.registry, self.tmp_path = registry, tmp_path
        self.message = tmp_path / "termination-log"

    @property
    def image(self):
        return f"{self.registry.host}/{IMAGE}"

    async def push(self, **changes):
        """A bundle whose packages are as their digests say; not one is a real package."""
        definition = made.definition(made.folder(self.tmp_path / "nvidia-open"), **changes)
        layout = LayoutWriter(self.tmp_path / "bundle")
        chosen = tuple(
            sorted(msgspec.structs.replace(one, size=len(contents(one))) for one in set(definition.packages))
        )
        layers = [layout.put_blob(PACKAGE, contents(one)) for one in chosen]
        layers.append(layout.put_blob(DEFINITION, encode_definition(definition)))
        config = layout.put_blob(PACKAGES, msgspec.json.encode(chosen))
        manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers}
        whole = layout.write_index(layout.put_blob(MANIFEST, msgspec.json.encode(manifest)))
        await self._push(whole)
        return definition

    async def push_other(self):
        """An image that is no bundle."""
        await self._push(made.layout(self.tmp_path / "other"))

    async def _push(self, layout):
        async with RegistryClient(insecure=(self.registry.host,)) as client:
            await client.push(layout, self.image)

    async def build(self, *words, **changes):
        """How the command ended, and what it left for the kubelet."""
        ended = await self.run("--termination-message", str(self.message), *words, **changes)
        return ended, read_message(self.message.read_text())

    async def run(self, *words, **changes):
        """How the command ended."""
        wish = [part for name, value in (WISH | changes).items() for part in (f"--{name}", value)]
        given = ["build", *wish, "--packages", self.image, "--insecure-registry", self.registry.host, *words]
        return await asyncio.to_thread(CliRunner().invoke, program, given)


def contents(package):
    """What `made.package` has taken the digest of."""
    return f"{package.name} {package.version} ".encode()


@pytest.fixture
async def bench(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    async with serving(ImageRegistry()) as registry:
        yield Bench(registry, tmp_path)


def refused(kind, said):
    return BuildRefusal(failure=BuildFailure(kind=kind, first_error=said))


async def test_a_silent_registry(bench):
    bench.registry.answer = lambda _request: web.Response(status=401)
    ended, said = await bench.build()
    assert ended.exit_code == RegistryError.exit_code
    (first, *_) = ended.stderr.splitlines()
    assert said == refused(FailureClass.TRANSIENT, first.removeprefix("error: "))


async def test_a_bundle_that_went_away_since_it_was_seen(bench):
    _, said = await bench.build()
    assert said == refused(FailureClass.TRANSIENT, f"{bench.image} is not in its registry")


async def test_what_is_no_bundle(bench):
    await bench.push_other()
    ended, said = await bench.build()
    assert ended.exit_code == ConfigurationError.exit_code
    assert said.failure.kind is FailureClass.UNSUPPORTED
    assert said.failure.first_error.endswith("has no build definition")


async def test_a_bundle_of_something_else(bench):
    await bench.push()
    _, said = await bench.build(driver="535.261.03")
    wrong = f"{bench.image} contains driver 550.163.01, not 535.261.03"
    assert said == refused(FailureClass.UNSUPPORTED, wrong)


async def test_a_bundle_that_nobody_has_signed(bench, tmp_path, monkeypatch):
    await bench.push()
    monkeypatch.setenv("UPGRADER_COSIGN", "sh")  # not asked: there is no signature to judge
    public = tmp_path / "cosign.pub"
    public.write_text(PUBLIC)
    ended, said = await bench.build("--public-key", str(public))
    assert ended.exit_code == UnverifiedError.exit_code
    wrong = f"{bench.image} is not signed by the key of --public-key; it was not unpacked"
    assert said == refused(FailureClass.SIGNATURE, wrong)


async def test_a_module_key_that_cannot_be_used_is_told_before_anything_is_fetched(bench, tmp_path):
    await bench.push()
    bench.registry.seen.clear()
    (key, _), (_, certificate) = make_key(tmp_path, "one"), make_key(tmp_path, "two")
    _, said = await bench.build("--module-key", str(key), "--module-certificate", str(certificate))
    assert said == refused(FailureClass.TRANSIENT, f"{certificate} is not the certificate of the key {key}")
    assert bench.registry.seen == []


async def test_a_module_key_that_is_not_there_is_told_in_the_log(bench, tmp_path):
    """As where a build pod's Secret is missing, or lacks a file: the kubelet hands the log's end on."""
    key, certificate = tmp_path / "tls.key", tmp_path / "tls.crt"
    ended = await bench.run("--module-key", str(key), "--module-certificate", str(certificate))
    assert (ended.exit_code, bench.registry.seen) == (exit_codes.USAGE, [])
    assert "tls.key' does not exist" in ended.stderr


@pytest.mark.parametrize("packed", ["by nobody", "by another"])
async def test_modules_are_never_signed_otherwise_than_the_packages_say(bench, tmp_path, packed):
    """Red, and of this very cell: its build key would tell a lie."""
    signer = "a" * 64 if packed == "by another" else ""
    definition = await bench.push(signer=signer)
    key, certificate = make_key(tmp_path)
    ended, said = await bench.build("--module-key", str(key), "--module-certificate", str(certificate))
    wrong = (
        f"the packages of {definition.identity} are for modules signed by {signer or 'no key'}, "
        f"and this builder signs them with {certificate_fingerprint(certificate)}"
    )
    failure = BuildFailure(kind=FailureClass.UNSUPPORTED, first_error=wrong)
    assert said == BuildResult(identity=definition.identity, state=CellState.RED, failure=failure)
    assert (ended.exit_code, ended.stdout) == (1, "")


async def test_modules_of_packages_for_a_key_are_never_left_unsigned(bench):
    definition = await bench.push(signer="a" * 64)
    _, said = await bench.build()
    wrong = (
        f"the packages of {definition.identity} are for modules signed by {'a' * 64}, "
        "and this builder signs them with no key"
    )
    assert said.failure == BuildFailure(kind=FailureClass.UNSUPPORTED, first_error=wrong)


async def test_people_without_a_kubelet_are_told_the_same(bench):
    ended = await bench.run()
    assert f"error: {bench.image} is not in its registry\n" in ended.stderr
    assert ended.exit_code == ConfigurationError.exit_code
