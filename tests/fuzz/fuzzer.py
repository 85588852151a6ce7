"""The process that fuzzes: `tests.fuzz.run` starts it. Our readers are watched, and the parsers written in Python."""

import sys

import atheris

READERS = ["upgrader.core", "upgrader.images", "upgrader.checkpoint", "upgrader.node", "upgrader.cli"]
PARSERS = ["elftools", "yaml"]

with atheris.instrument_imports(include=[*READERS, *PARSERS]):
    from tests.fuzz.targets import TARGETS


def main() -> None:
    """Never returns: libFuzzer ends the process."""
    program, target, *options = sys.argv
    atheris.Setup([program, *options], TARGETS[target])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
