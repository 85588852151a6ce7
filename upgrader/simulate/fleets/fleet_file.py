"""Parser of fleet files, JSON or CSV; docs/reference/fleet-file.md has the format. Every error has its position."""

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from upgrader.core.errors import ConfigurationError
from upgrader.core.workloads.checkpoint_annotations import parse_seconds as duration
from upgrader.simulate.faults import NODE_EVENTS
from upgrader.simulate.fleets.fleet import CHECKPOINT, KERNEL, PERIOD, RESTART, Event, Fleet, Happening, SimJob, SimNode

METHODS = {"file": "file", "none": "none", "undeclared": ""}

T = TypeVar("T")


class _Wire(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    pass


class _Node(_Wire, frozen=True, kw_only=True):
    name: str
    gpus: int = 8
    model: str = "H100"
    kernel: str = KERNEL
    rack: str = ""


class _Job(_Wire, frozen=True, kw_only=True):
    name: str
    nodes: list[str] = []
    size: int = 0
    gpus: int = 8
    start: str = "0s"
    end: str = ""
    declared_end: str = ""
    min_runtime: str = ""
    method: str = "file"
    timeout: str = ""
    checkpoint: str = f"{CHECKPOINT}s"
    restart: str = f"{RESTART}s"
    period: str = f"{PERIOD}s"
    lane: str = ""
    refuses: int = 0


class _Event(_Wire, frozen=True, kw_only=True):
    at: str
    what: Happening
    subject: str
    value: str = ""


class _File(_Wire, frozen=True, kw_only=True):
    nodes: list[msgspec.Raw]
    jobs: list[msgspec.Raw] = []
    events: list[msgspec.Raw] = []
    name: str = ""


KINDS: Mapping[str, type[_Wire]] = {"node": _Node, "job": _Job, "event": _Event}
"""Rows of a CSV file, by its column `kind`."""

Placed = tuple[str, _Wire]
"""A row and its place, for errors."""


def load_fleet(path: Path) -> Fleet:
    """The fleet in a file, JSON unless its name ends in .csv.

    Raises:
        ConfigurationError: it cannot be read, or what stands in it cannot be; the error names the place and the field.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"fleet file {path} cannot be read", details=str(error)) from error
    return parse_fleet(text, name=path.name, comma=path.suffix.lower() == ".csv")


def parse_fleet(text: str, *, name: str, comma: bool = False) -> Fleet:
    """The fleet in a text; `name` stands in errors.

    Raises:
        ConfigurationError: as `load`.
    """
    try:
        title, rows = ("", list(_parse_csv(text))) if comma else _parse_json(text)
        return _make_fleet(title or name.rpartition(".")[0] or name, rows)
    except _FaultError as fault:
        raise ConfigurationError(
            f"fleet file {name}, {fault.where}: {fault.what}",
            resolution="docs/reference/fleet-file.md says what stands in it.",
        ) from None


class _FaultError(Exception):
    def __init__(self, where: str, what: str) -> None:
        super().__init__(where, what)
        self.where, self.what = where, what


Fault = Callable[[str], _FaultError]
"""What is wrong, to the fault of one row."""


def _parse_json(text: str) -> tuple[str, list[Placed]]:
    try:
        file = msgspec.json.decode(text, type=_File)
    except msgspec.MsgspecError as error:
        raise _FaultError("as a whole", str(error)) from error
    rows: list[Placed] = []
    for kind, found in (("node", file.nodes), ("job", file.jobs), ("event", file.events)):
        for at, raw in enumerate(found):
            where = f"{kind}s[{at}]"
            try:
                rows.append((where, msgspec.json.decode(raw, type=KINDS[kind])))
            except msgspec.MsgspecError as error:
                raise _FaultError(where, str(error)) from error
    return file.name, rows


def _parse_csv(text: str) -> Iterator[Placed]:
    reader = csv.DictReader(io.StringIO(text), restkey="more columns than the first line names")
    if "kind" not in (reader.fieldnames or ()):
        raise _FaultError("line 1", "the first line names the columns, one of which is kind")
    for row in reader:
        where = f"line {reader.line_num}"
        said: dict[str, Any] = {key: value for key, value in row.items() if value}
        kind = said.pop("kind", "")
        if kind not in KINDS:
            raise _FaultError(where, f"kind is {kind!r}, not one of {', '.join(KINDS)}")
        if "nodes" in said:
            said["nodes"] = said["nodes"].split()
        try:
            yield where, msgspec.convert(said, KINDS[kind], strict=False)
        except msgspec.MsgspecError as error:
            raise _FaultError(where, str(error)) from error


def _make_fleet(name: str, rows: list[Placed]) -> Fleet:
    nodes: dict[str, SimNode] = {}
    for where, node in _rows_of_kind(rows, _Node):
        if node.name in nodes:
            raise _FaultError(where, f"a second node {node.name}")
        if node.gpus < 1:
            raise _FaultError(where, f"node {node.name} has {node.gpus} GPUs")
        nodes[node.name] = SimNode(name=node.name, gpus=node.gpus, model=node.model, kernel=node.kernel, rack=node.rack)
    if not nodes:
        raise _FaultError("as a whole", "there is no node in it")
    jobs: dict[str, SimJob] = {}
    free = {node.name: node.gpus for node in nodes.values()}
    for where, job in _rows_of_kind(rows, _Job):
        if job.name in jobs:
            raise _FaultError(where, f"a second job {job.name}")
        jobs[job.name] = _make_job(where, job, free)
    events = [_make_event(where, event, nodes, jobs) for where, event in _rows_of_kind(rows, _Event)]
    return Fleet(name=name, nodes=tuple(nodes.values()), jobs=tuple(jobs.values()), events=tuple(events))


def _rows_of_kind(rows: Iterable[Placed], kind: type[T]) -> Iterator[tuple[str, T]]:
    return ((where, row) for where, row in rows if isinstance(row, kind))


def _make_job(where: str, job: _Job, free: dict[str, int]) -> SimJob:
    def fault(what: str) -> _FaultError:
        return _FaultError(where, f"job {job.name}: {what}")

    def moment(field: str, text: str) -> int | None:
        return _parse_time(fault, field, text)

    start, end = moment("start", job.start) or 0, moment("end", job.end)
    size = job.size or len(job.nodes)
    if size < 1 or (job.nodes and size != len(job.nodes)):
        raise fault("give nodes (one for each member) or, for a job that starts later, size")
    if job.nodes and start > 0:
        raise fault(f"it starts after {job.start}, so a scheduler finds its nodes: give size instead of nodes")
    if not job.nodes and start < 0:
        raise fault("it runs already, so give the nodes of its members")
    if end is not None and end <= max(0, start):
        raise fault(f"its end {job.end} is not after its start or the begin")
    if job.method not in METHODS:
        raise fault(f"method is {job.method!r}, not one of {', '.join(METHODS)}")
    _assign_gpus(fault, job, free)
    return SimJob(
        name=job.name,
        size=size,
        nodes=tuple(job.nodes),
        gpus=job.gpus,
        start=start,
        end=end,
        declared_end=moment("declaredEnd", job.declared_end),
        min_runtime=moment("minRuntime", job.min_runtime) or 0,
        method=METHODS[job.method],
        timeout=moment("timeout", job.timeout),
        checkpoint=max(1, moment("checkpoint", job.checkpoint) or 0),
        restart=max(1, moment("restart", job.restart) or 0),
        period=max(1, moment("period", job.period) or 0),
        lane=job.lane,
        refuses=job.refuses,
    )


def _assign_gpus(fault: Fault, job: _Job, free: dict[str, int]) -> None:
    """Give a job the GPUs of its nodes, where they are free."""
    for node in job.nodes:
        if node not in free:
            raise fault(f"there is no node {node}")
        free[node] -= job.gpus
        if job.gpus < 1 or free[node] < 0:
            raise fault(f"{job.gpus} GPUs on node {node}, which has {free[node] + job.gpus} left")


def _parse_time(fault: Fault, field: str, text: str) -> int | None:
    """Seconds from the begin, or of a duration; None where nothing is said."""
    if not text:
        return None
    before, bare = text.startswith("-"), text.removeprefix("-")
    found = 0 if bare in {"0", "0s"} else duration(bare)
    if found is None or (before and field != "start"):
        raise fault(f"{field} is {text!r}, which is not a duration such as 90s, 30m, 6h or 2d")
    return -found if before else found


def _make_event(where: str, event: _Event, nodes: Mapping[str, SimNode], jobs: Mapping[str, SimJob]) -> Event:
    def fault(what: str) -> _FaultError:
        return _FaultError(where, f"event {event.what}: {what}")

    what, value = event.what, event.value
    known = jobs if what not in NODE_EVENTS else {} if what is Happening.NODE_JOINS else nodes
    if what is not Happening.NODE_JOINS and event.subject not in known:
        raise fault(f"there is no {'node' if what in NODE_EVENTS else 'job'} {event.subject}")
    if what in {Happening.NODE_JOINS, Happening.JOB_GROWS} and value not in nodes:
        raise fault(f"value names no node: {value!r}")
    if what is Happening.NODE_RENAMED and (not value or value in nodes):
        raise fault(f"value is no new name: {value!r}")
    if what is Happening.SLOW_CHECKPOINT and not value.isdecimal():
        raise fault(f"value is no number of seconds: {value!r}")
    if what is Happening.UPGRADE_FAILS and value and not value.isdecimal():
        raise fault(f"value is no number of times: {value!r}")
    return Event(at=_parse_time(fault, "at", event.at) or 0, what=what, subject=event.subject, value=value)
