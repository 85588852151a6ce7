"""A driver image with modules on a node whose kernel is played: programs named insmod, rmmod, chroot and dmesg.

The image's own programs are the real ones, run by the system's shell. What the played kernel knows of modules lies in a
folder as the real one shows it in /sys/module.
"""

import hashlib
import json
import os
import shutil
import signal
from pathlib import Path

from tests.support.programs import soon, started
from tests.support.repository import ROOT
from upgrader.images.drivers.builder.assembly import COMMANDS
from upgrader.process import run

KERNEL = "6.1.0-50-amd64"
_INSMOD = """#!/bin/sh
name=$(sed -n 's/^name=//p' "$1"); refused=$(sed -n 's/^refused=//p' "$1")
if [ -n "$refused" ]; then echo "insmod: can't insert '$1': $refused" >&2; exit 1; fi
for need in $(sed -n 's/^needs=//p' "$1"); do
  [ -d "$SYS/module/$need" ] || { echo "insmod: can't insert '$1': unknown symbol in module" >&2; exit 1; }
  echo $(($(cat "$SYS/module/$need/refcnt") + 1)) > "$SYS/module/$need/refcnt"
  mkdir -p "$SYS/module/$need/holders/$name"
done
mkdir -p "$SYS/module/$name/holders"; echo 0 > "$SYS/module/$name/refcnt"
for fact in srcversion version; do sed -n "s/^$fact=//p" "$1" > "$SYS/module/$name/$fact"; done
shift; echo "insmod $name${*:+ $*}" >> "$SYS/done"
"""
_RMMOD = """#!/bin/sh
busy="rmmod: can't unload module '$1': Resource temporarily unavailable"
[ "$(cat "$SYS/module/$1/refcnt")" = 0 ] || { echo "$busy" >&2; exit 1; }
rm -r "$SYS/module/$1"
for held in "$SYS"/module/*/holders/"$1"; do
  [ -d "$held" ] || continue
  of=${held%/holders/*}; rmdir "$held"; echo $(($(cat "$of/refcnt") - 1)) > "$of/refcnt"
done
echo "rmmod $1" >> "$SYS/done"
"""
_CHROOT = """#!/bin/sh
root=$1; shift
case $1 in /*) program=$root$1; shift; exec "$program" "$@" ;; esac
[ "$1" = modprobe ] || exit 99
[ ! -e "$SYS/unknown/$2" ] || { echo "modprobe: FATAL: Module $2 not found" >&2; exit 1; }
mkdir -p "$SYS/module/$2/holders"; echo 0 > "$SYS/module/$2/refcnt"; echo "modprobe $2" >> "$SYS/done"
"""
_DMESG = "#!/bin/sh\necho '[    1.0] NVRM: said by the kernel'\n"


