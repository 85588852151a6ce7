"""The boot check: the exact kernel is started in a machine of its own and given the modules as they will be shipped."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from upgrader.core.driver_build.driver_builds import Verdict
from upgrader.core.errors import ConfigurationError
from upgrader.images.boot import machine
from upgrader.images.boot.initramfs import Loading, pack, plan_loading
from upgrader.images.boot.judging import judge, loads_on, undecided
from upgrader.images.boot.values import Boot, BootKernel

BOOT_SECONDS = 120.0
"""An emulated boot takes 5 s on an idle machine; this is for one that is very busy."""

ENFORCE_SIGNATURES = "module.sig_enforce=1"
"""Argument of the kernel under which it refuses unsigned modules, as under Secure Boot."""


def find_kernel(tree: Path, release: str) -> BootKernel:
    """The kernel of unpacked linux-image packages (nothing is installed), of Debian 12 or 13.

    Raises:
        ConfigurationError: it is not there.
    """
    image = tree / "boot" / f"vmlinuz-{release}"
    folders = [tree / "lib/modules" / release, tree / "usr/lib/modules" / release]
    modules = next((one for one in folders if (one / "kernel").is_dir()), None)
    if modules is None or not image.is_file():
        raise ConfigurationError(
            f"{tree} has no kernel {release}", details=f"Looked for {image} and its modules in lib/ and usr/lib/."
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
    """Boot a kernel, load modules into it in the order of their needs, and judge by its answers.

    Args:
        kernel: of an unpacked package, see `find_kernel`.
        modules: .ko files of the image to be shipped.
        companions: loaded before them and not shipped (fakebridge, with which nvidia stays without a GPU).
        arguments: added to the kernel's command line.
        timeout: seconds until the machine is ended, which fails.

    Raises:
        ConfigurationError: QEMU or the compiler is missing, or the modules cannot be put in an order.
        ProcessError: QEMU could not start the machine: nothing was found out about the modules.
    """
    loading, beside = plan_loading(kernel, modules), plan_loading(kernel, companions)
    boot = _started(kernel, loading, beside, arguments, timeout)
    boot = msgspec.structs.replace(boot, undecided=undecided(boot, loading.modules))
    return judge(boot, loading.modules, [path.name for path in companions]), boot


def _started(kernel: BootKernel, loading: Loading, beside: Loading, arguments: str, timeout: float) -> Boot:
    with tempfile.TemporaryDirectory(prefix="upgrader-boot-") as folder:
        work = Path(folder)
        initramfs = pack(loading, companions=beside, work=work)
        accelerator = machine.accelerator(kernel.image)
        console = work / "console"
        seconds, overdue = machine.start(
            kernel.image,
            initramfs,
            accelerator=accelerator,
            arguments=arguments,
            console=console,
            timeout=timeout,
        )
        said = console.read_text(errors="replace") if console.exists() else ""
    loads, finished = loads_on(said)
    return Boot(
        release=kernel.release,
        accelerator=accelerator,
        loads=loads,
        finished=finished,
        overdue=overdue,
        console=said,
        seconds=seconds,
    )
