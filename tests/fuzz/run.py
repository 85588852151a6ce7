"""Fuzzing of one target: `python -m tests.fuzz.run TARGET`; with a FILE that one input, and nothing else.

The fuzzer is a process of its own, as a reader may take all memory, hang, or end the interpreter. What breaks a reader
is kept in build/fuzz/TARGET, beside all inputs that led to new lines of code; the next run begins with these.
"""

import argparse
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from tests.fuzz import corpus
from tests.fuzz.names import NAMES
from upgrader.process import run

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "fuzz"
SEED = 1
SECONDS_AN_INPUT = 10
LONGEST = 1 << 17
"""Bytes of an input; above it the seeds alone are tried."""

MEMORY_MIB = 2048


class Broken(Struct, frozen=True, kw_only=True):
    """What a fuzzer found, and how to see it again."""

    target: str
    file: Path | None
    told: str

    def __str__(self) -> str:
        again = f"python -m tests.fuzz.run {self.target} {self.file}" if self.file else "no input was kept"
        kept = f"Keep the input in tests/fuzz/found/{self.target} when it is mended."
        return f"{self.target}: {again}\n{self.told}\n{kept}"


def fuzz(target: str, *, runs: int, seconds: float, build: Path = BUILD) -> Broken | None:
    """Run a target `runs` times on inputs made from its seeds, `seconds` at most; what broke it, None for nothing.

    Raises:
        ProgramTimeoutError: so many runs take longer.
    """
    kept, broken = build / target / "corpus", build / target / "broken"
    for folder in (kept, broken):
        folder.mkdir(parents=True, exist_ok=True)
    for seed in corpus.seeds(target):
        (kept / corpus.file_name(seed)).write_bytes(seed)
    before = set(broken.iterdir())
    options = [f"-runs={runs}", f"-seed={SEED}", f"-timeout={SECONDS_AN_INPUT}", f"-rss_limit_mb={MEMORY_MIB}"]
    options += [f"-max_len={LONGEST}", f"-artifact_prefix={broken}/"]
    words = [sys.executable, "-m", "tests.fuzz.fuzzer", target, *options, str(kept)]
    finished = run(words, timeout=seconds, cwd=ROOT, check=False)
    if finished.code == 0:
        return None
    file = next(iter(sorted(set(broken.iterdir()) - before)), None)
    lines = (finished.stdout + finished.stderr).decode(errors="replace").splitlines()
    return Broken(target=target, file=file, told="\n".join(lines[-40:]))


def _again(target: str, file: Path) -> int:
    from tests.fuzz.targets import TARGETS  # noqa: PLC0415 - a fuzzer imports them itself, watched

    try:
        TARGETS[target](file.read_bytes())
    except BaseException:  # noqa: BLE001 - whatever it is, it is shown
        traceback.print_exc()
        return 1
    print(f"{target} reads {file}")  # noqa: T201
    return 0


def main(words: Sequence[str] | None = None) -> int:
    """What `make fuzz` runs."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.run", description=__doc__)
    parser.add_argument("target", choices=[*NAMES, "planted", "all"])
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--runs", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=1800)
    chosen = parser.parse_args(words)
    if chosen.file:
        return _again(chosen.target, chosen.file)
    wrong = 0
    for target in NAMES if chosen.target == "all" else (chosen.target,):
        broken = fuzz(target, runs=chosen.runs, seconds=chosen.seconds)
        wrong += broken is not None
        print(broken or f"{target}: nothing in {chosen.runs} runs", flush=True)  # noqa: T201
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
