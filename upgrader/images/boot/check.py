"""The boot check: the exact kernel is booted in a virtual machine and loads the modules as they will be shipped."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from upgrader.core.driver_build.driver_builds import Verdict
from upgrader.core.errors import ConfigurationError
from upgrader.images.boot import machine
from upgrader.images.boot.initramfs import Loading, pack_initramfs, plan_loading
from upgrader.images.boot.judging import is_undecided, judge_boot, parse_loads
from upgrader.images.boot.values import Boot, BootKernel

BOOT_SECONDS = 120.0
"""An emulated boot takes 5 s on an idle machine. The time-out allows for a very busy machine."""

ENFORCE_SIGNATURES = "module.sig_enforce=1"
"""Kernel argument that makes the kernel reject unsigned modules, as Secure Boot does."""


def find_kernel(tree: Path, release: str) -> BootKernel:
    """The kernel in unpacked linux-image packages (which are not installed) of Debian 12 or 13.

    Raises:
        ConfigurationError: the kernel does not exist.
    """
    image = tree / "boot" / f"vmlinuz-{release}"
    folders = [tree / "lib/modules" / release, tree / "usr/lib/modules" / release]
    modules = next((folder for folder in folders if (folder / "kernel").is_dir()), None)
    if modules is None or not image.is_file():
        raise ConfigurationError(
            f"{tree} has no kernel {release}", details=f"Searched for {image} and its modules in lib/ and usr/lib/."
        )
    return BootKernel(release=release, image=image, modules=modules)


def boot_modules(
    kernel: BootKernel,
    modules: Sequence[Path],
    *,
    companions: Sequence[Path] = (),
    arguments: str = "",
    timeout: float = BOOT_SECONDS,
) -> tuple[Verdict, Boot]:
    """Boot a kernel, load modules in the order of their dependencies, and judge the kernel's results.

    Args:
        kernel: of an unpacked package, see `find_kernel`.
        modules: .ko files of the image to be shipped.
        companions: modules that are loaded before them and not shipped (with fakebridge, nvidia stays without a GPU).
        arguments: added to the kernel's command line.
        timeout: seconds until the virtual machine is stopped, which counts as a failure.

    Raises:
        ConfigurationError: QEMU or the compiler is missing, or the modules cannot be ordered.
        ProcessError: QEMU could not start the virtual machine, so there is no result about the modules.
    """
    loading, beside = plan_loading(kernel, modules), plan_loading(kernel, companions)
    boot = _run_machine(kernel, loading, beside, arguments, timeout)
    boot = msgspec.structs.replace(boot, undecided=is_undecided(boot, loading.modules))
    return judge_boot(boot, loading.modules, [path.name for path in companions]), boot


def _run_machine(kernel: BootKernel, loading: Loading, beside: Loading, arguments: str, timeout: float) -> Boot:
    with tempfile.TemporaryDirectory(prefix="upgrader-boot-") as folder:
        work = Path(folder)
        initramfs = pack_initramfs(loading, companions=beside, work=work)
        accelerator = machine.choose_accelerator(kernel.image)
        console = work / "console"
        seconds, overdue = machine.run_kernel(
            kernel.image,
            initramfs,
            accelerator=accelerator,
            arguments=arguments,
            console=console,
            timeout=timeout,
        )
        console_text = console.read_text(errors="replace") if console.exists() else ""
    loads, finished = parse_loads(console_text)
    return Boot(
        release=kernel.release,
        accelerator=accelerator,
        loads=loads,
        finished=finished,
        overdue=overdue,
        console=console_text,
        seconds=seconds,
    )
