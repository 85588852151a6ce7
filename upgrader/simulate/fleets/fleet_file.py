"""Parser of fleet files, JSON or CSV; the format is in docs/reference/fleet-file.md. Every error has its position."""

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from upgrader.core.errors import ConfigurationError
from upgrader.core.workloads.checkpoint_annotations import parse_seconds as duration
from upgrader.simulate.faults import NODE_EVENTS
from upgrader.simulate.fleets.fleet import (
    CHECKPOINT,
    KERNEL,
    PERIOD,
    RESTART,
    EventKind,
    Fleet,
    FleetEvent,
    FleetJob,
    FleetNode,
)

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
    what: EventKind
    subject: str
    value: str = ""


class _File(_Wire, frozen=True, kw_only=True):
    nodes: list[msgspec.Raw]
    jobs: list[msgspec.Raw] = []
    events: list[msgspec.Raw] = []
    name: str = ""


KINDS: Mapping[str, type[_Wire]] = {"node": _Node, "job": _Job, "event": _Event}
"""Rows of a CSV file, by its column `kind`."""

PlacedRow = tuple[str, _Wire]
"""A row and its position, for errors."""


def load_fleet(path: Path) -> Fleet:
    """The fleet in a file, JSON unless its name ends in .csv.

    Raises:
        ConfigurationError: the file cannot be read or is invalid; the error has the position and the field.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"fleet file {path} cannot be read", details=str(error)) from error
    return parse_fleet(text, name=path.name, comma=path.suffix.lower() == ".csv")


def parse_fleet(text: str, *, name: str, comma: bool = False) -> Fleet:
    """The fleet in a text; `name` is used in errors.

    Raises:
        ConfigurationError: as `load_fleet`.
    """
    try:
        title, rows = ("", list(_parse_csv(text))) if comma else _parse_json(text)
        return _make_fleet(title or name.rpartition(".")[0] or name, rows)
    except _FaultError as fault:
        raise ConfigurationError(
            f"fleet file {name}, {fault.where}: {fault.what}",
            resolution="The format is in docs/reference/fleet-file.md.",
        ) from None


class _FaultError(Exception):
    def __init__(self, where: str, what: str) -> None:
        super().__init__(where, what)
        self.where, self.what = where, what


Fault = Callable[[str], _FaultError]
"""From a description of an error to the error of one row."""


def _parse_json(text: str) -> tuple[str, list[PlacedRow]]:
    try:
        file = msgspec.json.decode(text, type=_File)
    except msgspec.MsgspecError as error:
        raise _FaultError("as a whole", str(error)) from error
    rows: list[PlacedRow] = []
    for kind, raw_rows in (("node", file.nodes), ("job", file.jobs), ("event", file.events)):
        for at, raw in enumerate(raw_rows):
            where = f"{kind}s[{at}]"
            try:
                rows.append((where, msgspec.json.decode(raw, type=KINDS[kind])))
            except msgspec.MsgspecError as error:
                raise _FaultError(where, str(error)) from error
    return file.name, rows


def _parse_csv(text: str) -> Iterator[PlacedRow]:
    reader = csv.DictReader(io.StringIO(text), restkey="more columns than in the first line")
    if "kind" not in (reader.fieldnames or ()):
        raise _FaultError("line 1", "the first line must contain the column names, including kind")
    for row in reader:
        where = f"line {reader.line_num}"
        fields: dict[str, Any] = {key: value for key, value in row.items() if value}
        kind = fields.pop("kind", "")
        if kind not in KINDS:
            raise _FaultError(where, f"kind is {kind!r}, which is none of {', '.join(KINDS)}")
        if "nodes" in fields:
            fields["nodes"] = fields["nodes"].split()
        try:
            yield where, msgspec.convert(fields, KINDS[kind], strict=False)
        except msgspec.MsgspecError as error:
            raise _FaultError(where, str(error)) from error


def _make_fleet(name: str, rows: list[PlacedRow]) -> Fleet:
    nodes: dict[str, FleetNode] = {}
    for where, node in _rows_of_kind(rows, _Node):
        if node.name in nodes:
            raise _FaultError(where, f"node {node.name} exists twice")
        if node.gpus < 1:
            raise _FaultError(where, f"node {node.name} has {node.gpus} GPUs")
        nodes[node.name] = FleetNode(
            name=node.name, gpus=node.gpus, model=node.model, kernel=node.kernel, rack=node.rack
        )
    if not nodes:
        raise _FaultError("as a whole", "the file contains no nodes")
    jobs: dict[str, FleetJob] = {}
    free = {node.name: node.gpus for node in nodes.values()}
    for where, job in _rows_of_kind(rows, _Job):
        if job.name in jobs:
            raise _FaultError(where, f"job {job.name} exists twice")
        jobs[job.name] = _make_job(where, job, free)
    events = [_make_event(where, event, nodes, jobs) for where, event in _rows_of_kind(rows, _Event)]
    return Fleet(name=name, nodes=tuple(nodes.values()), jobs=tuple(jobs.values()), events=tuple(events))


def _rows_of_kind(rows: Iterable[PlacedRow], kind: type[T]) -> Iterator[tuple[str, T]]:
    return ((where, row) for where, row in rows if isinstance(row, kind))


def _make_job(where: str, job: _Job, free: dict[str, int]) -> FleetJob:
    def fault(what: str) -> _FaultError:
        return _FaultError(where, f"job {job.name}: {what}")

    def parse_field(field: str, text: str) -> int | None:
        return _parse_time(fault, field, text)

    start, end = parse_field("start", job.start) or 0, parse_field("end", job.end)
    size = job.size or len(job.nodes)
    if size < 1 or (job.nodes and size != len(job.nodes)):
        raise fault("specify nodes (one for each member) or, for a job that starts later, size")
    if job.nodes and start > 0:
        raise fault(f"it starts after {job.start}, so the scheduler places it: specify size instead of nodes")
    if not job.nodes and start < 0:
        raise fault("it runs already, so specify the nodes of its members")
    if end is not None and end <= max(0, start):
        raise fault(f"its end {job.end} is not after its start or the begin")
    if job.method not in METHODS:
        raise fault(f"method is {job.method!r}, which is none of {', '.join(METHODS)}")
    _assign_gpus(fault, job, free)
    return FleetJob(
        name=job.name,
        size=size,
        nodes=tuple(job.nodes),
        gpus=job.gpus,
        start=start,
        end=end,
        declared_end=parse_field("declaredEnd", job.declared_end),
        min_runtime=parse_field("minRuntime", job.min_runtime) or 0,
        method=METHODS[job.method],
        timeout=parse_field("timeout", job.timeout),
        checkpoint=max(1, parse_field("checkpoint", job.checkpoint) or 0),
        restart=max(1, parse_field("restart", job.restart) or 0),
        period=max(1, parse_field("period", job.period) or 0),
        lane=job.lane,
        refuses=job.refuses,
    )


def _assign_gpus(fault: Fault, job: _Job, free: dict[str, int]) -> None:
    """Assign GPUs of its nodes to a job, if they are free."""
    for node in job.nodes:
        if node not in free:
            raise fault(f"node {node} does not exist")
        free[node] -= job.gpus
        if job.gpus < 1 or free[node] < 0:
            raise fault(f"{job.gpus} GPUs on node {node}, which has {free[node] + job.gpus} free")


def _parse_time(fault: Fault, field: str, text: str) -> int | None:
    """Seconds from the begin, or of a duration; None for an empty text."""
    if not text:
        return None
    before, bare = text.startswith("-"), text.removeprefix("-")
    seconds = 0 if bare in {"0", "0s"} else duration(bare)
    if seconds is None or (before and field != "start"):
        raise fault(f"{field} is {text!r}, which is not a duration such as 90s, 30m, 6h or 2d")
    return -seconds if before else seconds


def _make_event(where: str, event: _Event, nodes: Mapping[str, FleetNode], jobs: Mapping[str, FleetJob]) -> FleetEvent:
    def fault(what: str) -> _FaultError:
        return _FaultError(where, f"event {event.what}: {what}")

    what, value = event.what, event.value
    subjects = jobs if what not in NODE_EVENTS else {} if what is EventKind.NODE_JOINS else nodes
    if what is not EventKind.NODE_JOINS and event.subject not in subjects:
        raise fault(f"{'node' if what in NODE_EVENTS else 'job'} {event.subject} does not exist")
    if what in {EventKind.NODE_JOINS, EventKind.JOB_GROWS} and value not in nodes:
        raise fault(f"value is not the name of a node: {value!r}")
    if what is EventKind.NODE_RENAMED and (not value or value in nodes):
        raise fault(f"value is not a new name: {value!r}")
    if what is EventKind.SLOW_CHECKPOINT and not value.isdecimal():
        raise fault(f"value is not a number of seconds: {value!r}")
    if what is EventKind.UPGRADE_FAILS and value and not value.isdecimal():
        raise fault(f"value is not a number of failures: {value!r}")
    return FleetEvent(at=_parse_time(fault, "at", event.at) or 0, what=what, subject=event.subject, value=value)
