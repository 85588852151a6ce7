"""What the kernel accepts: firmware from a path that another program set, and signatures of modules."""

import re
from collections.abc import Iterator

from upgrader.core.doctor.advice import Advice
from upgrader.core.doctor.node_survey import SurveyCheck
from upgrader.core.node_protocol.node_places import STATE_DIRECTORY
from upgrader.node.host.text_files import read_optional
from upgrader.node.survey.surveyed_node import SurveyedNode, make_handled, make_problem, make_warning

# The columns are those of Linux, security/keys/proc.c; the name of the type is cut to nine characters.
_CERTIFICATE = re.compile(r"^.* asymmetri (?P<name>.*): (?P<id>[0-9a-f]+): X509\.", re.MULTILINE)

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
    keys, key_id = read_certificates(node), node.scope.signer_key_id
    if key_id and key_id in keys:
        name = f"{keys[key_id]} ({key_id})"
        yield make_handled(
            SurveyCheck.MODULE_SIGNATURE, subject, f"required ({why}); the kernel has the certificate {name}"
        )
    elif key_id and keys:
        yield make_problem(
            SurveyCheck.MODULE_SIGNATURE,
            subject,
            f"the kernel rejects modules that are not signed by a key of its keyrings ({why}), and that of the driver "
            f"image, {key_id}, is not among them",
            "Enroll the certificate, and reboot: mokutil --import CERTIFICATE.der",
        )
    else:
        yield make_warning(
            SurveyCheck.MODULE_SIGNATURE,
            subject,
            f"the kernel rejects modules that are not signed by a key of its keyrings ({why}); whether it has that of "
            "the driver image is unknown",
            "Check that the certificate of the driver image is enrolled: keyctl list %:.machine, and %:.platform",
        )


def read_certificates(node: SurveyedNode) -> dict[str, str]:
    """The names of the certificates in the keyrings of the kernel, by key id; empty if they are not visible."""
    listed = _CERTIFICATE.finditer(read_optional(node.host.proc / "keys"))
    return {certificate["id"]: certificate["name"] for certificate in listed}


def signature_policy(node: SurveyedNode) -> str:
    """What makes the kernel require signed modules; empty if it does not."""
    if read_optional(node.system / "module/module/parameters/sig_enforce") == "Y":
        return "module.sig_enforce"
    lockdown = read_optional(node.system / "kernel/security/lockdown")
    return "" if not lockdown or "[none]" in lockdown else f"lockdown {lockdown}"
