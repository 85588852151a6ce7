"""Failures of builds, from their logs: a class that determines whether to retry, one line, and a symbol. Pure."""

import re

from upgrader.core.driver_build.driver_builds import BuildFailure, FailureClass

LINES_KEPT = 200
"""The last lines of a log; they contain a compiler's first error, since make stops soon after it."""

_SIGNALLED = 128
_ERROR = re.compile(r"^(?P<place>[^\s:]+:\d+(?::\d+)?): (?:fatal )?error: (?P<text>.+)$")
_LINKER = re.compile(r"^ERROR: modpost: (?P<text>.+)$")
_MAKE = re.compile(r"^(?:make(?:\[\d+\])?: \*\*\* .+|.+: \*\*\* .+)$")
_SOURCE = re.compile(r"^\s*\d*\s*\|")
"""A line of the source, which the compiler prints below its message."""

_REMARK = re.compile(r"^(?:[^\s:]+:\d+(?::\d+)?: (?:warning|note|error): |WARNING: )")
"""A message about the source, whose text the source may choose; the compiler's own failures are fatal errors."""

_QUOTED = re.compile(r"""['"‘“](?:struct |union |enum )?(?P<symbol>[A-Za-z_]\w*)['"’”]""")
_CONFTEST = re.compile(r"(?:^|/)conftest/[^:\s]+:\d+|conftest failed!|sanity check\. Bailing out", re.IGNORECASE)
_TEST = re.compile(r"#error (?:\")?(?P<symbol>[a-z_]\w*)\(\)")

_Patterns = tuple[tuple[FailureClass, re.Pattern[str]], ...]
_PATTERNS: _Patterns = (
    # Failures that are independent of driver and kernel are first: they may cause all messages after them.
    (FailureClass.TRANSIENT, re.compile(r"No space left on device|Disk quota exceeded")),
    (
        FailureClass.TRANSIENT,
        re.compile(r"memory exhausted|out of memory|[Cc]annot allocate memory|std::bad_alloc"),
    ),
    (
        FailureClass.TRANSIENT,
        re.compile(r"Killed signal terminated program|^Killed$|: Killed$"),
    ),
    (FailureClass.TRANSIENT, re.compile(r"Resource temporarily unavailable|Input/output error|Too many open files")),
    (FailureClass.UNSUPPORTED, re.compile(r"The kernel you are installing for is a PREEMPT_RT kernel!")),
    (FailureClass.TOOLCHAIN_MISSING, re.compile(r"(?:gcc|cc|ld|objcopy|strip|make)[\w.-]*: (?:command )?not found$")),
    (FailureClass.TOOLCHAIN_MISSING, re.compile(r"Unable to locate the compiler|Failed CC (?:sanity|version) check")),
    (
        FailureClass.HEADERS_MISSING,
        re.compile(r"^make(?:\[\d+\])?: \*\*\* /(?:lib/modules|usr/src)/\S+: No such file"),
    ),
    (FailureClass.HEADERS_MISSING, re.compile(r"/(?:usr/src/linux-|lib/modules/)\S+: No such file or directory")),
    (
        FailureClass.HEADERS_MISSING,
        re.compile(r"Kernel configuration is invalid|find the kernel source tree"),
    ),
)


def classify_log(log: str) -> BuildFailure:
    """The failure in a log; if no line of it matches a known failure, its last error as COMPILE."""
    lines = [line.rstrip() for line in log.splitlines() if line.strip() and not _SOURCE.match(line)]
    own = [line for line in lines if not _REMARK.match(line)]
    for kind, pattern in _PATTERNS:
        for line in own:
            if pattern.search(line):
                return BuildFailure(kind=kind, first_error=line.strip())
    for line in lines:
        match = _ERROR.match(line) or _LINKER.match(line)
        if match is not None or _CONFTEST.search(line):
            text = match["text"] if match else line
            kind = FailureClass.CONFTEST if _CONFTEST.search(line) else FailureClass.COMPILE
            return BuildFailure(kind=kind, first_error=line.strip(), symbol=_error_symbol(text))
    complaint = next((line for line in lines if _MAKE.match(line)), lines[-1] if lines else "it printed no output")
    return BuildFailure(kind=FailureClass.COMPILE, first_error=complaint.strip())


def exit_failure(log: str, code: int) -> BuildFailure:
    """The failure of a build that has ended with exit code `code` of a shell: from 129 on a signal killed it.

    make exits with 1 or 2 after any failure of a compiler: a signal comes from outside, independent of the driver.
    """
    if code > _SIGNALLED:
        error = f"it was terminated by signal {code - _SIGNALLED}"
        return BuildFailure(kind=FailureClass.TRANSIENT, first_error=error)
    return classify_log(log)


def timeout_failure(seconds: float) -> BuildFailure:
    """The failure of a build that was ended because it took too long."""
    return BuildFailure(kind=FailureClass.TRANSIENT, first_error=f"it did not end within {seconds:g} s")


def last_lines(log: str) -> str:
    """The part of a log that is kept."""
    return "\n".join(log.splitlines()[-LINES_KEPT:])


def _error_symbol(text: str) -> str:
    """The symbol of an error: a test of conftest, or the function or type that it quotes."""
    if test := _TEST.search(text):
        return test["symbol"]
    quoted = _QUOTED.search(text)
    return quoted["symbol"] if quoted else ""
