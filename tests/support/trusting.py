"""Images to sign, in values: facts of a small driver image, its layout, key pairs of the real cosign."""

import json
from pathlib import Path

from tests.support.image_registry import digest_of, write_layout
from upgrader.core.driver_build.driver_builds import Identity, Input
from upgrader.images.layout import Layout
from upgrader.images.trust import BUILD_KEY, ShippedFile, SignedImageFacts, SigningKey
from upgrader.process import run

IDENTITY = Identity(
    vendor="nvidia",
    recipe="nvidia-open",
    driver="535.261.03",
    flavour="open",
    kernel="6.1.0-50-amd64",
    os="bookworm",
)
INPUTS = (
    Input(kind="package", name="linux-headers-6.1.0-50-amd64", version="6.1.176-1", sha256="1" * 64),
    Input(kind="package", name="nvidia-open-kernel-dkms", version="535.261.03-1", sha256="2" * 64),
    Input(kind="recipe", name="nvidia-open", version="1", sha256="3" * 64),
    Input(kind="compiler", name="gcc-12", version="12.2.0-14+deb12u1", sha256="4" * 64),
    Input(kind="base-image", name="base", version="", sha256="5" * 64),
    Input(kind="option", name="strip", version="-g", sha256="6" * 64),
)
FILES = (ShippedFile(path="lib/modules/6.1.0-50-amd64/nvidia.ko", sha1="a" * 40, sha256="b" * 64),)
PASSWORD = "correct horse"  # noqa: S105 - of a key that lives as long as a test
LAYER = b"a module" * 1000


def facts(digest: str, **changes: object) -> SignedImageFacts:
    """What is to be said about the image of IDENTITY."""
    return SignedImageFacts(**{"digest": digest, "identity": IDENTITY, "inputs": INPUTS, "files": FILES, **changes})


def driver_layout(folder: Path, *, layer: bytes = LAYER, label: str | None = None) -> Layout:
    """A driver image of one layer; `label` is its build key, that of INPUTS if not given, and "" for none."""
    key = facts("").key if label is None else label
    labels = {"Labels": {BUILD_KEY: key}} if key else {}
    system = {"type": "layers", "diff_ids": [digest_of(layer)]}
    config = {"architecture": "amd64", "os": "linux", "config": labels, "rootfs": system}
    return Layout(write_layout(folder, layer, json.dumps(config).encode()))


def key_pair(folder: Path, program: Path) -> tuple[SigningKey, Path]:
    """A key that signs, and the file of the one that verifies."""
    folder.mkdir(parents=True, exist_ok=True)
    run([program, "generate-key-pair"], timeout=60, cwd=folder, env={"COSIGN_PASSWORD": PASSWORD}, secrets=(PASSWORD,))
    return SigningKey(path=folder / "cosign.key", password=PASSWORD), folder / "cosign.pub"
