"""The virtual machine of a boot check: QEMU with one processor and a serial port, without disk and network."""

import tempfile
from pathlib import Path

from upgrader.core.errors import ConfigurationError, ProcessError
from upgrader.images.boot import tsc
from upgrader.process import ProgramMissingError, ProgramTimeoutError, run
from upgrader.process.places import cache_root, hold_lock, write_atomically

KVM = "KVM"
EMULATED = "emulated"

PROBE_SECONDS = 8.0
"""A kernel under KVM prints its first line in well under a second. On some machines it never does."""

_QEMU = ("qemu-system-x86_64", "-machine", "q35", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot")
_HOW = {KVM: ("-accel", "kvm", "-cpu", "host"), EMULATED: ("-accel", "tcg,tb-size=256", "-cpu", "max")}
_QUICK = (
    # a panic ends the machine immediately; the kernel's self-tests are disabled
    "console=ttyS0 panic=-1 printk.devkmsg=on random.trust_cpu=on mitigations=off nokaslr no_timer_check tsc=reliable"
    " nmi_watchdog=0 audit=0 apparmor=0 cryptomgr.notests rcupdate.rcu_expedited=1"
)
MEMORY_MIB = 768
_MISSING = "Install the Debian package qemu-system-x86 (make packages)."


def run_kernel(
    image: Path, initramfs: Path | None, *, accelerator: str, arguments: str, console: Path, timeout: float
) -> tuple[float, bool]:
    """Run a kernel (a bzImage) until the machine ends, or for `timeout` seconds. Its output is written to `console`.

    Returns the seconds it took, and whether it was stopped. `arguments` are added to the kernel's command line.

    Raises:
        ConfigurationError: QEMU is not installed.
        ProgramFailedError: QEMU could not start the machine; the error contains its output.
    """
    command = [*_QEMU, *_HOW[accelerator], "-m", str(MEMORY_MIB), "-serial", f"file:{console}", "-kernel", str(image)]
    tsc_argument = tsc.kernel_argument() if accelerator == EMULATED else ""
    command += ["-append", " ".join(part for part in (_QUICK, tsc_argument, arguments) if part)]
    command += ["-initrd", str(initramfs)] if initramfs else []
    try:
        return run(command, timeout=timeout).seconds, False
    except ProgramTimeoutError as error:
        return error.finished.seconds, True
    except ProgramMissingError as error:
        raise ConfigurationError("QEMU is not installed", details=str(error), resolution=_MISSING) from error


def choose_accelerator(image: Path, *, device: Path = Path("/dev/kvm")) -> str:
    """KVM if a kernel runs under it, else emulation. The result is cached until this machine reboots.

    Access to /dev/kvm, or even the creation of a virtual machine, is not sufficient: some hosts allow both and run no
    kernel.

    Raises:
        ConfigurationError: QEMU is not installed.
    """
    if not device.exists():
        return EMULATED
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    note = cache_root() / "boot" / f"accelerator-{boot}"
    with hold_lock(note.with_name(".accelerator.lock")):
        if not note.exists():
            write_atomically(note, _probe_kvm(image).encode())
    return note.read_text()


def _probe_kvm(image: Path) -> str:
    with tempfile.TemporaryDirectory(prefix="upgrader-kvm-") as work:
        console = Path(work) / "console"
        try:
            run_kernel(image, None, accelerator=KVM, arguments="", console=console, timeout=PROBE_SECONDS)
        except ProcessError:  # QEMU exited: the host lacks a requirement
            return EMULATED
        console_text = console.read_text(errors="replace") if console.exists() else ""
    return KVM if "Linux version" in console_text else EMULATED
