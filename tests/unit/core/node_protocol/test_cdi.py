import pytest

from upgrader.core.node_protocol.cdi import serves_cdi

DEBIAN_12 = "containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u1"
ON, OFF = "    enable_cdi = true\n", "    enable_cdi = false\n"

RUNTIMES = {
    (DEBIAN_12, ON): (False, "containerd 1.6 does not serve CDI devices, which require containerd 1.7"),
    ("containerd github.com/containerd/containerd v1.7.24 88bf", OFF): (
        False,
        "containerd 1.7 is configured not to serve CDI devices",
    ),
    ("containerd github.com/containerd/containerd v1.7.24 88bf", ""): (
        False,
        "containerd 1.7 is configured not to serve CDI devices",
    ),
    ("containerd github.com/containerd/containerd v1.7.24 88bf", ON): (True, "containerd 1.7 serves CDI devices"),
    ("containerd github.com/containerd/containerd/v2 2.1.4", ""): (True, "containerd 2.1 serves CDI devices"),
    ("containerd github.com/containerd/containerd/v2 v2.1.4", ON): (True, "containerd 2.1 serves CDI devices"),
    ("containerd github.com/containerd/containerd/v2 v2.0.0", OFF): (
        False,
        "containerd 2.0 is configured not to serve CDI devices",
    ),
    ("crio version 1.34.1\nVersion: 1.34.1", ""): (True, "CRI-O 1.34 serves CDI devices"),
    ("crio version 1.22.0", ""): (False, "CRI-O 1.22 does not serve CDI devices"),
    ("chroot: failed", ON): (False, "the container runtime is not known: 'chroot: failed'"),
    ("", ""): (False, "the container runtime is not known: ''"),
}


@pytest.mark.parametrize(("said", "expected"), RUNTIMES.items())
def test_which_runtime_serves_cdi_devices(said, expected):
    assert serves_cdi(*said) == expected
