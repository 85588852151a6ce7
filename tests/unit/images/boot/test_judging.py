import errno
from textwrap import dedent

import pytest

from tests.support.kernel_modules import Sample
from upgrader.core.driver_build.driver_builds import CheckName, Verdict
from upgrader.images.boot import Boot, ModuleLoad, is_undecided, judge_boot, parse_loads
from upgrader.images.modules import read_module

NO_GPU = ModuleLoad(file="nvidia.ko", errno=errno.ENODEV, printed=("NVRM: No NVIDIA GPU found.", "nvlink unregistered"))


def test_answers_are_read_from_a_console_with_what_was_printed_meanwhile():
    console = dedent("""\
        [    0.000000] Linux version 6.1.0-50-amd64
        [    2.100000] boot-check: loading drm.ko
        [    2.110000] boot-check: loaded drm.ko errno=0
        [    2.120000] boot-check: loading nvidia.ko\r
        [    2.130000] nvidia: loading out-of-tree module taints kernel.\r
        [    2.140000] NVRM: No NVIDIA GPU found.
        [    2.150000] boot-check: loaded nvidia.ko errno=19
        [    2.160000] boot-check: end
        [    2.170000] reboot: Power down
    """)
    said = ("nvidia: loading out-of-tree module taints kernel.", "NVRM: No NVIDIA GPU found.")
    assert parse_loads(console) == (
        (ModuleLoad(file="drm.ko", errno=0), ModuleLoad(file="nvidia.ko", errno=19, printed=said)),
        True,
    )


def test_a_load_without_an_answer_is_told_as_such():
    console = "[ 1.0] boot-check: loading a.ko\n[ 1.1] Kernel panic - not syncing: x\n"
    assert parse_loads(console) == (
        (ModuleLoad(file="a.ko", errno=None, printed=("Kernel panic - not syncing: x",)),),
        False,
    )


@pytest.mark.parametrize("console", ["", "garbage\0\x80", "boot-check: loaded a.ko errno=0\n"])
def test_a_console_without_the_beginning_of_a_load_tells_of_none(console):
    assert parse_loads(console) == ((), False)


def _boot(*loads, finished=True, overdue=False, console="last words\n"):
    return Boot(
        release="6.1.0-50-amd64",
        accelerator="emulated",
        loads=loads,
        finished=finished,
        overdue=overdue,
        console=console,
        seconds=4.25,
    )


@pytest.fixture
def shipped(tmp_path):
    """Modules by name; those of a dict depend on the named ones."""

    def modules(**depends):
        return [read_module(Sample(name=name, depends=needs).write(tmp_path)) for name, needs in depends.items()]

    return modules


def _verdict(passed, reason):
    return Verdict(check=CheckName.BOOT, passed=passed, reason=reason)


def test_a_module_that_is_taken_passes(shipped):
    verdict = judge_boot(_boot(ModuleLoad(file="fakebridge.ko", errno=0)), shipped(fakebridge=()))
    assert verdict == _verdict(passed=True, reason="fakebridge.ko loaded (6.1.0-50-amd64, emulated, 4.2 s)")


def test_nvidia_without_a_gpu_passes_and_who_needs_it_cannot_be_tried(shipped):
    modules = shipped(nvidia=("drm",), modeset=("nvidia",), drmpart=("modeset",))
    unknown = [ModuleLoad(file=f"{name}.ko", errno=errno.ENOENT) for name in ("modeset", "drmpart")]
    verdict = judge_boot(_boot(ModuleLoad(file="drm.ko", errno=0), NO_GPU, *unknown), modules)
    assert verdict == _verdict(
        passed=True,
        reason="nvidia.ko: ENODEV (No such device), No NVIDIA GPU found; modeset.ko could not be tested without nvidia;"
        " drmpart.ko could not be tested without modeset (6.1.0-50-amd64, emulated, 4.2 s)",
    )


@pytest.mark.parametrize(
    ("load", "reason"),
    [
        (ModuleLoad(file="uvm.ko", errno=errno.ENOEXEC), "uvm.ko: ENOEXEC (Exec format error)"),
        (ModuleLoad(file="uvm.ko", errno=errno.EKEYREJECTED), "uvm.ko: EKEYREJECTED (Key was rejected by service)"),
        (ModuleLoad(file="uvm.ko", errno=None), "uvm.ko: the kernel did not respond"),
        (ModuleLoad(file="drm.ko", errno=0), "uvm.ko was not reached"),
    ],
)
def test_who_needs_an_unequipped_module_is_excused_for_its_symbols_and_for_nothing_else(shipped, load, reason):
    verdict = judge_boot(_boot(NO_GPU, load), shipped(nvidia=(), uvm=("nvidia",)))
    assert verdict == _verdict(passed=False, reason=f"6.1.0-50-amd64: {reason}")


REFUSED = ModuleLoad(file="b.ko", errno=errno.ENOEXEC)


