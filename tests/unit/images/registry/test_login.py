"""Whose password goes to which registry, and that it is never shown."""

import base64
import json
import traceback

import pytest
from aiohttp import web

from tests.support.image_registry import ImageRegistry, digest_of, serving, write_layout
from upgrader.core.errors import ConfigurationError, RegistryError
from upgrader.images.layout import Layout
from upgrader.images.registry.client import RegistryClient
from upgrader.images.registry.login import RegistryLogin, auth_file, login_for, read_logins
from upgrader.images.registry.reference import parse_reference

PASSWORD = "correct horse"  # noqa: S105 - what must not be seen
BASIC = "Basic " + base64.b64encode(f"me:{PASSWORD}".encode()).decode()
LOGIN = RegistryLogin(user="me", password=PASSWORD)
BODY = b'{"schemaVersion": 2}'


@pytest.fixture
async def registry():
    async with serving(ImageRegistry()) as served:
        served.manifests["app", "1"] = BODY
        yield served


def written(folder, auths):
    path = folder / "auth.json"
    path.write_text(json.dumps({"auths": auths}))
    return path


def encoded(text):
    return base64.b64encode(text.encode()).decode()


def basic(registry):
    def guard(request):
        if request.headers.get("Authorization") == BASIC:
            return None
        return web.Response(status=401, headers={"WWW-Authenticate": 'Basic realm="here"'})

    registry.answer = guard


def bearer(registry, *, actions="pull", given=BASIC):
    """A token server on the same host that gives a token for `given`."""
    registry.asked = []

    def guard(request):
        if request.path == "/token":
            registry.asked.append(request.headers.get("Authorization", "nobody"))
            return web.json_response({"token": "t"} if registry.asked[-1] == given else {}, status=200)
        if request.headers.get("Authorization") == "Bearer t":
            return None
        said = f'Bearer realm="http://{registry.host}/token",service="s",scope="repository:app:{actions}"'
        return web.Response(status=401, headers={"WWW-Authenticate": said})

    registry.answer = guard


async def ask(registry, known):
    async with RegistryClient(insecure=(registry.host,), logins=known) as client:
        return await client.digest(f"{registry.host}/app:1")


@pytest.mark.parametrize("kind", [basic, bearer])
async def test_a_login_opens_what_is_closed(registry, kind):
    kind(registry)
    assert await ask(registry, {registry.host: LOGIN}) == f"{registry.host}/app@{digest_of(BODY)}"


@pytest.mark.parametrize("kind", [basic, bearer])
@pytest.mark.parametrize("known", [{}, {"elsewhere.example": LOGIN}], ids=["none", "of another registry"])
async def test_without_a_login_it_is_doubt(registry, kind, known):
    kind(registry)
    with pytest.raises(RegistryError, match="answered 401") as raised:
        await ask(registry, known)
    assert "REGISTRY_AUTH_FILE" in raised.value.resolution
    assert BASIC not in getattr(registry, "asked", [])


@pytest.mark.parametrize("kind", [basic, bearer])
async def test_a_wrong_password_is_doubt_and_is_not_shown(registry, kind):
    kind(registry)
    wrong = RegistryLogin(user="me", password="battery staple")  # noqa: S106
    with pytest.raises(RegistryError, match="answered 401") as raised:
        await ask(registry, {registry.host: wrong})
    shown = "".join(traceback.format_exception(raised.value)) + repr(wrong)
    assert "staple" not in shown
    assert encoded("me:battery staple") not in shown


async def test_pushing_logs_in_too(registry, tmp_path):
    basic(registry)
    layout = Layout(write_layout(tmp_path / "layout", b"layer", b"{}"))
    async with RegistryClient(insecure=(registry.host,), logins={registry.host: LOGIN}) as client:
        assert await client.push(layout, f"{registry.host}/app:2") == f"{registry.host}/app@{layout.image.digest}"


async def test_a_token_that_ran_out_is_fetched_again(registry):
    valid = ["first"]

    def guard(request):
        if request.path == "/token":
            return web.json_response({"token": valid[-1]})
        if request.headers.get("Authorization") == f"Bearer {valid[-1]}":
            return None
        said = f'Bearer realm="http://{registry.host}/token"'
        return web.Response(status=401, headers={"WWW-Authenticate": said})

    registry.answer = guard
    async with RegistryClient(insecure=(registry.host,)) as client:
        assert await client.digest(f"{registry.host}/app:1")
        valid.append("second")
        assert await client.digest(f"{registry.host}/app:1")
    assert registry.seen.count("GET /token") == 2


async def test_an_identity_token_is_exchanged(registry):
    bodies = []

    async def handle(request):
        if request.path == "/token":
            bodies.append(dict(await request.post()))
            return web.json_response({"access_token": "t"})
        return await ImageRegistry.handle(registry, request)

    bearer(registry)
    inner = registry.answer
    registry.answer = lambda request: None if request.path == "/token" else inner(request)
    registry.handle = handle
    async with serving(registry):
        assert await ask(registry, {registry.host: RegistryLogin(identity="long-lived")})
    assert bodies == [
        {
            "service": "s",
            "scope": "repository:app:pull",
            "grant_type": "refresh_token",
            "client_id": "gpu-upgrader",
            "refresh_token": "long-lived",
        }
    ]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize(
    "login", [RegistryLogin(identity="long-lived"), LOGIN, RegistryLogin()], ids=["refresh token", "password", ""]
)
async def test_a_token_server_that_sends_us_on_elsewhere_is_an_error_that_names_it(registry, login, status):
    bearer(registry)
    challenge = registry.answer
    async with serving(ImageRegistry()) as elsewhere:
        there = {"Location": f"http://{elsewhere.host}/token?state=secret"}

        async def handle(request):
            if request.path == "/token":
                return web.Response(status=status, headers=there)
            return challenge(request)

        registry.handle = handle
        async with serving(registry):
            with pytest.raises(RegistryError) as raised:
                await ask(registry, {registry.host: login})
            assert (raised.value.brief, raised.value.details) == (
                f"the token server of {registry.host} answers with a redirect; redirects are not followed",
                f"http://{registry.host}/token answered {status}: credentials would go to another address",
            )
        assert elsewhere.seen == []


