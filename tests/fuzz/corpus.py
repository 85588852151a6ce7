"""What each target begins with: data of other tests, and what was found before (files in `found`, by target)."""

import base64
import hashlib
import json
import lzma
import tempfile
from collections.abc import Iterable
from pathlib import Path

import yaml

from tests.fuzz.answers import DIVIDER
from tests.fuzz.names import PLANTED
from tests.support.driver_builds import definition
from tests.support.driver_builds import folder as recipe_folder
from tests.support.facts import gang, image, node, snapshot, target
from tests.support.forecasts import foresee
from tests.support.freeze_index import FROZEN
from tests.support.hostile import DEEP, TOO_LONG
from tests.support.kernel_modules import Sample
from tests.support.trusting import facts
from upgrader.core.explain.plan_file import SavedForecast, encode_forecast, limits_of
from upgrader.core.model.strategy import StrategyFacts
from upgrader.images.drivers.recipe.definition import encode_definition
from upgrader.images.modules.trailer import with_signature
from upgrader.images.trust import statements
from upgrader.images.trust.evidence import MEDIA_TYPE, PAYLOAD_TYPE
from upgrader_dev.simulated.cluster.ports import START

FOUND = Path(__file__).parent / "found"
EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
REPORTS = Path(__file__).parents[1] / "unit/node/validation/nvidia_smi"
_DEEP = "[" * 100_000


def seeds(name: str) -> list[bytes]:
    """Each once."""
    made = [one.encode() if isinstance(one, str) else one for one in _SEEDS[name]()]
    return list(dict.fromkeys([b"", *made, *(path.read_bytes() for path in found(name))]))


def found(name: str) -> list[Path]:
    """Inputs that once broke a reader."""
    folder = FOUND / name
    return sorted(folder.iterdir()) if folder.is_dir() else []


def file_name(data: bytes) -> str:
    """Under which an input is kept."""
    return hashlib.sha256(data).hexdigest()[:16]


def _text() -> Iterable[str | bytes]:
    yield from ("8", "1k", "2Ki", "3e2", "4000m", "1h30m", "2d", "90s", TOO_LONG, "9999999999d", "٣", "²", "1e99")
    yield from ("2026-11-21T09:00:00Z", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "2026-W01-1")


def _document() -> Iterable[str | bytes]:
    yield from ('{"a": [1, 2.5, null, true, "x"]}', "[9223372036854775807, -1, 1e308]", DEEP, _DEEP, TOO_LONG)
    yield b'"\xff"'


ACK = {"requestId": 3, "podUid": "uid-0", "step": 12000, "uri": "file:///data/12000", "parked": True}


def _acknowledgement() -> Iterable[str | bytes]:
    yield json.dumps(ACK)
    yield json.dumps({**ACK, "refused": "in the middle of a phase", "retryAfterSeconds": 600})
    yield json.dumps({**ACK, "step": 2**63, "refused": "x" * 5000})
    yield f'{{"x":{_DEEP}'


def _progress() -> Iterable[str | bytes]:
    yield json.dumps({"step": 12000, "podUid": "uid-0"})
    yield json.dumps({"step": 2**64})
    yield f'{{"x":{_DEEP}'


def _saved_forecast() -> Iterable[str | bytes]:
    strategy = StrategyFacts(max_unavailable="100%")
    seen = foresee(snapshot([node("a"), node("b")], gangs=[gang("train", ["a", "b"])]))
    whole = SavedForecast(
        cluster="uid-cluster",
        stack="pool-a",
        stack_uid="uid-stack",
        stack_generation=3,
        spec={"driver": {"vendor": "sim", "version": "570.10"}},
        revision=target().revision,
        created_at=START,
        strategy=strategy,
        limits=limits_of(seen, strategy),
        images=(image(),),
        forecast=seen,
    )
    yield encode_forecast(whole)
    yield b'{"x": ' + _DEEP.encode()
    yield b'{"spec": {"a": ' + _DEEP.encode()
    yield b'{"spec": {"a": "\xff"}}'
    yield '{"spec": {"a": ' + TOO_LONG + "}}"


def _stack_manifest() -> Iterable[str | bytes]:
    yield (EXAMPLES / "gpustack.yaml").read_bytes()
    head = "apiVersion: gpu-upgrader.io/v1alpha1\nkind: GpuStack\nmetadata: {name: a}\nspec: "
    odd = ("2001-99-99", "0x", "[" * 500, "{1: 2}", "{? [a] : b}", "&a [*a]", "&a {b: *a}", "!!python/x y")
    yield from (head + value for value in odd)
    yield "kind: !!int x"


def _module() -> Iterable[str | bytes]:
    plain = Sample(
        imports={"printk": 1, "nvidia_symbol_of_more_than_one_section": 2},
        longer={"a_long_name": 3},
        weak=("maybe",),
        exports=(("exported", 4, True, "SPACE"), ("open", None, False, "")),
        depends=("other",),
        import_ns=("SPACE",),
    ).encoded()
    yield plain
    yield Sample(absolute=True, exports=(("exported", 4, False, ""),)).encoded()
    yield with_signature(plain, b"message")
    yield lzma.compress(plain)
    yield lzma.compress(plain)[:-20]


def _archive_index() -> Iterable[str | bytes]:
    for path in sorted(FROZEN.iterdir()):
        yield path.read_bytes()
    whole = (FROZEN / "bookworm.main.packages").read_bytes()
    yield lzma.compress(whole)
    yield lzma.compress(whole)[:-20]
    yield whole.replace(b"= 6.1", b"= x:6.1")
    yield whole.replace(b"Size: 1", b"Size: -1")


