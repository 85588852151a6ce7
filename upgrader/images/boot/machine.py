"""The machine of a boot check: QEMU with one processor, no disk, no network, and a serial port."""

import tempfile
from pathlib import Path

from upgrader.core.errors import ConfigurationError, ProcessError
from upgrader.images.boot import tsc
from upgrader.process import ProgramMissingError, ProgramTimeoutError, run
from upgrader.process.places import cache_root, locked, write_whole

KVM = "KVM"
EMULATED = "emulated"

PROBE_SECONDS = 8.0
"""A kernel under KVM prints its first line in well under a second; there are machines where it never does."""

_QEMU = ("qemu-system-x86_64", "-machine", "q35", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot")
_HOW = {KVM: ("-accel", "kvm", "-cpu", "host"), EMULATED: ("-accel", "tcg,tb-size=256", "-cpu", "max")}
_QUICK = (
    # a panic ends the machine at once; nothing is tested that is not asked for
    "console=ttyS0 panic=-1 printk.devkmsg=on random.trust_cpu=on mitigations=off nokaslr no_timer_check tsc=reliable"
    " nmi_watchdog=0 audit=0 apparmor=0 cryptomgr.notests rcupdate.rcu_expedited=1"
)
MEMORY_MIB = 768
_MISSING = "Install the Debian package qemu-system-x86 (make packages)."


def start(
    image: Path, initramfs: Path | None, *, accelerator: str, arguments: str, console: Path, timeout: float
) -> tuple[float, bool]:
    """Run a kernel (a bzImage) to the machine's end, or for `timeout` seconds; `console` gets all that it prints.

    Returns the seconds it took, and whether it had to be ended. `arguments` are added to the kernel's command line.

    Raises:
        ConfigurationError: QEMU is not installed.
        ProgramFailedError: it could not start the machine, with its own words.
    """
    command = [*_QEMU, *_HOW[accelerator], "-m", str(MEMORY_MIB), "-serial", f"file:{console}", "-kernel", str(image)]
    told = tsc.argument() if accelerator == EMULATED else ""
    command += ["-append", " ".join(one for one in (_QUICK, told, arguments) if one)]
    command += ["-initrd", str(initramfs)] if initramfs else []
    try:
        return run(command, timeout=timeout).seconds, False
    except ProgramTimeoutError as error:
        return error.finished.seconds, True
    except ProgramMissingError as error:
        raise ConfigurationError("QEMU is not installed", details=str(error), resolution=_MISSING) from error


def accelerator(image: Path, *, device: Path = Path("/dev/kvm")) -> str:
    """KVM where a kernel really runs under it, emulation otherwise; asked once per boot of this machine.

    Opening /dev/kvm, or even making a machine, proves nothing: there are hosts that allow both and run no kernel.

    Raises:
        ConfigurationError: QEMU is not installed.
    """
    if not device.exists():
        return EMULATED
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    note = cache_root() / "boot" / f"accelerator-{boot}"
    with locked(note.with_name(".accelerator.lock")):
        if not note.exists():
            write_whole(note, _probe(image).encode())
    return note.read_text()


def _probe(image: Path) -> str:
    with tempfile.TemporaryDirectory(prefix="upgrader-kvm-") as work:
        console = Path(work) / "console"
        try:
            start(image, None, accelerator=KVM, arguments="", console=console, timeout=PROBE_SECONDS)
        except ProcessError:  # QEMU ended by itself: the host lacks something that it asks for
            return EMULATED
        said = console.read_text(errors="replace") if console.exists() else ""
    return KVM if "Linux version" in said else EMULATED
