"""The comparison of a node with itself before its reboot, by the fingerprint that the upgrade kept on its disk."""

import msgspec

from upgrader.core.node_protocol.node_fingerprint import NodeFingerprint, describe_losses, find_losses
from upgrader.core.node_protocol.orders import OrderResult, Reason, UpgradeOrder
from upgrader.node.host.clock import NodeClock, poll_until_no_fault
from upgrader.node.host.host import Host
from upgrader.node.upgrade.fingerprint import read_fingerprint
from upgrader.node.upgrade.upgrade_record import Records

COMPARED = "compared with the boot before"
"""Name of the fact what was compared."""

NOT_COMPARED = "not compared with the boot before"
"""Name of the fact what was not, and why."""


def keep_fingerprint(order: UpgradeOrder, records: Records, host: Host) -> None:
    """Keep the fingerprint of the node before its reboot.

    That of an earlier run stays, and a revert has that of the upgrade that it reverts: what the upgrade lost has to
    return with the former kernel.
    """
    if _kept_fingerprint(order, records) is None:
        records.keep_fingerprint(read_fingerprint(host, _driver_vendor(order)))


def compare_boots(
    result: OrderResult, order: UpgradeOrder, records: Records, host: Host, clock: NodeClock
) -> OrderResult:
    """The result of a reboot, after a comparison of the node with its fingerprint.

    Links and mounts return some time after the boot, so they are awaited until the limit of the order.
    """
    before = _kept_fingerprint(order, records)
    if order.reboot is None or before is None:
        return _with_facts(result, {NOT_COMPARED: "the upgrade kept no fingerprint of the node before its reboot"})
    seconds = order.reboot.settle_timeout
    lost = poll_until_no_fault(
        lambda: describe_losses(find_losses(before, read_fingerprint(host, _driver_vendor(order)))),
        clock=clock,
        seconds=seconds,
        every=1.0,
    )
    result = _with_facts(result, _comparison_facts(before))
    if not lost:
        return result
    message = f"{result.message}; {seconds} s after that the node has less than before: {lost}"
    if order.reboot.report_losses:
        return msgspec.structs.replace(result, message=message)
    resolution = "repair the node, or set spec.reboot.onLoss of the stack to Report"
    return msgspec.structs.replace(result, reason=Reason.DEGRADED, message=f"{message}; {resolution}")


def _kept_fingerprint(order: UpgradeOrder, records: Records) -> NodeFingerprint | None:
    reverted = records.read_fingerprint(order.undoes) if order.undoes else None
    return reverted or records.read_fingerprint()


def _driver_vendor(order: UpgradeOrder) -> str:
    """The vendor of the driver that the upgrade replaces; empty if it replaces none."""
    driver = order.unload or order.parameters
    return driver.vendor if driver is not None else ""


def _comparison_facts(before: NodeFingerprint) -> dict[str, str]:
    unread = "; ".join(f"{trait}: {why}" for trait, why in before.unread.items())
    return {name: text for name, text in ((COMPARED, before.summary), (NOT_COMPARED, unread)) if text}


def _with_facts(result: OrderResult, facts: dict[str, str]) -> OrderResult:
    return msgspec.structs.replace(result, facts=result.facts | facts)
