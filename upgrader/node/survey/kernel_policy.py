"""What the kernel accepts: firmware from a path that another program set, and signatures of modules."""

from collections.abc import Iterator

from upgrader.core.doctor.advice import Advice
from upgrader.core.doctor.node_survey import SurveyCheck
from upgrader.core.node_protocol.node_places import STATE_DIRECTORY
from upgrader.node.host.text_files import read_optional
from upgrader.node.survey.surveyed_node import SurveyedNode, make_handled, make_problem, make_warning

NVIDIA_ROOT = "/run/nvidia/driver/"
"""Where NVIDIA's driver container mounts its root file system."""


def check_firmware_path(node: SurveyedNode) -> Iterator[Advice]:
    """The path that the kernel searches first for firmware, which a driver image sets (driver-images/modules/load)."""
    if not node.scope.swaps_driver:
        return
    path = read_optional(node.system / "module/firmware_class/parameters/path")
    if not path or path.startswith(f"{STATE_DIRECTORY}/drivers/"):
        return
    if path.startswith(NVIDIA_ROOT) or not node.host.path(path).is_dir():
        yield make_handled(
            SurveyCheck.FIRMWARE_PATH, "firmware path", f"{path} is replaced, and set again when the driver is unloaded"
        )
        return
    yield make_problem(
        SurveyCheck.FIRMWARE_PATH,
        "firmware path",
        f"the kernel reads firmware from {path}, which another program has set",
        "Install that firmware in /lib/firmware, remove the setting from the program, and reboot.",
    )


def check_signatures(node: SurveyedNode) -> Iterator[Advice]:
    """Whether the kernel requires signed modules (lockdown, module.sig_enforce), and the image has them."""
    why = signature_policy(node)
    if not why or not node.scope.swaps_driver:
        return
    subject = "module signatures"
    if node.scope.signed is False:
        yield make_problem(
            SurveyCheck.MODULE_SIGNATURE,
            subject,
            f"the kernel rejects unsigned modules ({why}), and those of the driver image have no checked signature",
            "Build the image with a signing key, and enroll its certificate on the nodes: mokutil --import",
        )
        return
    yield make_warning(
        SurveyCheck.MODULE_SIGNATURE,
        subject,
        f"the kernel rejects modules that are not signed by a key of its keyrings ({why})",
        "Check that the certificate of the driver image is enrolled: keyctl list %:.machine, and %:.platform",
    )


def signature_policy(node: SurveyedNode) -> str:
    """What makes the kernel require signed modules; empty if it does not."""
    if read_optional(node.system / "module/module/parameters/sig_enforce") == "Y":
        return "module.sig_enforce"
    lockdown = read_optional(node.system / "kernel/security/lockdown")
    return "" if not lockdown or "[none]" in lockdown else f"lockdown {lockdown}"