async def test_a_bearer_token_of_the_file_is_said_as_it_is(registry):
    bearer(registry)
    assert await ask(registry, {registry.host: RegistryLogin(bearer="t")})
    assert registry.asked == []


def test_the_file_of_podman_and_docker(tmp_path):
    path = written(
        tmp_path,
        {
            "registry.example": {"auth": encoded(f"me:{PASSWORD}")},
            "registry.example/team": {"username": "we", "password": "a:b"},
            "https://index.docker.io/v1/": {"auth": encoded("hub:x")},
            "https://other.example/": {"identitytoken": "long"},
            "helped.example": {},
        },
    )
    known = read_logins(path)
    assert known == {
        "registry.example": LOGIN,
        "registry.example/team": RegistryLogin(user="we", password="a:b"),  # noqa: S106
        "docker.io": RegistryLogin(user="hub", password="x"),  # noqa: S106
        "other.example": RegistryLogin(identity="long"),
        "helped.example": RegistryLogin(),
    }
    assert login_for(known, parse_reference("registry.example/app:1")) == LOGIN
    assert login_for(known, parse_reference("registry.example/team/app:1")).user == "we"
    assert login_for(known, parse_reference("registry.example/teams/app:1")) == LOGIN
    assert login_for(known, parse_reference("debian")).user == "hub"
    assert login_for(known, parse_reference("helped.example/app")) is None
    assert login_for(known, parse_reference("nobody.example/app")) is None


@pytest.mark.parametrize("text", ["", "no JSON", '{"auths": 5}', '{"auths": {"a": {"auth": "s3cr3t!"}}}'])
def test_a_file_that_is_none_is_said_without_what_is_in_it(tmp_path, text):
    (tmp_path / "auth.json").write_text(text)
    with pytest.raises(ConfigurationError, match="contains no registry logins") as raised:
        read_logins(tmp_path / "auth.json")
    assert "s3cr3t" not in "".join(traceback.format_exception(raised.value))


def test_a_file_that_is_named_and_not_there(tmp_path):
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_logins(tmp_path / "nothing")
    assert read_logins(None) == {}


def test_which_file_counts(tmp_path):
    docker, podman = tmp_path / ".docker/config.json", tmp_path / "run/containers/auth.json"
    environment = {"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path / "run")}
    assert auth_file(environment) is None
    for path in (docker, podman):
        path.parent.mkdir(parents=True)
    docker.touch()
    assert auth_file(environment) == docker
    podman.touch()
    assert auth_file(environment) == podman
    assert auth_file({**environment, "REGISTRY_AUTH_FILE": "/named"}).as_posix() == "/named"


async def test_a_password_does_not_go_to_a_token_server_in_clear_text(registry):
    async with RegistryClient(logins={"registry.example": LOGIN}) as client:
        with pytest.raises(RegistryError, match="password in clear text"):
            await client._request_token(
                {"realm": "http://token.example/"}, parse_reference("registry.example/app"), LOGIN
            )


@pytest.mark.parametrize("challenge", ["Basic", "Bearer"])
async def test_another_host_that_gets_a_layer_does_not_get_the_password(registry, tmp_path, challenge):
    """A storage that the registry sends us on to, and that asks who we are."""
    got = []
    layout = Layout(write_layout(tmp_path / "layout", b"layer", b"{}"))
    async with serving(ImageRegistry()) as storage:

        def ask_back(request):
            got.append(request.headers.get("Authorization"))
            realm = f'Bearer realm="http://{storage.host}/token"' if challenge == "Bearer" else "Basic"
            return web.Response(status=401, headers={"WWW-Authenticate": realm})

        def send_on(request):
            if request.headers.get("Authorization") != BASIC:
                return web.Response(status=401, headers={"WWW-Authenticate": "Basic"})
            there = {"Location": f"http://{storage.host}/v2/up/node/blobs/uploads/1?state=x"}
            return web.Response(status=202, headers=there) if request.method == "POST" else None

        registry.answer, storage.answer = send_on, ask_back
        async with RegistryClient(insecure=(registry.host,), logins={registry.host: LOGIN}) as client:
            with pytest.raises(RegistryError, match="answered 401"):
                await client.push(layout, f"{registry.host}/up/node:1")
            with pytest.raises(RegistryError, match="answered 401"):
                await client.put_blob(b"x", "y", parse_reference(f"{registry.host}/up/node:1"))
            assert (got, [one for one in storage.seen if "token" in one]) == ([None, None], [])
            storage.answer = lambda _request: None
            await client.push(layout, f"{registry.host}/up/node:1")
    assert set(storage.blobs) == {blob.digest for blob in layout.blobs}
