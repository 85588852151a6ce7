"""Driver images of some hundred bytes, whole as real ones are: /driver with modules and manifest, labels, a layout."""

import hashlib
import io
import json
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from tests.support.driver_builds import kernel, package
from tests.support.image_registry import digest_of
from tests.support.kernel_modules import Sample, headers
from tests.support.trusting import IDENTITY, INPUTS
from upgrader.core.driver_build.driver_builds import CheckName, Identity, Verdict, build_key
from upgrader.images.debian.values import ArchiveDiscovery
from upgrader.images.drivers.builder.catalog import Catalog
from upgrader.images.drivers.recipe.manifest import (
    DriverManifest,
    checksum_lines,
    describe_image,
    encode_manifest,
    load_order,
    shipped_module,
)
from upgrader.images.drivers.recipe.recipes import read_recipes
from upgrader.images.labels import identity_labels
from upgrader.images.layout import MANIFEST, Layout, LayoutWriter
from upgrader.images.trust import BUILD_KEY

LAYER = "application/vnd.oci.image.layer.v1.tar"
CONFIG = "application/vnd.oci.image.config.v1+json"
PLACE = f"lib/modules/{IDENTITY.kernel}/updates"
Files = dict[str, bytes]


def manifest(modules: Path, identity: Identity = IDENTITY, place: str = PLACE, inputs=INPUTS) -> DriverManifest:
    """Of the modules in a folder."""
    found = [shipped_module(path, f"{place}/{path.name}") for path in sorted(modules.glob("*.ko"))]
    checked = Verdict(check=CheckName.CRC, passed=True, reason="all symbols have the kernel's CRCs")
    return describe_image(identity, inputs, modules=found, verdicts=[checked])


def driver_files(folder: Path, identity: Identity = IDENTITY, **sample) -> Files:
    """/driver of an image with one module, by name below it."""
    folder.mkdir(parents=True)
    said = {"name": "nvidia", "version": identity.driver, "release": identity.kernel, **sample}
    module = Sample(**said).write(folder)
    place = f"lib/modules/{identity.kernel}/updates"
    made = manifest(folder, identity, place)
    return {f"{place}/{module.name}": module.read_bytes(), **described(made)}


def described(made: DriverManifest) -> Files:
    """A manifest, and what the programs of the image read in its place."""
    return {
        "manifest.json": encode_manifest(made),
        "load-order": load_order(made).encode(),
        "modules.sha256": checksum_lines(made).encode(),
    }


def whole_image(
    folder: Path,
    files: Files,
    *,
    identity: Identity = IDENTITY,
    labels: Mapping[str, str] | None = None,
    links: Mapping[str, str] | None = None,
) -> Layout:
    """The layout of an image with these files; `links` are symbolic ones below /driver."""
    layout = LayoutWriter(folder)
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(f"driver/{name}")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
        for name, target in (links or {}).items():
            entry = tarfile.TarInfo(f"driver/{name}")
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            archive.addfile(entry)
    layer = layout.put_blob(LAYER, tar.getvalue())
    said = {**identity_labels(identity), BUILD_KEY: build_key(identity, INPUTS)} if labels is None else dict(labels)
    system = {"type": "layers", "diff_ids": [digest_of(tar.getvalue())]}
    whole = {"architecture": "amd64", "os": "linux", "config": {"Labels": said}, "rootfs": system}
    config = layout.put_blob(CONFIG, json.dumps(whole).encode())
    made = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer]}
    return layout.write_index(layout.put_blob(MANIFEST, msgspec.json.encode(made)))


def asked(recipes: Path) -> tuple[str, ...]:
    """The packages that an archive was asked for, for the recipes of a folder."""
    return tuple(name for one in read_recipes(recipes).values() for name in one.recipe.packages)


def known_headers(cache: Path, *, release: str = IDENTITY.kernel, os: str = IDENTITY.os, **exports) -> None:
    """A user's cache in which the archives had a kernel, with its headers unpacked."""
    own = kernel(release, os, headers=(package(f"linux-headers-{release}"),))
    Catalog(discovery=ArchiveDiscovery(kernels=(own,)), toolchains=()).save(cache / "upgrader/driver-builds")
    facts = json.dumps([one.sha256 for one in own.headers], separators=(",", ":"))
    name = f"headers-{release}-{hashlib.sha256(facts.encode()).hexdigest()[:16]}"
    headers(cache / "upgrader/driver-builds/trees" / name / "usr/src", release=release, **exports)


def changed(files: Files, name: str, change: Callable[[bytes], bytes]) -> Files:
    """The same files, one of them another."""
    return {**files, name: change(files[name])}
