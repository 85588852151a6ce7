"""Finding and building, with programs of a few lines in place of Go and of what it builds."""

import os
import threading
from pathlib import Path

import pytest

from upgrader.core.errors import DevClusterError
from upgrader_dev.devcluster.base import binaries, versions
from upgrader_dev.devcluster.base.versions import (
    COSIGN_TOOL,
    ETCD_SERVER,
    KUBE_APISERVER,
    KUBELETS,
    KWOK_CONTROLLER,
    OCI_REGISTRY,
)

BUILDS = """#!/bin/sh
# writes what it was asked for into the file after -o
echo "$@" >> "$(dirname "$0")/asked"
echo "$CGO_ENABLED $PWD" >> "$(dirname "$0")/how"
while [ "$1" != -o ]; do shift; done
echo a/package >&2
printf '#!/bin/sh\\necho built\\n' > "$2"
chmod 755 "$2"
"""


@pytest.fixture
def told():
    return []


@pytest.fixture
def go(tmp_path, monkeypatch):
    """A Go that builds at once; the cache is empty, and PATH has nothing but it and a shell's programs."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path / 'go'}:/usr/bin:/bin")
    return program(tmp_path / "go" / "go", BUILDS)


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def says(path, version):
    return program(path, f"#!/bin/sh\necho '{version}'\n")


def test_built_once_into_the_cache(go, told, tmp_path):
    first = binaries.find_program(KUBE_APISERVER, told.append)
    again = binaries.find_program(KUBE_APISERVER, told.append)

    assert first == again
    assert first.is_relative_to(tmp_path / "cache" / "upgrader" / "bin")
    assert (tmp_path / "go" / "asked").read_text().count("\n") == 1
    assert told[0].startswith("kube-apiserver 1.36.3: building")
    assert told[-1].startswith("kube-apiserver 1.36.3: built in")
    assert [entry.name for entry in first.parent.iterdir()] == ["kube-apiserver"]


def test_built_from_its_own_module_static_and_with_its_version(go, told, tmp_path):
    binaries.kubelet_program("1.35.4", told.append)

    asked = (tmp_path / "go" / "asked").read_text()
    assert asked.endswith("k8s.io/kubernetes/cmd/kubelet\n")
    assert "-X=k8s.io/component-base/version.gitVersion=v1.35.4" in asked
    how = (tmp_path / "go" / "how").read_text().split()
    assert how == ["0", str(Path(binaries.__file__).parents[1] / "gomod" / "kubelet-1.35")]


def test_several_at_once_build_once(go, told, tmp_path):
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(binaries.find_program(ETCD_SERVER, told.append))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(set(found)) == 1
    assert len(found) == 4
    assert (tmp_path / "go" / "asked").read_text().count("\n") == 1


def test_a_failed_build_leaves_nothing_and_shows_the_compilers_words(go, told, tmp_path):
    program(go, "#!/bin/sh\necho 'undefined: x' >&2\nexit 1\n")

    with pytest.raises(DevClusterError, match=r"etcd 3\.6\.8 could not be built") as raised:
        binaries.find_program(ETCD_SERVER, told.append)

    assert raised.value.details == "undefined: x"
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file() and path.suffix != ".lock"]


def test_no_go_says_what_to_install(go, told, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))

    with pytest.raises(DevClusterError, match="Go is not installed") as raised:
        binaries.find_program(ETCD_SERVER, told.append)

    assert "Install Go" in raised.value.resolution


@pytest.mark.parametrize("version", ["etcd Version: 3.6.8", "etcd Version: 3.6.8\nGit SHA: x"])
def test_assets_of_the_right_version_are_used(go, told, tmp_path, monkeypatch, version):
    asset = says(tmp_path / "assets" / "etcd", version)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(asset.parent))

    assert binaries.find_program(ETCD_SERVER, told.append) == asset
    assert told == []


@pytest.mark.parametrize("version", ["etcd Version: 3.6.80", "etcd Version: 3.6.8-rc.1", "etcd Version: 3.5.0"])
def test_assets_of_another_version_are_not(go, told, tmp_path, monkeypatch, version):
    asset = says(tmp_path / "assets" / "etcd", version)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(asset.parent))

    assert binaries.find_program(ETCD_SERVER, told.append) != asset


def test_a_program_on_path_is_used(go, told):
    found = says(go.parent / "kwok", "kwok version v0.7.0 go1.26 (linux/amd64)")

    assert binaries.find_program(KWOK_CONTROLLER, told.append) == found


def test_another_program_of_the_name_on_path_is_not(go, told):
    found = program(go.parent / "registry", "#!/bin/sh\nexit 2\n")

    assert binaries.find_program(OCI_REGISTRY, told.append) != found


def test_a_kubelet_is_always_our_own(go, told):
    found = says(go.parent / "kubelet", "Kubernetes v1.34.4")

    assert binaries.kubelet_program("1.34.4", told.append) != found


def test_cosign_is_always_our_own(go, told):
    found = says(go.parent / "cosign", "GitVersion: v3.1.3")

    assert binaries.cosign_program(told.append) != found


def test_a_kubelet_that_nobody_pinned(told):
    with pytest.raises(DevClusterError, match=r"kubelet 1\.20\.0 is not available") as raised:
        binaries.kubelet_program("1.20.0", told.append)

    assert raised.value.details == f"no kubelet 1.20.0; there are {', '.join(KUBELETS)}"


@pytest.mark.parametrize(
    "tool",
    [KUBE_APISERVER, ETCD_SERVER, KWOK_CONTROLLER, OCI_REGISTRY, COSIGN_TOOL, *map(versions.kubelet_tool, KUBELETS)],
)
def test_each_program_is_a_tool_of_its_module_at_its_version(tool):
    text = (Path(binaries.__file__).parents[1] / "gomod" / tool.module / "go.mod").read_text()

    assert tool.package in text
    module = tool.package.split("/cmd/")[0]
    assert f"{module} v{tool.version}" in text


def test_the_key_of_a_program_follows_from_all_that_it_is_made_of(monkeypatch, tmp_path):
    keys = {binaries._cache_key(tool) for tool in (KUBE_APISERVER, ETCD_SERVER, versions.kubelet_tool("1.34.4"))}

    assert len(keys) == 3
    assert all("/" not in key for key in keys)
    assert os.fspath(binaries._cache_key(ETCD_SERVER)).startswith("etcd-3.6.8-")
