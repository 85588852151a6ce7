"""One small function per reader. What it lets through is what the reader's documentation says that it raises."""

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import msgspec
import structlog

from tests.fuzz.answers import HOST, LOOP, client
from tests.fuzz.names import NAMES, PLANTED
from upgrader.api.kubernetes import ObjectMeta, Pod
from upgrader.checkpoint.answers import Reader
from upgrader.cli.first_node.reading_phases import read_outputs
from upgrader.cli.shared import stack_edits
from upgrader.core import untrusted
from upgrader.core.errors import ConfigurationError, RegistryError, UnreadableError
from upgrader.core.explain import plan_file
from upgrader.core.first_node import comparisons
from upgrader.core.first_node.redaction import Redactor
from upgrader.images.debian import discovery
from upgrader.images.debian.apt import Index
from upgrader.images.debian.errors import ArchiveError
from upgrader.images.debian.names import HostileNameError
from upgrader.images.drivers.recipe import definition
from upgrader.images.modules.elf import ModuleUnreadableError
from upgrader.images.modules.reading import read_module
from upgrader.images.registry import attachments
from upgrader.images.registry.reference import parse_reference
from upgrader.images.trust.evidence import parse_bundle
from upgrader.node.host.host import Host
from upgrader.node.host.task_result import OrderFailedError
from upgrader.node.kubelet.credentials import read_access
from upgrader.node.validation.gpu_report import parse_links, parse_report

POD = Pod(metadata=ObjectMeta(name="gang-0", namespace="default", uid="uid-0"))
DIGEST = "sha256:" + "0" * 64
_PLACE = Path(tempfile.mkdtemp(prefix="upgrader-fuzz-"))
_INT64 = 2**63


def fuzz_text(data: bytes) -> None:
    """The readers of one value: total, and within the bounds that sums are computed with."""
    text = data.decode(errors="replace")
    for read, most in (
        (untrusted.parse_whole, untrusted.LARGEST),
        (untrusted.parse_quantity, untrusted.LARGEST),
        (untrusted.parse_duration, untrusted.LONGEST_SECONDS),
    ):
        found = read(text)
        assert found is None or 0 <= found <= most
    at = untrusted.parse_instant(text)
    if at is not None:
        longest = timedelta(seconds=untrusted.LONGEST_SECONDS)
        assert at - longest < at < at + longest
    assert len(untrusted.cut_name(text)) <= untrusted.LONGEST_NAME
    assert untrusted.quote_text(text)


def fuzz_document(data: bytes) -> None:
    """JSON, and the readers of its numbers."""
    found = untrusted.read_json(data, object)
    try:
        assert untrusted.decode_json(data, object) == found or found != found  # noqa: PLR0124 - NaN is none of JSON's
    except UnreadableError:
        assert found is None
    for value in found if isinstance(found, list) else [found]:
        for read in (
            untrusted.read_count,
            untrusted.parse_quantity,
            untrusted.read_seconds,
            untrusted.parse_whole,
            untrusted.parse_instant,
        ):
            read(value)


def fuzz_acknowledgement(data: bytes) -> None:
    """ack.json of a job: an answer that says nothing without its pod, or none."""
    with structlog.testing.capture_logs():
        found = Reader().answer(POD, data, "ack.json")
    if found is not None:
        assert 0 <= found.step < _INT64
        assert 0 <= found.request_id < _INT64
        msgspec.json.encode(found)  # as it goes into a status


def fuzz_progress(data: bytes) -> None:
    """progress.json of a job."""
    with structlog.testing.capture_logs():
        found = Reader().progress(POD, data, "progress.json")
    assert found is None or 0 <= found < _INT64


def fuzz_saved_forecast(data: bytes) -> None:
    """What `upgrader apply` reads; what it takes it writes again as it was."""
    with contextlib.suppress(ConfigurationError):
        found = plan_file.decode_forecast(data, "plan.json")
        assert plan_file.decode_forecast(plan_file.encode_forecast(found), "plan.json") == found


def fuzz_stack_manifest(data: bytes) -> None:
    """What `upgrader plan -f` reads."""
    path = _written("stack.yaml", data)
    with contextlib.suppress(ConfigurationError):
        name, spec = stack_edits.read_manifest(path)
        assert name
        msgspec.json.encode(spec)  # as it goes to the API server


