"""Kernel modules as files: their contents, whether a kernel would accept them, and their signatures."""

from upgrader.images.modules.elf import ModuleUnreadableError
from upgrader.images.modules.kernel import read_kernel
from upgrader.images.modules.reading import read_module
from upgrader.images.modules.signing import ModuleSigningKey, open_key, sign_module
from upgrader.images.modules.values import Export, KernelInterface, ModuleFile, SignatureFacts
from upgrader.images.modules.verify import verify_modules

__all__ = [
    "Export",
    "KernelInterface",
    "ModuleFile",
    "ModuleSigningKey",
    "ModuleUnreadableError",
    "SignatureFacts",
    "open_key",
    "read_kernel",
    "read_module",
    "sign_module",
    "verify_modules",
]
