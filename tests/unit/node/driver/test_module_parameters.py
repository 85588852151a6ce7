"""Parameters of modules on a node: the file for the driver image, and the values in force."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.node_world import NodeWorld
from upgrader.core.node_protocol.module_parameters import parameters_file, render_parameters, split_name
from upgrader.core.node_protocol.orders import ModuleParameters
from upgrader.node.driver.module_parameters import (
    describe_parameters,
    find_differences,
    unknown_parameters,
    write_parameters,
)

NAMES = st.builds("{}.{}".format, st.from_regex(r"[a-z0-9_]+", fullmatch=True), st.from_regex(r"\w+", fullmatch=True))
VALUES = st.from_regex(r"[A-Za-z0-9_.,:;=+/@%-]+", fullmatch=True)
PROC_PARAMS = """\
ResmanDebugLevel: 4294967295
EnableGpuFirmware: 18
RmProfilingAdminOnly: 1
RegistryDwords: ""
TemporaryFilePath: "/var/tmp"
"""
"""Lines as /proc/driver/nvidia/params of driver 535 shows them."""


@pytest.fixture
def node(tmp_path):
    """/proc and /sys of a node with NVIDIA's module."""
    folder = tmp_path / "sys/module/nvidia_drm/parameters"
    folder.mkdir(parents=True)
    (folder / "modeset").write_text("N\n")
    params = tmp_path / "proc/driver/nvidia/params"
    params.parent.mkdir(parents=True)
    params.write_text(PROC_PARAMS)
    return {"proc": tmp_path / "proc", "system": tmp_path / "sys"}


@given(st.dictionaries(NAMES, VALUES, max_size=8))
def test_the_file_has_a_line_for_each_parameter(values):
    lines = render_parameters(values).splitlines()
    read = {}
    for line in lines:
        module, _, assignment = line.partition(" ")
        parameter, _, value = assignment.partition("=")
        read[f"{module}.{parameter}"] = value
    assert read == values
    assert all(split_name(name)[0] for name in read)


def test_the_file_is_written_and_removed_with_the_last_parameter(tmp_path):
    host = NodeWorld(tmp_path / "host").host
    file = host.path(parameters_file("nvidia"))
    values = {"b.c": "2", "a.b": "1"}
    write_parameters(ModuleParameters(vendor="nvidia", values=values), host)
    assert (file.read_text(), describe_parameters(values)) == ("a b=1\nb c=2\n", "a.b=1, b.c=2")
    write_parameters(ModuleParameters(vendor="nvidia", values={}), host)
    assert not file.exists()
    write_parameters(ModuleParameters(vendor="nvidia", values={}), host)


def test_a_parameter_that_no_module_of_the_image_has_is_unknown():
    known = {"nvidia": frozenset({"NVreg_X"}), "old": None}
    assert unknown_parameters({"nvidia.NVreg_X": "1", "old.anything": "1"}, known) == ""
    assert unknown_parameters({"nvidia.NVreg_Y": "1", "other.z": "1"}, known) == (
        "nvidia.NVreg_Y: module nvidia of the driver image has no parameter NVreg_Y; "
        "other.z: the driver image has no module other"
    )


@pytest.mark.parametrize(
    ("name", "value", "present"),
    [
        ("nvidia_drm.modeset", "0", None),
        ("nvidia_drm.modeset", "N", None),
        ("nvidia_drm.modeset", "1", "N"),
        ("nvidia.NVreg_EnableGpuFirmware", "0x12", None),
        ("nvidia.NVreg_EnableGpuFirmware", "0", "18"),
        ("nvidia.NVreg_RestrictProfilingToAdminUsers", "0", "1"),
        ("nvidia.NVreg_TemporaryFilePath", "/var/tmp", None),
        ("nvidia.NVreg_RegistryDwords", "RMa=1", '""'),
        ("nvidia.NVreg_NotShown", "1", None),
        ("nvidia_uvm.not_loaded", "1", None),
    ],
)
def test_the_values_in_force_are_compared_as_numbers(node, name, value, present):
    expected = [] if present is None else [f"{name} is {present}, the stack requires {value}"]
    assert find_differences({name: value}, **node) == expected
