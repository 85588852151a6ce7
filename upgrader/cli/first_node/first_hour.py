"""A run of phases: the journal is written before each, and everything is put back after it."""

import time
from collections.abc import Awaitable, Callable, Iterable

import msgspec

from upgrader.api.kubernetes import Node
from upgrader.api.resources import NODES
from upgrader.cli.doctor.node_pod import Sleep, run_node_pod
from upgrader.cli.first_node.put_back import UNDO
from upgrader.cli.first_node.report_folder import ReportFolder
from upgrader.core import timing
from upgrader.core.doctor.advice import has_problem
from upgrader.core.errors import BlockedError, ConfigurationError, UpgraderError
from upgrader.core.first_node import journal as journals
from upgrader.core.first_node.journal import PhaseJournal, PhaseRun, PhaseVerdict, PutBack, UndoAction
from upgrader.core.first_node.redaction import Redactor
from upgrader.core.first_node.report_page import PhaseResult
from upgrader.reconcile.runtime.context import Context
from upgrader.stack.parts import Manifest
from upgrader.stack.settings import StackSettings


class FirstHour:
    """The state of a run on one node.

    Args:
        context: context of the cluster.
        journal: what earlier runs did.
        folder: the folder of the report, which is locked.
        settings: settings of pods on nodes.
        sleep: waits between two polls.
    """

    def __init__(
        self, context: Context, journal: PhaseJournal, folder: ReportFolder, settings: StackSettings, sleep: Sleep
    ) -> None:
        self.context, self.journal, self.folder = context, journal, folder
        self.settings, self.sleep = settings, sleep

    @property
    def node(self) -> str:
        """Name of the node."""
        return self.journal.node

    async def read_node(self) -> Node:
        """The node as it is now.

        Raises:
            ConfigurationError: it is not found.
        """
        node = await self.context.cluster.get(NODES, self.node)
        if node is None:
            raise ConfigurationError(f"node {self.node} not found")
        return node

    def run_name(self) -> str:
        """A name for the pods of one act: two acts at different times have different pods."""
        return self._now()

    def hide_names(self, names: Iterable[str]) -> None:
        """Replace these names too, in everything that is written and was written."""
        names = tuple(sorted({*self.journal.names, *names}))
        self._write(msgspec.structs.replace(self.journal, names=names))

    def redact_text(self, text: str) -> str:
        """The text as the report has it."""
        return self._make_redactor().redact_text(text)

    async def run_phase(self, number: int, act: "Callable[[FirstHour], Awaitable[PhaseResult]]") -> PhaseRun:
        """Run a phase, put back what it changed, and write its result. A failure is a verdict.

        Raises:
            UpgraderError: a change cannot be put back; the journal keeps it.
        """
        self._write(journals.begin_phase(self.journal, number, self._now()))
        begin, verdict, result = time.monotonic(), PhaseVerdict.INTERRUPTED, PhaseResult(message="it was interrupted")
        try:
            result = await act(self)
            verdict = _judge_result(result)
        except BlockedError as error:
            verdict, result = PhaseVerdict.REFUSED, PhaseResult(message=" ".join(str(error).split()))
        except UpgraderError as error:
            verdict, result = PhaseVerdict.FAILED, PhaseResult(message=" ".join(str(error).split()))
        finally:
            seconds = round(time.monotonic() - begin, 3)
            message = self.redact_text(result.message)
            self._write(
                journals.end_phase(self.journal, self._now(), seconds=seconds, verdict=verdict, message=message)
            )
            try:
                await self.put_back()
            finally:
                self._write_report(number, result)
        return self.journal.entries[-1]

    def _write_report(self, number: int, result: PhaseResult) -> None:
        redactor = self._make_redactor()
        self.folder.write_result(number, result, redactor)
        self.folder.redact_again(redactor)
        self.folder.write_summary(self.journal, redactor)

    async def put_back(self) -> tuple[PutBack, ...]:
        """Put back every change that the journal has, the last first; returns them."""
        left = self.journal.left
        for change in left:
            await UNDO[change.action](self.context, self.sleep, change)
            self.drop_change(change)
        return left

    async def run_pod(self, manifest: Manifest, container: str, deadline: int) -> bytes:
        """Run a pod that only reads; returns its log. It is in the journal before it exists."""
        meta = manifest["metadata"]
        self.record_change(PutBack(action=UndoAction.DELETE_POD, name=meta["name"], namespace=meta["namespace"]))
        return await run_node_pod(self.context, manifest, container, deadline, self.sleep)

    def record_change(self, change: PutBack) -> None:
        """Write into the journal a change that is about to be made."""
        self.hide_names([change.name])
        self._write(journals.add_change(self.journal, change))

    def drop_change(self, change: PutBack) -> None:
        """Write into the journal that a change was put back."""
        self._write(journals.drop_change(self.journal, change))

    def _make_redactor(self) -> Redactor:
        return Redactor(bytes.fromhex(self.journal.key), (self.journal.node, *self.journal.names))

    def _now(self) -> str:
        return timing.format_time(self.context.clock.now())

    def _write(self, journal: PhaseJournal) -> None:
        self.folder.write_journal(journal)
        self.journal = journal


def _judge_result(result: PhaseResult) -> PhaseVerdict:
    if result.skipped:
        return PhaseVerdict.SKIPPED
    return PhaseVerdict.FINDINGS if has_problem(result.findings) or result.missed else PhaseVerdict.PASSED
