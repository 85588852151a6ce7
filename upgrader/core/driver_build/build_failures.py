"""What the log of a failed build is about: a class that says whether to try again, one line, and a symbol. Pure."""

import re

from upgrader.core.driver_build.driver_builds import Failure, FailureClass

LINES_KEPT = 200
"""Of a log, its last; a compiler's first error is among them, since make stops soon after it."""

_SIGNALLED = 128
_ERROR = re.compile(r"^(?P<place>[^\s:]+:\d+(?::\d+)?): (?:fatal )?error: (?P<text>.+)$")
_LINKER = re.compile(r"^ERROR: modpost: (?P<text>.+)$")
_MAKE = re.compile(r"^(?:make(?:\[\d+\])?: \*\*\* .+|.+: \*\*\* .+)$")
_SOURCE = re.compile(r"^\s*\d*\s*\|")
"""A line of the source itself, which the compiler shows below its message."""

_REMARK = re.compile(r"^(?:[^\s:]+:\d+(?::\d+)?: (?:warning|note|error): |WARNING: )")
"""What the compiler says of the source, in words that the source may have chosen; its own trouble is a fatal error."""

_QUOTED = re.compile(r"""['"‘“](?:struct |union |enum )?(?P<symbol>[A-Za-z_]\w*)['"’”]""")
_CONFTEST = re.compile(r"(?:^|/)conftest/[^:\s]+:\d+|conftest failed!|sanity check\. Bailing out", re.IGNORECASE)
_TEST = re.compile(r"#error (?:\")?(?P<symbol>[a-z_]\w*)\(\)")

_Marks = tuple[tuple[FailureClass, re.Pattern[str]], ...]
_MARKS: _Marks = (
    # What says nothing about driver and kernel comes first: it may be the reason of all that follows it.
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


def classify(log: str) -> Failure:
    """The failure that a log tells of; where nothing in it is known, its last complaint as COMPILE."""
    lines = [line.rstrip() for line in log.splitlines() if line.strip() and not _SOURCE.match(line)]
    own = [line for line in lines if not _REMARK.match(line)]
    for kind, mark in _MARKS:
        for line in own:
            if mark.search(line):
                return Failure(kind=kind, first_error=line.strip())
    for line in lines:
        found = _ERROR.match(line) or _LINKER.match(line)
        if found is not None or _CONFTEST.search(line):
            text = found["text"] if found else line
            kind = FailureClass.CONFTEST if _CONFTEST.search(line) else FailureClass.COMPILE
            return Failure(kind=kind, first_error=line.strip(), symbol=_symbol(text))
    complaint = next((line for line in lines if _MAKE.match(line)), lines[-1] if lines else "it said nothing")
    return Failure(kind=FailureClass.COMPILE, first_error=complaint.strip())


def ended(log: str, code: int) -> Failure:
    """The failure of a build that has ended with `code`, as the shell has it: from 129 on it was killed by a signal.

    make ends with 1 or 2 whatever its compilers did: a signal came from outside and says nothing about the driver.
    """
    if code > _SIGNALLED:
        said = f"it was ended from outside, by signal {code - _SIGNALLED}"
        return Failure(kind=FailureClass.TRANSIENT, first_error=said)
    return classify(log)


def overdue(seconds: float) -> Failure:
    """A build that was ended because it took too long."""
    return Failure(kind=FailureClass.TRANSIENT, first_error=f"it did not end within {seconds:g} s")


def last_lines(log: str) -> str:
    """What is kept of a log."""
    return "\n".join(log.splitlines()[-LINES_KEPT:])


def _symbol(text: str) -> str:
    """What an error is about: the last name that it quotes is the function or type, or a test of conftest."""
    if test := _TEST.search(text):
        return test["symbol"]
    found = _QUOTED.search(text)
    return found["symbol"] if found else ""
