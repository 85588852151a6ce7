"""The registry of the embedded cluster (distribution) on a port of loopback, with its files at hand.

It is a process, or a container where DOCKER_HOST names an engine.
"""

import contextlib
import http.client
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from testcontainers.core.container import DockerContainer
from testcontainers.core.image import DockerImage

from tests.support.authors import free_port
from tests.support.programs import soon, started
from upgrader_dev.devcluster.base import versions
from upgrader_dev.devcluster.base.binaries import find_program

QUIET = {"OTEL_TRACES_EXPORTER": "none"}


class RealRegistry:
    """A running registry at `host` (address:port), without TLS."""

    def __init__(self, host: str, files: Path) -> None:
        self.host = host
        self._files = files / "docker/registry/v2"

    def blob(self, digest: str) -> Path:
        """The file of a blob or manifest: whoever writes it tampers with the registry behind its back."""
        digits = digest.partition(":")[2]
        return self._files / "blobs/sha256" / digits[:2] / digits / "data"

    def forget(self, repository: str, digest: str) -> None:
        """Take a blob out of a repository, as a clean-up that went wrong does."""
        digits = digest.partition(":")[2]
        shutil.rmtree(self._files / "repositories" / repository / "_layers/sha256" / digits)


@contextlib.contextmanager
def real_registry(folder: Path, *, settings: dict[str, object] | None = None) -> Iterator[RealRegistry]:
    """A registry for as long as the block runs."""
    port = free_port()
    folder.mkdir(parents=True, exist_ok=True)
    whole = {
        "version": 0.1,
        "log": {"level": "warn", "accesslog": {"disabled": True}},
        "storage": {"filesystem": {"rootdirectory": str(folder / "files")}, "delete": {"enabled": True}},
        "http": {"addr": f"127.0.0.1:{port}"},
        **(settings or {}),
    }
    (folder / "registry.yaml").write_text(json.dumps(whole))  # JSON is YAML
    program = find_program(versions.OCI_REGISTRY, print)
    with _in_container(program, folder) if engine() else _as_process(program, folder):
        soon(lambda: _answers(port))
        yield RealRegistry(f"127.0.0.1:{port}", folder / "files")


def engine() -> str:
    """The socket of a container engine that is set for tests (DOCKER_HOST, as of Docker or Podman); empty: none."""
    return os.environ.get("DOCKER_HOST", "")


def _as_process(program: Path, folder: Path) -> contextlib.AbstractContextManager[object]:
    return started([str(program), "serve", str(folder / "registry.yaml")], log=folder / "log", env=QUIET)


@contextlib.contextmanager
def _in_container(program: Path, folder: Path) -> Iterator[None]:
    """The same program in a container, which shares the network of the machine and the folder."""
    context = folder / "image"
    context.mkdir()
    shutil.copy(program, context / "registry")
    (context / "Dockerfile").write_text('FROM scratch\nCOPY registry /registry\nENTRYPOINT ["/registry", "serve"]\n')
    with DockerImage(path=str(context), tag=f"localhost/upgrader-test-registry:{os.getpid()}") as image:
        container = DockerContainer(str(image)).with_kwargs(network_mode="host").with_envs(**QUIET)
        container.with_volume_mapping(str(folder), str(folder), "rw").with_command(str(folder / "registry.yaml"))
        with container:
            yield


def _answers(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", "/v2/")
        return connection.getresponse().status in {200, 401}
    except OSError:
        return False
    finally:
        connection.close()