def fuzz_module(data: bytes) -> None:
    """A kernel module, plain or compressed."""
    path = _written("module.ko.xz" if data.startswith(b"\xfd7zXZ") else "module.ko", data)
    with contextlib.suppress(ModuleUnreadableError):
        assert read_module(path).name


class _Lists:
    """In the place of apt: one list of packages that it has verified."""

    arch = "amd64"

    def __init__(self, path: Path) -> None:
        self._path = path
        self.archives = self

    def archive_of(self, _suite: str) -> str:
        return "debian"

    def verified_indices(self) -> Iterator[Index]:
        yield Index(suite="bookworm", component="main", path=self._path)

    def signed_digests(self) -> dict[str, str]:
        return {}


def fuzz_archive_index(data: bytes) -> None:
    """A Packages list, plain or compressed, up to the kernels that are in it."""
    path = _written("Packages.xz" if data.startswith(b"\xfd7zXZ") else "Packages", data)
    with contextlib.suppress(ArchiveError, HostileNameError):
        discovery.read_lists(_Lists(path), {"nvidia-kernel-dkms"})  # type: ignore[arg-type]


def fuzz_definition(data: bytes) -> None:
    """A build definition that came with its packages."""
    with contextlib.suppress(ConfigurationError):
        found = definition.decode_definition(data)
        assert definition.decode_definition(definition.encode_definition(found)) == found


def fuzz_registry(data: bytes) -> None:
    """A registry's answers to everything that it is asked: manifests, lists of tags and attachments, log-ins."""
    image = f"{HOST}/drivers/a@{DIGEST}"
    asked = (
        lambda: client(data).digest(f"{HOST}/drivers/a:1"),
        lambda: client(data).get_manifest(f"{HOST}/drivers/a:1"),
        lambda: client(data).list_tags(f"{HOST}/drivers/a"),
        lambda: attachments.list_attachments(client(data), image),
        lambda: client(data).pull(f"{HOST}/drivers/a:1", _PLACE / "layout"),
    )
    for ask in asked:
        with contextlib.suppress(RegistryError, ConfigurationError):
            LOOP.run_until_complete(ask())


def fuzz_bundle(data: bytes) -> None:
    """A signature that hangs on an image: one of a key, or none; no error at all."""
    found = parse_bundle(data)
    assert found is None or parse_bundle(found.bundle.data) == found


def fuzz_reference(data: bytes) -> None:
    """An image's name."""
    with contextlib.suppress(ConfigurationError):
        found = parse_reference(data.decode(errors="replace"))
        assert parse_reference(str(found)) == found


def fuzz_kubeconfig(data: bytes) -> None:
    """A kubelet's kubeconfig."""
    _written("kubeconfig", data)
    with contextlib.suppress(OrderFailedError):
        read_access(Host(root=_PLACE), "/kubeconfig")


def fuzz_gpu_report(data: bytes) -> None:
    """The reports of nvidia-smi."""
    text = data.decode(errors="replace")
    parse_links(text)
    with contextlib.suppress(UnreadableError):
        assert all(gpu.uuid and gpu.address for gpu in parse_report(text).gpus)


def fuzz_node_record(data: bytes) -> None:
    """The log of recorded outputs, what they are compared with, and their redaction."""
    outputs = read_outputs(data)
    assert all("/" not in name and not name.startswith(".") for name in outputs)
    text = data.decode(errors="replace")
    comparisons.compare_holders(text, text)
    comparisons.compare_modules(text, (), "nvidia")
    comparisons.compare_devices(1, text)
    redactor = Redactor(b"k", text.split()[:20])
    once = redactor.redact_text(text)
    assert redactor.redact_text(once) == once


def fuzz_planted(data: bytes) -> None:
    """Reads nothing."""
    assert data != PLANTED, "planted"


def _written(name: str, data: bytes) -> Path:
    path = _PLACE / name
    path.write_bytes(data)
    return path


TARGETS: dict[str, Callable[[bytes], None]] = {name: globals()[f"fuzz_{name}"] for name in (*NAMES, "planted")}
