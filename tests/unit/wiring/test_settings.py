"""Settings: defaults, every variable, all faults at once."""

import re

import pytest

from upgrader.core.errors import ConfigurationError
from upgrader.telemetry.logs import LogFormat, LogLevel
from upgrader.wiring.settings import VARIABLES, Settings, read_settings


def test_defaults_and_an_identity_of_its_own():
    first, second = read_settings({}), read_settings({"UPGRADER_NAMESPACE": "", "HOME": "/root"})
    assert first.identity != second.identity
    assert first == Settings(identity=first.identity)


def test_every_variable():
    values = {
        "UPGRADER_NAMESPACE": "elsewhere",
        "UPGRADER_NODE_IMAGE": "registry.example/upgrader:1",
        "UPGRADER_OPERAND_REGISTRY": "registry.example:5000/mirror",
        "UPGRADER_IMAGE_REPOSITORY": "registry:80/drivers",
        "UPGRADER_BUILDER_IMAGE": "registry.example/upgrader-builder@sha256:" + "b" * 64,
        "UPGRADER_BUILD_AT_ONCE": "3",
        "UPGRADER_BUILD_CPU": "500m",
        "UPGRADER_BUILD_MEMORY": "1.5Gi",
        "UPGRADER_BUILD_NODES": "role=build, disk=fast",
        "UPGRADER_SIGNING_SECRET": "signing",
        "UPGRADER_MODULE_SIGNING_SECRET": "module-signing",
        "UPGRADER_REGISTRY_SECRET": "push",
        "UPGRADER_IMAGE_KEY": "/keys/cosign.pub",
        "UPGRADER_COSIGN": "/opt/cosign",
        "UPGRADER_INSECURE_REGISTRIES": "10.0.0.1:5000, registry:80",
        "UPGRADER_ACTIVE_SECONDS": "0.2",
        "UPGRADER_IDLE_SECONDS": "2",
        "UPGRADER_NOTICE_SECONDS": "3",
        "UPGRADER_LEASE_SECONDS": "12",
        "UPGRADER_IDENTITY": "me",
        "UPGRADER_LISTEN": "[::1]:8080",
        "UPGRADER_STUCK_SECONDS": "60",
        "UPGRADER_LOG_FORMAT": "TEXT",
        "UPGRADER_LOG_LEVEL": "debug",
    }
    assert set(values) == set(VARIABLES)
    found = read_settings(values)
    assert re.fullmatch("me_[0-9a-f]{8}", found.identity)
    assert found == Settings(
        namespace="elsewhere",
        node_image="registry.example/upgrader:1",
        operand_registry="registry.example:5000/mirror",
        image_repository="registry:80/drivers",
        builder_image="registry.example/upgrader-builder@sha256:" + "b" * 64,
        build_at_once=3,
        build_cpu="500m",
        build_memory="1.5Gi",
        build_nodes=(("role", "build"), ("disk", "fast")),
        signing="signing",
        module_signing="module-signing",
        push_auth="push",
        image_key="/keys/cosign.pub",
        cosign="/opt/cosign",
        insecure_registries=("10.0.0.1:5000", "registry:80"),
        active_seconds=0.2,
        idle_seconds=2.0,
        notice_seconds=3.0,
        lease_seconds=12,
        identity=found.identity,
        listen_host="::1",
        listen_port=8080,
        stuck_seconds=60.0,
        log_format=LogFormat.TEXT,
        log_level=LogLevel.DEBUG,
    )


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("NAMESPACE", "Not A Name"),
        ("NODE_IMAGE", "two words"),
        ("INSECURE_REGISTRIES", "http://registry"),
        ("IMAGE_REPOSITORY", "registry"),
        ("IMAGE_REPOSITORY", "registry/Drivers:1"),
        ("BUILDER_IMAGE", "registry/builder:1"),
        ("BUILD_AT_ONCE", "0"),
        ("BUILD_CPU", "all"),
        ("BUILD_NODES", "gpu"),
        ("SIGNING_SECRET", "A Secret"),
        ("MODULE_SIGNING_SECRET", "tls.key=/a/file"),
        ("ACTIVE_SECONDS", "0"),
        ("IDLE_SECONDS", "soon"),
        ("LEASE_SECONDS", "5"),
        ("LEASE_SECONDS", "1.5"),
        ("LISTEN", "8080"),
        ("LISTEN", "host:99999"),
        ("LOG_FORMAT", "xml"),
        ("LOG_LEVEL", "loud"),
    ],
)
def test_a_fault_names_the_variable(variable, text):
    with pytest.raises(ConfigurationError) as caught:
        read_settings({f"UPGRADER_{variable}": text})
    assert f"UPGRADER_{variable}={text}: " in caught.value.details


def test_a_builder_needs_a_place_for_its_images():
    with pytest.raises(ConfigurationError) as caught:
        read_settings({"UPGRADER_BUILDER_IMAGE": "registry/builder@sha256:" + "b" * 64})
    assert (
        caught.value.details == "UPGRADER_BUILDER_IMAGE requires UPGRADER_IMAGE_REPOSITORY, to which images are pushed"
    )


def test_all_faults_are_told_at_once():
    with pytest.raises(ConfigurationError) as caught:
        read_settings({"UPGRADER_IDLE_SECONDS": "x", "UPGRADER_LOG_LEVEL": "x", "UPGRADER_LISTEN": "x"})
    assert len(caught.value.details.splitlines()) == 3
