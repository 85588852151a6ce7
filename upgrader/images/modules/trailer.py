"""The end of a signed module: its bytes, a CMS message, `struct module_signature`, and a marker line.

Source: include/linux/module_signature.h and scripts/sign-file.c of the kernel.
"""

import struct

from upgrader.images.modules.elf import ModuleUnreadableError
from upgrader.images.modules.values import SignatureFacts

MARK = b"~Module signature appended~\n"
_PKCS7 = 2
_SHAPE = struct.Struct(">BBBBB3xI")
"""Algorithm, hash, kind of identifier, two lengths of an older form, padding, bytes of the message (big-endian)."""


def find_signature(data: bytes) -> SignatureFacts | None:
    """The signature at the end of a module's bytes; None if there is none.

    Raises:
        ModuleUnreadableError: the marker line exists, but the signature is invalid.
    """
    if not data.endswith(MARK):
        return None
    end = len(data) - len(MARK) - _SHAPE.size
    if end < 0:
        raise ModuleUnreadableError("its signature is truncated")
    *old, length = _SHAPE.unpack_from(data, end)
    if old != [0, 0, _PKCS7, 0, 0] or not 0 < length < end:
        raise ModuleUnreadableError("its signature has a form that the kernel rejects")
    return SignatureFacts(content=end - length, pkcs7=data[end - length : end])


def with_signature(content: bytes, pkcs7: bytes) -> bytes:
    """A module's bytes followed by a CMS message (DER, detached)."""
    return content + pkcs7 + _SHAPE.pack(0, 0, _PKCS7, 0, 0, len(pkcs7)) + MARK
