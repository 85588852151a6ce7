"""A boot check around a machine that is a script: it writes a console, hangs or fails as QEMU would."""

import lzma
import shutil

import pytest
from elftools.elf.elffile import ELFFile

from tests.support.kernel_modules import Sample
from upgrader.core.errors import ConfigurationError, ProcessError
from upgrader.images.boot import BootKernel, boot_modules, find_kernel
from upgrader.images.boot.initramfs import Loading, first_process, pack_initramfs, plan_loading
from upgrader.images.boot.machine import choose_accelerator
from upgrader.process import run

RELEASE = "6.1.0-50-amd64"


@pytest.fixture
def kernel(tmp_path):
    """A kernel with modules a, b (needs a), c (needs b and a builtin), compressed as in Debian 13."""
    folder = tmp_path / "tree/lib/modules" / RELEASE / "kernel/drivers"
    folder.mkdir(parents=True)
    for name, depends in {"a": (), "b-of": ("a",), "c": ("b-of", "builtin")}.items():
        packed = lzma.compress(Sample(name=name, depends=depends).encoded(), check=lzma.CHECK_CRC32)
        (folder / f"{name}.ko.xz").write_bytes(packed)
    (tmp_path / "tree/boot").mkdir()
    (tmp_path / "tree/boot" / f"vmlinuz-{RELEASE}").write_bytes(b"")
    return find_kernel(tmp_path / "tree", RELEASE)


@pytest.fixture
def given(tmp_path):
    (tmp_path / "given").mkdir()

    def files(**depends):
        return [Sample(name=name, depends=needs).write(tmp_path / "given") for name, needs in depends.items()]

    return files


@pytest.fixture
def machine(qemu, tmp_path):
    """The machine of a boot check; whether there is KVM is asked and noted here."""
    qemu("exit 1")
    choose_accelerator(tmp_path / "vmlinuz")
    return qemu


def _says(*lines):
    return "".join(f'echo "[    1.0] {line}" >> "$console"\n' for line in lines)


TAKEN = _says("boot-check: loading x.ko", "boot-check: loaded x.ko errno=0", "boot-check: end")


def test_a_kernel_is_found_where_debian_12_and_13_have_it(tmp_path, kernel):
    folder = tmp_path / "tree/lib/modules" / RELEASE
    assert kernel == BootKernel(release=RELEASE, image=tmp_path / f"tree/boot/vmlinuz-{RELEASE}", modules=folder)
    (tmp_path / "tree/usr").mkdir()
    (tmp_path / "tree/lib").rename(tmp_path / "tree/usr/lib")
    assert find_kernel(tmp_path / "tree", RELEASE).modules == tmp_path / "tree/usr/lib/modules" / RELEASE
    with pytest.raises(ConfigurationError, match=r"has no kernel 6\.1\.0-99"):
        find_kernel(tmp_path / "tree", "6.1.0-99-amd64")


def test_modules_come_after_those_that_they_need(kernel, given):
    upper, lower = given(upper=("lower", "c"), lower=("absent",))
    loading = plan_loading(kernel, [upper, lower])
    assert [path.name for path in loading.own] == ["a.ko.xz", "b-of.ko.xz", "c.ko.xz"]
    assert loading.given == (lower, upper)
    assert [one.name for one in loading.modules] == ["lower", "upper"]


def test_a_given_module_stands_for_the_kernels_of_that_name(kernel, given):
    (own,) = given(a=())
    assert plan_loading(kernel, [own]).own == ()


def test_modules_that_need_each_other_are_left_to_the_kernel_to_refuse(kernel, given):
    assert len(plan_loading(kernel, given(x=("y",), y=("x",))).given) == 2


@pytest.mark.parametrize("names", [("x.ko", "again/x.ko"), ("a b.ko",), ("x.ko\nlist",)])
def test_modules_that_cannot_be_listed_are_refused(kernel, given, tmp_path, names):
    (tmp_path / "again").mkdir()
    files = [tmp_path / name for name in names]
    for file in files:
        file.write_bytes(Sample(name="x").encoded())
    with pytest.raises(ConfigurationError, match="cannot be loaded together"):
        plan_loading(kernel, files)


def test_the_initramfs_has_our_program_the_modules_as_they_are_and_their_order(kernel, given, tmp_path):
    (module,) = given(x=("c",))
    nothing = Loading(own=(), given=(), modules=())
    archive = pack_initramfs(plan_loading(kernel, [module]), companions=nothing, work=tmp_path)
    out = tmp_path / "out"
    out.mkdir()
    run(["busybox", "cpio", "-i", "-F", archive], timeout=30, cwd=out)
    assert (out / "list").read_text() == "a.ko\nb-of.ko\nc.ko\nx.ko\n"
    assert (out / "x.ko").read_bytes() == module.read_bytes()
    assert (out / "c.ko").read_bytes() == Sample(name="c", depends=("b-of", "builtin")).encoded()
    assert (out / "init").stat().st_mode & 0o777 == 0o755
    with (out / "init").open("rb") as program:  # linked with nothing: there is nothing else
        assert ELFFile(program).get_section_by_name(".interp") is None


def test_a_boot_check_starts_the_kernel_and_judges_its_answers(kernel, given, machine):
    log = machine(TAKEN)
    verdict, boot = boot_modules(kernel, given(x=()), arguments="module.sig_enforce=1")
    assert verdict.passed, verdict
    assert boot.undecided is False
    assert boot.console.splitlines()[-1] == "[    1.0] boot-check: end"
    words = log.read_text().splitlines()[-1]
    assert f"-kernel {kernel.image}" in words
    assert "module.sig_enforce=1" in words
    assert "-no-reboot" in words


def test_a_machine_that_hangs_is_ended_and_fails_with_its_console_kept(kernel, given, machine):
    machine(_says("boot-check: loading x.ko", "waiting for ever") + "sleep 600")
    verdict, boot = boot_modules(kernel, given(x=()), timeout=0.5)
    assert (verdict.passed, boot.overdue, boot.undecided) == (False, True, True)
    assert "did not end within" in verdict.reason
    assert "x.ko: the kernel did not respond" in verdict.reason
    assert "waiting for ever" in boot.console


def test_a_machine_that_cannot_be_started_says_nothing_about_the_modules(kernel, given, machine):
    machine("echo 'cannot set up guest memory' >&2; exit 1")
    with pytest.raises(ProcessError, match="cannot set up guest memory"):
        boot_modules(kernel, given(x=()))


def test_without_qemu_it_is_said_what_to_install(kernel, given, machine, tmp_path, monkeypatch):
    first_process()
    (tmp_path / "bin/qemu-system-x86_64").unlink()
    (tmp_path / "bin/busybox").symlink_to(str(shutil.which("busybox")))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(ConfigurationError, match="qemu-system-x86"):
        boot_modules(kernel, given(x=()))


def test_without_a_compiler_it_is_said_what_to_install(kernel, given, machine, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(ConfigurationError, match="gcc and libc6-dev"):
        boot_modules(kernel, given(x=()))
