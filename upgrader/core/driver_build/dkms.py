"""Directives of a dkms.conf on the kernels for which its driver builds, as dkms(8) defines them. Nothing is run."""

import re
import shlex
from collections.abc import Mapping

from msgspec import Struct

_ASSIGNMENT = re.compile(r"(?P<name>[A-Z_]+)(?:\[(?P<index>\d+)\])?=(?P<value>.*)", re.DOTALL)
_NUMBERS = re.compile(r"\d+")


class Dkms(Struct, frozen=True, kw_only=True):
    """The directives that are read; empty if there is none. `modules` are those that it builds."""

    package: str
    version: str
    exclusive_kernel: str = ""
    exclusive_kernel_min: str = ""
    exclusive_kernel_max: str = ""
    exclusive_config: tuple[str, ...] = ()
    exclusive_arch: str = ""
    modules: tuple[str, ...] = ()

    def explain_refusal(self, kernel: str, arch: str, config: Mapping[str, str]) -> str:
        """Why dkms would not build for this kernel, as a sentence; empty if it would.

        `config` is the kernel's: CONFIG_PREEMPT_RT to y, m or a value; it does not contain unset options. `arch` is
        the output of `uname -m`.
        """
        if self.exclusive_kernel and not re.search(self.exclusive_kernel, kernel):
            return f"{self.package} is for kernels like {self.exclusive_kernel} (BUILD_EXCLUSIVE_KERNEL)"
        if self.exclusive_kernel_min and _release_order(kernel) < _release_order(self.exclusive_kernel_min):
            return f"{self.package} is for kernels from {self.exclusive_kernel_min} on (BUILD_EXCLUSIVE_KERNEL_MIN)"
        if self.exclusive_kernel_max and _release_order(kernel) > _release_order(self.exclusive_kernel_max):
            return f"{self.package} is for kernels up to {self.exclusive_kernel_max} (BUILD_EXCLUSIVE_KERNEL_MAX)"
        if self.exclusive_arch and not re.search(self.exclusive_arch, arch):
            return f"{self.package} is for {self.exclusive_arch} (BUILD_EXCLUSIVE_ARCH)"
        for option in self.exclusive_config:
            unwanted, name = option.startswith("!"), option.removeprefix("!")
            if (config.get(name) in {"y", "m"}) is unwanted:
                word = "without" if unwanted else "with"
                return f"{self.package} is for kernels {word} {name} (BUILD_EXCLUSIVE_CONFIG)"
        return ""


def parse_dkms(text: str) -> Dkms:
    """The directives of a dkms.conf. Values that a shell would expand are read literally.

    Raises:
        ValueError: it names no package or no version, or a quote does not end.
    """
    directives: dict[str, str] = {}
    modules: list[tuple[int, str]] = []
    for line in _shell_lines(text):
        assignment = _ASSIGNMENT.fullmatch(line)
        if assignment is None:
            continue
        value = " ".join(shlex.split(assignment["value"], comments=True))
        if assignment["name"] == "BUILT_MODULE_NAME":
            modules.append((int(assignment["index"] or 0), value))
        elif assignment["index"] is None:
            directives[assignment["name"]] = value
    if not directives.get("PACKAGE_NAME") or not directives.get("PACKAGE_VERSION"):
        raise ValueError("a dkms.conf names PACKAGE_NAME and PACKAGE_VERSION")
    return Dkms(
        package=directives["PACKAGE_NAME"],
        version=directives["PACKAGE_VERSION"],
        exclusive_kernel=directives.get("BUILD_EXCLUSIVE_KERNEL", ""),
        exclusive_kernel_min=directives.get("BUILD_EXCLUSIVE_KERNEL_MIN", ""),
        exclusive_kernel_max=directives.get("BUILD_EXCLUSIVE_KERNEL_MAX", ""),
        exclusive_config=tuple(directives.get("BUILD_EXCLUSIVE_CONFIG", "").split()),
        exclusive_arch=directives.get("BUILD_EXCLUSIVE_ARCH", ""),
        modules=tuple(name for _, name in sorted(modules)),
    )


def kernel_config(text: str) -> dict[str, str]:
    """The options of a kernel's .config that are set."""
    pairs = (line.partition("=") for line in text.splitlines() if line.startswith("CONFIG_"))
    return {name: value.strip('"') for name, _, value in pairs}


def _shell_lines(text: str) -> list[str]:
    """Lines as a shell reads them: a backslash at the end joins two."""
    return [line.strip() for line in text.replace("\\\n", " ").splitlines() if not line.lstrip().startswith("#")]


def _release_order(release: str) -> tuple[int, ...]:
    return tuple(int(number) for number in _NUMBERS.findall(release.partition("-")[0]))