@pytest.mark.parametrize(
    ("boot", "expected"),
    [
        (_boot(finished=False, overdue=True), True),
        (_boot(ModuleLoad(file="a.ko", errno=None), finished=False), True),
        (_boot(ModuleLoad(file="a.ko", errno=0), finished=False), True),
        (_boot(NO_GPU, ModuleLoad(file="uvm.ko", errno=errno.ENOENT), finished=False, overdue=True), True),
        (_boot(REFUSED, ModuleLoad(file="a.ko", errno=None), finished=False, overdue=True), False),
        (_boot(ModuleLoad(file="drm.ko", errno=errno.EKEYREJECTED), finished=False, overdue=True), False),
        (_boot(ModuleLoad(file="a.ko", errno=None), finished=False, console="Kernel panic - not syncing"), False),
        (_boot(REFUSED), False),
        (_boot(ModuleLoad(file="a.ko", errno=0)), False),
    ],
)
def test_a_boot_that_was_cut_short_says_nothing_against_modules_that_were_not_refused(shipped, boot, expected):
    assert is_undecided(boot, shipped(nvidia=(), uvm=("nvidia",), a=(), b=())) is expected


def test_peermem_without_the_network_driver_that_it_serves_passes(shipped):
    words = "nvidia-peermem nv_mem_client_init:556 ERROR module compiled without IB peer memory symbols present"
    load = ModuleLoad(file="nvidia-peermem.ko", errno=errno.EINVAL, printed=(words,))
    assert judge_boot(_boot(load), shipped(**{"nvidia-peermem": ()})).passed


@pytest.mark.parametrize(
    ("load", "reason"),
    [
        (
            ModuleLoad(file="nvidia.ko", errno=errno.ENODEV, printed=("nothing known",)),
            "nvidia.ko: ENODEV (No such device): nothing known",
        ),
        (
            ModuleLoad(file="nvidia.ko", errno=errno.EINVAL, printed=NO_GPU.printed),
            "nvidia.ko: EINVAL (Invalid argument): nvlink unregistered",
        ),
        (ModuleLoad(file="nvidia.ko", errno=errno.ENOEXEC), "nvidia.ko: ENOEXEC (Exec format error)"),
        (
            ModuleLoad(file="nvidia.ko", errno=errno.EKEYREJECTED),
            "nvidia.ko: EKEYREJECTED (Key was rejected by service)",
        ),
        (ModuleLoad(file="nvidia.ko", errno=errno.EEXIST), "nvidia.ko: EEXIST (File exists)"),
        (ModuleLoad(file="other.ko", errno=0), "nvidia.ko was not reached"),
    ],
)
def test_every_other_answer_fails(shipped, load, reason):
    assert judge_boot(_boot(load), shipped(nvidia=())) == _verdict(passed=False, reason=f"6.1.0-50-amd64: {reason}")


def test_another_module_with_such_an_answer_fails(shipped):
    load = ModuleLoad(file="other.ko", errno=errno.ENODEV, printed=NO_GPU.printed)
    assert judge_boot(_boot(load), shipped(other=())).passed is False


def test_modules_beside_the_shipped_ones_must_be_taken_or_be_there_already(shipped):
    modules, own = shipped(a=()), ModuleLoad(file="a.ko", errno=0)
    assert judge_boot(_boot(ModuleLoad(file="drm.ko", errno=errno.EEXIST), own), modules).passed
    refused = judge_boot(_boot(ModuleLoad(file="drm.ko", errno=errno.ENOENT), own), modules)
    assert refused.reason == "6.1.0-50-amd64: drm.ko: ENOENT (No such file or directory)"
    assert judge_boot(_boot(own), modules, ["fakebridge.ko"]).reason == "6.1.0-50-amd64: fakebridge.ko was not loaded"


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (
            {"overdue": True},
            "the machine did not end within 4 s (emulated); a.ko: the kernel did not respond\nlast words",
        ),
        (
            {"console": "[ 1.9] Kernel panic - y\n<TASK>"},
            "Kernel panic - y; a.ko: the kernel did not respond\n[ 1.9] Kernel panic - y\n<TASK>",
        ),
        (
            {"console": " \n"},
            "the machine ended before all modules were loaded; a.ko: the kernel did not respond\nthe console is empty",
        ),
    ],
)
def test_a_machine_that_did_not_finish_fails_with_its_last_lines(shipped, facts, reason):
    boot = _boot(ModuleLoad(file="a.ko", errno=None), finished=False, **facts)
    assert judge_boot(boot, shipped(a=())) == _verdict(passed=False, reason=f"6.1.0-50-amd64: {reason}")


def test_a_machine_that_ends_after_the_last_answer_and_before_its_end_fails(shipped):
    boot = _boot(ModuleLoad(file="a.ko", errno=0), finished=False)
    assert judge_boot(boot, shipped(a=())).passed is False