class ModuleImage:
    """One image and one node. `modules` are (name, names that it needs); `optional` are names of some, and of in-tree
    modules; `services` are lines as in an image. `busybox`: its commands in place of the system's, as in a container
    of the image; its shell cannot be used, since it would call its own insmod.
    """

    def __init__(
        self,
        folder: Path,
        *,
        vendor="fakebridge",
        version="1.0",
        modules=(("fakebridge", ""),),
        in_tree=(),
        optional=(),
        services=(),
        busybox="",
    ):
        self.folder, self.vendor, self.version = folder, vendor, version
        self.driver = folder / f"image-{vendor}-{version}"
        self.sys, self.proc = folder / "sys", folder / "proc"
        self.run_folder = folder / "host/run/gpu-upgrader"
        self.host = self.proc / "77/root"
        self._lay_image(modules, in_tree, optional)
        (self.driver / "services").write_text("".join(f"{line}\n" for line in services))
        if not self.proc.exists():
            self._lay_node()
        applets = folder / "applets"
        if busybox:
            applets.mkdir(exist_ok=True)
            for name in {*COMMANDS, "rmdir"} - {"insmod", "rmmod", "chroot", "dmesg"}:
                (applets / name).unlink(missing_ok=True)
                (applets / name).symlink_to(busybox)
        self.env = {
            "DRIVER": str(self.driver),
            "RUN": str(self.run_folder),
            "PROC": str(self.proc),
            "SYS": str(self.sys),
            "PATH": f"{folder / 'bin'}:{applets}" if busybox else f"{folder / 'bin'}:{os.environ['PATH']}",
            "HOST_ROOT": str(self.host),
        }

    def _lay_image(self, modules, in_tree, optional):
        programs = ROOT / "driver-images"
        for part in ("modules", "shared"):
            ignored = shutil.ignore_patterns("Containerfile", "devices")
            shutil.copytree(programs / part, self.driver, dirs_exist_ok=True, ignore=ignored)
        devices = programs / f"modules/devices/{self.vendor}.sh"
        shutil.copy(devices if devices.exists() else devices.with_name("none.sh"), self.driver / "devices.sh")
        need = dict.fromkeys(optional, "optional")
        order, sums = [f"in-tree {name} {need.get(name, 'required')}" for name in in_tree], []
        for name, needs in modules:
            text = f"name={name}\nneeds={needs}\nsrcversion=SRC{self.version}\nversion={self.version}\n"
            (self.driver / f"{name}.ko").write_text(text)
            order.append(f"module {name} SRC{self.version} {name}.ko {need.get(name, 'required')}")
            sums.append(f"{hashlib.sha256(text.encode()).hexdigest()}  {name}.ko")
        (self.driver / "load-order").write_text("\n".join(order) + "\n")
        (self.driver / "modules.sha256").write_text("\n".join(sums) + "\n")
        manifest = {
            "vendor": self.vendor,
            "version": self.version,
            "kernel": KERNEL,
            "buildKey": "0123456789abcdef" * 4,
        }
        (self.driver / "manifest.json").write_text(json.dumps(manifest, indent=1))

    def _lay_node(self):
        (self.host / "proc/sys/kernel/random").mkdir(parents=True)
        (self.host / "dev").mkdir()
        (self.proc / "77/cmdline").write_bytes(b"kubelet\0--kubeconfig=/etc/k\0")
        (self.proc / "devices").write_text("Character devices:\n195 nvidia-frontend\n511 nvidia-uvm\n")
        (self.host / "proc/sys/kernel/osrelease").write_text(KERNEL + "\n")
        (self.host / "proc/sys/kernel/random/boot_id").write_text("boot-1\n")
        (self.sys / "module/firmware_class/parameters").mkdir(parents=True)
        (self.sys / "module/firmware_class/parameters/path").write_text("")
        (self.folder / "bin").mkdir()
        for name, text in {"insmod": _INSMOD, "rmmod": _RMMOD, "chroot": _CHROOT, "dmesg": _DMESG}.items():
            (self.folder / "bin" / name).write_text(text)
            (self.folder / "bin" / name).chmod(0o755)

    @property
    def state(self) -> Path:
        return self.run_folder / self.vendor

    @property
    def done(self) -> list[str]:
        """What the kernel was asked for, in order."""
        return (self.sys / "done").read_text().splitlines() if (self.sys / "done").exists() else []

    def loaded(self) -> set[str]:
        return {path.name for path in (self.sys / "module").iterdir()} - {"firmware_class"}

    def program(self, name, *arguments):
        """One of the image's programs, run to its end."""
        return run(["/bin/sh", self.driver / name, *arguments], timeout=20, env=self.env, check=False)

    def refuse(self, module, reason):
        """The kernel rejects a module of the image from now on."""
        file = self.driver / f"{module}.ko"
        file.write_text(f"{file.read_text()}refused={reason}\n")
        run(["sh", "-c", "sha256sum *.ko > modules.sha256"], timeout=5, cwd=self.driver)

    def unload(self):
        """What the loaded driver has left on the node, run with the commands of the node image."""
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        return run(["/bin/sh", self.state / "unload"], timeout=20, env=self.env | {"PATH": path}, check=False)

    def load(self):
        """Load, and let the container end, which unloads nothing."""
        log = self.folder / "load.log"
        log.unlink(missing_ok=True)
        with started(["/bin/sh", str(self.driver / "load")], log=log, env=self.env) as program:
            soon(lambda: log.exists() and "device(s)" in log.read_text())
            program.signal(signal.SIGTERM)
            assert program.wait() == 143

    def reboot(self):
        shutil.rmtree(self.run_folder)
        shutil.rmtree(self.sys / "module")
        (self.sys / "module/firmware_class/parameters").mkdir(parents=True)
        (self.sys / "module/firmware_class/parameters/path").write_text("")
        (self.host / "proc/sys/kernel/random/boot_id").write_text("boot-2\n")
