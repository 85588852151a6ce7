"""dkms.conf: what it says against a kernel. The first one is that of Debian's nvidia-open-kernel-dkms 535.261.03-1."""

import pytest

from upgrader.core.driver_build.dkms import Dkms, kernel_config, parse_dkms

NVIDIA = r"""
# DKMS configuration for the NVIDIA kernel module.  -*- sh -*-

PACKAGE_NAME="nvidia-current-open"
PACKAGE_VERSION="535.261.03"

# Only kernels from 3.10 onwards are supported.
BUILD_EXCLUSIVE_KERNEL="^(3\.[1-9][0-9]|[4-9]\.)"

# The NVIDIA driver does not support real-time kernels.
BUILD_EXCLUSIVE_CONFIG="!CONFIG_PREEMPT_RT !CONFIG_PREEMPT_RT_FULL"

AUTOINSTALL=yes

MAKE[0]="env NV_VERBOSE=1 \
    make ${parallel_jobs+-j$parallel_jobs} modules KERNEL_UNAME=${kernelver}"

BUILT_MODULE_NAME[1]="nvidia-modeset"
DEST_MODULE_NAME[1]="$PACKAGE_NAME-modeset"
BUILT_MODULE_NAME[0]="nvidia"
"""


def test_the_directives_are_read_and_nothing_is_run():
    assert parse_dkms(NVIDIA) == Dkms(
        package="nvidia-current-open",
        version="535.261.03",
        exclusive_kernel=r"^(3\.[1-9][0-9]|[4-9]\.)",
        exclusive_config=("!CONFIG_PREEMPT_RT", "!CONFIG_PREEMPT_RT_FULL"),
        modules=("nvidia", "nvidia-modeset"),
    )


CONFIG = kernel_config('CONFIG_SMP=y\n# CONFIG_PREEMPT_RT is not set\nCONFIG_DRM=m\nCONFIG_CC_VERSION_TEXT="gcc-12"\n')


def test_the_configuration_of_a_kernel_has_what_is_set():
    assert CONFIG == {"CONFIG_SMP": "y", "CONFIG_DRM": "m", "CONFIG_CC_VERSION_TEXT": "gcc-12"}


@pytest.mark.parametrize(
    ("changes", "kernel", "config", "word"),
    [
        ({}, "6.1.0-50-amd64", CONFIG, ""),
        ({}, "6.1.0-50-rt-amd64", {**CONFIG, "CONFIG_PREEMPT_RT": "y"}, "without CONFIG_PREEMPT_RT"),
        ({}, "2.6.32-5-amd64", CONFIG, "BUILD_EXCLUSIVE_KERNEL"),
        ({"exclusive_config": ("CONFIG_DRM",)}, "6.1.0-50-amd64", CONFIG, ""),
        ({"exclusive_config": ("CONFIG_NUMA",)}, "6.1.0-50-amd64", CONFIG, "with CONFIG_NUMA"),
        ({"exclusive_kernel_min": "6.2"}, "6.1.0-50-amd64", CONFIG, "from 6.2 on"),
        ({"exclusive_kernel_min": "6.1"}, "6.12.94+deb13-amd64", CONFIG, ""),
        ({"exclusive_kernel_max": "6.11.99"}, "6.12.94+deb13-amd64", CONFIG, "up to 6.11.99"),
        ({"exclusive_arch": "aarch64"}, "6.1.0-50-amd64", CONFIG, "BUILD_EXCLUSIVE_ARCH"),
    ],
)
def test_what_dkms_would_skip_is_refused_with_its_reason(changes, kernel, config, word):
    base = {"package": "p", "version": "1", "exclusive_kernel": r"^[4-9]\."}
    base["exclusive_config"] = ("!CONFIG_PREEMPT_RT",)
    said = Dkms(**{**base, **changes}).explain_refusal(kernel, "x86_64", config)
    assert word in said if word else said == ""


@pytest.mark.parametrize("text", ["", "PACKAGE_NAME=x", 'PACKAGE_NAME="x\nPACKAGE_VERSION=1'])
def test_what_is_none_is_refused(text):
    with pytest.raises(ValueError):
        parse_dkms(text)