def _definition() -> Iterable[str | bytes]:
    with tempfile.TemporaryDirectory() as folder:
        yield encode_definition(definition(recipe_folder(Path(folder) / "fakebridge")))
    yield b'{"x": ' + _DEEP.encode()


def _answers(*parts: tuple[int, dict[str, str], str]) -> bytes:
    return DIVIDER.join(
        "\n".join([str(status), *(f"{name}: {value}" for name, value in headers.items()), "", body]).encode()
        for status, headers, body in parts
    )


def _registry() -> Iterable[str | bytes]:
    descriptor = {"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": "sha256:" + "1" * 64, "size": 5}
    manifest = json.dumps({"schemaVersion": 2, "config": descriptor, "layers": [descriptor]})
    bearer = {"WWW-Authenticate": 'Bearer realm="http://registry.example/token",service="s",scope="x"'}
    yield _answers((200, {"Docker-Content-Digest": "sha256:" + "0" * 64, "Content-Type": "a/b"}, manifest))
    yield _answers((404, {}, '{"errors": [{"code": "MANIFEST_UNKNOWN"}]}'))
    yield _answers(
        (200, {"Link": '</v2/x/tags/list?last=b>; rel="next"'}, '{"tags": ["a", "b"]}'), (200, {}, '{"tags": null}')
    )
    yield _answers((401, bearer, ""), (200, {}, '{"token": "t"}'), (200, {}, manifest))
    yield _answers((401, {"WWW-Authenticate": 'Basic realm="x"'}, ""), (200, {}, manifest))
    yield _answers((200, {}, json.dumps({"schemaVersion": 2, "manifests": [{**descriptor, "artifactType": "x/y"}]})))
    yield _answers((401, {"WWW-Authenticate": 'Bearer realm="http://[::1"'}, ""), (200, {}, "{}"))
    yield _answers((401, {"WWW-Authenticate": 'Bearer realm="nowhere"'}, ""), (200, {}, "{}"))
    yield _answers((200, {"Link": '<http://[::1>; rel="next"'}, '{"tags": []}'))
    for status in (200, 404):
        yield _answers((status, {}, '{"schemaVersion": 2, "x": ' + _DEEP))
        yield b'%d\n\n{"schemaVersion": 2, "tags": ["\xff"], "x": "\xff", "errors": [{"code": "\xff"}]}' % status
    yield _answers((401, bearer, ""), (200, {}, '{"x": ' + _DEEP))


def _bundle() -> Iterable[str | bytes]:
    payload = base64.b64encode(statements.signature_statement(facts("sha256:" + "d" * 64))).decode()
    made = {
        "mediaType": MEDIA_TYPE,
        "verificationMaterial": {"publicKey": {"hint": "h"}},
        "dsseEnvelope": {"payload": payload, "payloadType": PAYLOAD_TYPE, "signatures": [{"sig": "AAAA"}]},
    }
    yield json.dumps(made)
    yield json.dumps(made)[:-1] + ',"a":' + _DEEP
    deep = base64.b64encode(b'{"predicate":' + b'{"a":' * 100_000).decode()
    yield json.dumps({**made, "dsseEnvelope": {**made["dsseEnvelope"], "payload": deep}})


def _reference() -> Iterable[str | bytes]:
    yield from ("debian", "localhost:5000/a/b:1", "[::1]:5000/a@sha256:" + "0" * 64, "a:b@c", "r.example/a:1@sha256:0")


def _kubeconfig() -> Iterable[str | bytes]:
    config = {
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    text = yaml.safe_dump(config)
    yield text
    yield text.replace("token: t", "tokenFile: kubeconfig")
    yield text.replace("token: t", "client-certificate-data: AAAA\n    client-key-data: AAAA")
    yield text.replace("server:", "certificate-authority-data: AAAA\n    server:")
    yield from (
        "[" * 500,
        "a: 2001-99-99",
        "a: 0x",
        "current-context: &a [*a]",
        text.replace("token: t", "token: 0b_"),
    )


def _gpu_report() -> Iterable[str | bytes]:
    yield from (path.read_bytes() for path in sorted(REPORTS.glob("5*")))
    yield '<!DOCTYPE a [<!ENTITY b "c">]><nvidia_smi_log>&b;</nvidia_smi_log>'


def _node_record() -> Iterable[str | bytes]:
    output = {"name": "modules.txt", "source": "/proc/modules", "text": "nvidia 5 1 gdrdrv, Live 0x0", "seconds": 0.1}
    yield "\n".join(map(json.dumps, ({"name": "names", "source": "a", "text": "gpu-1"}, output, {"reason": "Done"})))
    yield json.dumps({**output, "name": "../../evil.txt", "seconds": 1e999})
    yield "                     USER        PID ACCESS COMMAND\n/dev/nvidia0:        root       1234 F...m dcgm\n"
    yield "a 1 1 b, Live\nb 1 1 a, Live\nnvidia 1 1 a,[permanent], Live"
    yield "fe80::1 10.0.0.1 <serial>123456</serial> token=abcdef eyJhbGciOiJub25l.e30 https://u:p@host.example/ iqn.1:a"


_SEEDS = {
    "text": _text,
    "document": _document,
    "acknowledgement": _acknowledgement,
    "progress": _progress,
    "saved_forecast": _saved_forecast,
    "stack_manifest": _stack_manifest,
    "module": _module,
    "archive_index": _archive_index,
    "definition": _definition,
    "registry": _registry,
    "bundle": _bundle,
    "reference": _reference,
    "kubeconfig": _kubeconfig,
    "gpu_report": _gpu_report,
    "node_record": _node_record,
    "planted": lambda: [PLANTED],
}
