import pytest
from hypothesis import given
from hypothesis import strategies as st

from upgrader.core.errors import ConfigurationError
from upgrader.images.publish import _driver_tag
from upgrader.images.registry.reference import Reference, parse_reference

DIGEST = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    ("text", "registry", "repository", "tag", "digest"),
    [
        ("busybox", "docker.io", "library/busybox", "latest", ""),
        ("someone/app:1.0", "docker.io", "someone/app", "1.0", ""),
        ("10.64.0.2:5000/upgrader/node:x", "10.64.0.2:5000", "upgrader/node", "x", ""),
        ("localhost/app", "localhost", "app", "latest", ""),
        (f"registry.example/a/b/c@{DIGEST}", "registry.example", "a/b/c", "", DIGEST),
        (f"registry.example:443/a:v1@{DIGEST}", "registry.example:443", "a", "v1", DIGEST),
        ("[::1]:5000/a", "[::1]:5000", "a", "latest", ""),
    ],
)
def test_references_are_read_as_container_runtimes_read_them(text, registry, repository, tag, digest):
    reference = parse_reference(text)
    assert reference == Reference(registry=registry, repository=repository, tag=tag, digest=digest)
    assert parse_reference(str(reference)) == reference
    assert reference.tag_or_digest == (digest or tag)


@pytest.mark.parametrize(
    "text",
    ["", " ", "UPPER/case", "a:", "a@", "a@sha256:12", "a b", "registry.example/", "a//b", "a:b:c", "/a", "-a", "a:.b"],
)
def test_what_is_no_reference_is_refused_with_how_to_write_one(text):
    with pytest.raises(ConfigurationError, match="is not an image reference"):
        parse_reference(text)


def test_the_default_registry_answers_under_another_name():
    assert parse_reference("busybox").api_host != parse_reference("busybox").registry
    assert parse_reference("registry.example/a").api_host == "registry.example"


@given(st.tuples(st.from_regex(r"[0-9][0-9.]{0,7}", fullmatch=True), st.text(min_size=1, max_size=12)))
def test_a_tag_is_always_one_and_tells_versions_and_kernels_apart(identity):
    tag = _driver_tag(*identity)
    assert parse_reference(f"registry.example/driver:{tag[:100]}")
    assert _driver_tag(identity[0], identity[1] + "+") != tag


def test_a_kernel_with_a_plus_and_one_with_its_escape_differ():
    assert _driver_tag("1", "6.12.107+deb13-amd64") == "1-6.12.107_2bdeb13-amd64"
    assert _driver_tag("1", "6.12.107_2bdeb13-amd64") == "1-6.12.107_5f2bdeb13-amd64"
