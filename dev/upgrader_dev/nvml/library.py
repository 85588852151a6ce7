"""The simulated library, compiled once per contents."""

import hashlib
from pathlib import Path

from upgrader.core.errors import ConfigurationError
from upgrader.process import ProgramMissingError, run
from upgrader.process.places import cache_root, hold_lock

SOURCE = Path(__file__).with_name("nvml.c")
NAME = "libnvidia-ml.so.1"
"""The name by which nvidia-smi loads it."""
DESCRIPTION = "NVML_DESCRIPTION"
"""Variable with the path of the description, see description.py."""

_SECONDS = 60.0
_FLAGS = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC")
_RESOLUTION = "Install the Debian packages gcc and libc6-dev."


def build_library() -> Path:
    """The folder that contains the library, for LD_LIBRARY_PATH.

    Raises:
        ConfigurationError: it cannot be compiled on this machine.
    """
    folder = cache_root() / "nvml" / hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    with hold_lock(folder.with_suffix(".lock")):
        if not (folder / NAME).exists():
            folder.mkdir(parents=True, exist_ok=True)
            beside = folder / f".{NAME}"
            try:
                built = run(["gcc", *_FLAGS, "-o", beside, SOURCE], timeout=_SECONDS, check=False)
            except ProgramMissingError as error:
                raise ConfigurationError("no C compiler", details=str(error), resolution=_RESOLUTION) from error
            if built.code != 0:
                output = built.stderr.decode(errors="replace")
                raise ConfigurationError(f"{SOURCE.name} does not compile", details=output, resolution=_RESOLUTION)
            beside.rename(folder / NAME)
    return folder
