"""Whether somebody vouches for a DriverImage, as its condition says it."""

import pytest

from upgrader.core.driver_build.driver_builds import CheckName
from upgrader.core.driver_image.image_machine import image_verification
from upgrader.core.model.phases import DriverImagePhase

D = DriverImagePhase
NO_SIGNATURE: dict[CheckName, bool | None] = {
    CheckName.IMAGE_SIGNATURE: False,
    CheckName.SBOM: None,
    CheckName.CONTENTS: True,
}


@pytest.mark.parametrize(
    ("phase", "checks", "status", "reason"),
    [
        (D.READY, {CheckName.IMAGE_SIGNATURE: True}, "True", "Signed"),
        (D.READY, {}, "False", "NoKey"),
        (D.READY, {CheckName.CRC: True}, "False", "NoKey"),
        (D.UNUSABLE, NO_SIGNATURE, "False", "Refused"),
        (D.UNUSABLE, {}, "Unknown", "ImageUnusable"),
        (D.PENDING, {}, "Unknown", "ImagePending"),
        (D.VERIFYING, {CheckName.CRC: True}, "Unknown", "ImageVerifying"),
        (D.UNBUILDABLE, {CheckName.CRC: False}, "Unknown", "ImageUnbuildable"),
    ],
)
def test_whether_somebody_vouches_for_the_image(
    phase: D, checks: dict[CheckName, bool | None], status: str, reason: str
) -> None:
    found = image_verification(phase, checks)
    assert (found.status, found.reason) == (status, reason)
    assert found.message


def test_the_checks_that_did_not_pass_are_named() -> None:
    said = "these checks of the image did not pass: image-signature, sbom"
    assert image_verification(D.UNUSABLE, NO_SIGNATURE).message == said
