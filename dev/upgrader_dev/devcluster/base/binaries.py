"""The programs of the cluster: an installed program of the right version, or built once into the cache."""

import hashlib
import os
import platform
import re
import shutil
import tempfile
import time
from pathlib import Path

from upgrader.core.errors import DevClusterError
from upgrader.process import ProgramFailedError, ProgramMissingError, run
from upgrader.process.places import Progress, cache_root, hold_lock
from upgrader_dev.devcluster.base import versions
from upgrader_dev.devcluster.base.versions import Tool

BUILD_SECONDS = 3600.0
"""Timeout for one program; the API server takes about 3 minutes on 2 cores with an empty cache."""

_MODULES = Path(__file__).parents[1] / "gomod"
_RECIPE = b"static, trimpath 1"
_REPORT_SECONDS = 10.0
_PACKED = ("kubelet", "cosign", "containerd", "containerd-shim-runc-v2", "ctr")


def kubelet_program(version: str, progress: Progress) -> Path:
    """The kubelet of a version, a static program that runs in any image or box."""
    try:
        return find_program(versions.kubelet_tool(version), progress)
    except ValueError as error:
        raise DevClusterError(f"kubelet {version} is not available", details=str(error)) from error


def cosign_program(progress: Progress) -> Path:
    """cosign, a static program that runs in any image."""
    return find_program(versions.COSIGN_TOOL, progress)


def build_all(progress: Progress) -> list[Path]:
    """Every program that any cluster requires; missing programs are built."""
    return [find_program(tool, progress) for tool in versions.all_tools()]


def find_program(tool: Tool, progress: Progress) -> Path:
    """The path of a program: from the cache, or from KUBEBUILDER_ASSETS or PATH if the version matches, or built.

    Raises:
        DevClusterError: Go is missing or too old, or the build fails.
    """
    cached = cache_root() / "bin" / _cache_key(tool) / tool.name
    if cached.exists():
        return cached
    if (elsewhere := _find_elsewhere(tool)) is not None:
        return elsewhere
    lock = cache_root() / "bin" / f".{tool.module}.lock"
    with hold_lock(lock, lambda: progress(f"{tool.name} {tool.version}: waiting for another build")):
        if not cached.exists():
            _build_program(tool, cached, progress)
    return cached


def _cache_key(tool: Tool) -> str:
    digest = hashlib.sha256(_RECIPE)
    for part in (
        (_MODULES / tool.module / "go.mod").read_bytes(),
        (_MODULES / tool.module / "go.sum").read_bytes(),
        "\0".join((tool.package, platform.machine(), *tool.ldflags)).encode(),
    ):
        digest.update(hashlib.sha256(part).digest())
    return f"{tool.name}-{tool.version}-{digest.hexdigest()[:16]}"


def _find_elsewhere(tool: Tool) -> Path | None:
    # programs in images and boxes must be static; those of the distribution are not
    if tool.name in _PACKED:
        return None
    assets = os.environ.get("KUBEBUILDER_ASSETS", "")
    for folder in (assets, os.environ.get("PATH", "")):
        program = shutil.which(tool.name, path=folder) if folder else None
        if program is not None and _is_version(tool, Path(program)):
            return Path(program).resolve()
    return None


def _is_version(tool: Tool, candidate: Path) -> bool:
    try:
        output = run([candidate, tool.version_argument], timeout=30).text
    except (ProgramFailedError, ProgramMissingError):
        return False  # another program of this name
    return re.search(rf"{re.escape(tool.version_output)}(?![\w.+-])", output) is not None


def _build_program(tool: Tool, target: Path, progress: Progress) -> None:
    go = shutil.which("go")
    if go is None:
        raise DevClusterError(
            f"{tool.name} {tool.version} must be built, and Go is not installed",
            resolution="Install Go 1.26 or newer (1.21 or newer fetches that by itself unless GOTOOLCHAIN=local).",
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    lines = _Progress(tool, progress)
    # next to the target, so that the rename stays on one file system and is atomic
    with tempfile.TemporaryDirectory(dir=target.parent.parent, prefix=".build-") as folder:
        program = Path(folder) / tool.name
        flags = ["-v", "-mod=readonly", "-buildvcs=false", "-trimpath", f"-ldflags={' '.join(tool.ldflags)}"]
        try:
            run(
                [go, "build", *flags, "-o", program, tool.package],
                timeout=BUILD_SECONDS,
                cwd=_MODULES / tool.module,
                env={"CGO_ENABLED": "1" if tool.cgo else "0", "GOFLAGS": ""},
                on_line=lines,
            )
        except ProgramFailedError as error:
            raise DevClusterError(
                f"{tool.name} {tool.version} could not be built",
                details=error.details,
                resolution="The control plane, the registry and cosign need Go 1.26, kubelet 1.35 Go 1.25, "
                "the others Go 1.24; modules come from the Go proxy that `go env GOPROXY` names.",
            ) from error
        program.rename(target)
    lines.report_end()


class _Progress:
    """Reports the compiled packages every few seconds."""

    def __init__(self, tool: Tool, progress: Progress) -> None:
        self._what = f"{tool.name} {tool.version}"
        self._progress = progress
        self._packages = 0
        self._started = self._reported = time.monotonic()
        progress(f"{self._what}: building (kept in {cache_root() / 'bin'})")

    def __call__(self, line: str) -> None:
        self._packages += not line.startswith("go: ")
        now = time.monotonic()
        if now - self._reported > _REPORT_SECONDS:
            self._reported = now
            self._progress(f"{self._what}: {self._packages} packages compiled in {now - self._started:.0f} s")

    def report_end(self) -> None:
        seconds = time.monotonic() - self._started
        self._progress(f"{self._what}: built in {seconds:.0f} s ({self._packages} packages compiled)")
