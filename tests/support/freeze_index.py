"""A small index out of the real archives, for tests: `python -m tests.support.freeze_index`.

Asks the archives of this machine's apt, takes the stanzas of a few kernels and drivers that were worth a test, and of
those only the fields that are read. Run it again to have other kernels in it; the tests name those that they need.
"""

import re

from tests.support.repository import ROOT
from upgrader.images.debian.apt import Apt
from upgrader.images.debian.archives import configured_archives
from upgrader.images.debian.stanzas import read_stanzas
from upgrader.process.places import cache_root

FROZEN = ROOT / "tests/support/frozen_index"
SUITES = (
    "bookworm",
    "bookworm-security",
    "trixie",
    "trixie-security",
    "trixie-backports",
)
COMPONENTS = ("main", "contrib", "non-free", "non-free-firmware")
_FIELDS = ["Package", "Source", "Version", "Architecture", "Pre-Depends", "Depends", "Filename", "Size", "SHA256"]
_RELEASES = (
    r"6\.1\.0-47-(cloud-|rt-)?amd64",
    r"6\.1\.0-(48|50|53|56)-amd64",  # of -48 there is an image only
    r"6\.12\.94\+deb13-amd64",
    r"6\.12\.107\+deb13-amd64",  # in two suites
    r"6\.12\.115\+deb13(\.1)?-amd64",  # the name is a beginning of the other
    r"7\.2\.12\+deb13-amd64",  # the image is in several packages
)
_TRIXIE = r"6\.12\.(94|107|115)\+deb13|6\.12\.115\+deb13\.1|7\.2\.12\+deb13"
_COMMON = rf"6\.1\.0-47-common-rt|(6\.1\.0-(47|50|53|56)|{_TRIXIE})-common"
_KBUILD = rf"6\.1|{_TRIXIE}"
_WANTED = re.compile(
    rf"linux-(headers|image|base|binary|modules)-({'|'.join(_RELEASES)})(-unsigned)?"
    rf"|linux-headers-({_COMMON})|linux-kbuild-({_KBUILD})|linux-compiler-gcc-12-x86"
    r"|linux-(headers|image)-(6\.12-)?amd64|linux-libc-dev"  # no kernels
    r"|nvidia-(open-)?kernel-dkms|libnvidia-ml1|firmware-nvidia-gsp"
)


def main() -> None:
    """Write the index anew, a file per suite and component that has something."""
    apt = Apt(cache_root() / "apt", configured_archives(), SUITES, COMPONENTS)
    with apt.updated_lists():
        _write(apt)


def _write(apt: Apt) -> None:
    for index in apt.verified_indices():
        found = sorted(
            read_stanzas(index, lambda name: _WANTED.fullmatch(name) is not None), key=lambda one: one["Package"]
        )
        texts = ["".join(f"{name}: {one[name]}\n" for name in _FIELDS if name in one) for one in found]
        if texts:
            FROZEN.mkdir(exist_ok=True)
            (FROZEN / f"{index.suite}.{index.component}.packages").write_text("\n".join(texts), encoding="utf-8")


if __name__ == "__main__":
    main()
