import pytest

from upgrader.core.model.skew import Skew, kubelet_skew, minor_of


@pytest.mark.parametrize(
    ("text", "minor"),
    {
        "a kubelet's own": ("1.35.4", (1, 35)),
        "as nodeInfo writes it": ("v1.36.0", (1, 36)),
        "of a distribution": ("v1.34.2+k3s1", (1, 34)),
        "of a cloud": ("v1.33.5-gke.1080000", (1, 33)),
        "without a patch": ("1.35", (1, 35)),
        "nothing": ("", None),
        "a name": ("latest", None),
        "one number": ("1", None),
    }.values(),
)
def test_versions(text, minor):
    assert minor_of(text) == minor


@pytest.mark.parametrize(
    ("kubelet", "api_server", "skew"),
    {
        "the same minor": ("1.36.2", "v1.36.0", Skew(allowed=True)),
        "three minors older": ("1.33.0", "v1.36.0", Skew(allowed=True)),
        "four minors older": (
            "1.32.9",
            "v1.36.0",
            Skew(
                allowed=False,
                message="Kubelet 1.32.9 would be more than 3 minor versions older than the API server (v1.36.0); "
                "choose a "
                "newer one in the stack's spec.kubelet.",
            ),
        ),
        "one minor newer": (
            "1.37.0",
            "v1.36.9",
            Skew(
                allowed=False,
                message="Kubelet 1.37.0 would be newer than the API server (v1.36.9); upgrade the API server first.",
            ),
        ),
        "another major": (
            "1.36.0",
            "v2.0.0",
            Skew(
                allowed=False,
                message="Kubelet 1.36.0 would be more than 3 minor versions older than the API server (v2.0.0); "
                "choose a "
                "newer one in the stack's spec.kubelet.",
            ),
        ),
        "an API server that did not say": (
            "1.36.0",
            "",
            Skew(
                allowed=False,
                message="the API server's version '' is not a version, so the skew cannot be checked.",
            ),
        ),
        "a kubelet that is no version": (
            "newest",
            "v1.36.0",
            Skew(
                allowed=False,
                message="the kubelet's version 'newest' is not a version, so the skew cannot be checked.",
            ),
        ),
    }.values(),
)
def test_skew(kubelet, api_server, skew):
    assert kubelet_skew(kubelet, api_server) == skew
