"""`upgrader doctor` on a real API server: reviews, stored definitions and the clock are as the fake plays them."""

import pytest

from tests.support.deploying import SYSTEM, deploy
from upgrader.api.kinds import KINDS
from upgrader.api.resources import DRIVER_IMAGES
from upgrader.cli.base.session import Session
from upgrader.cli.doctor.doctor_checks import run_checks
from upgrader.core.doctor.advice import Severity
from upgrader.kube.lease import CONTROLLER, LEASES, Election

pytestmark = [pytest.mark.cluster, pytest.mark.gate]


async def diagnosed(kubeconfig):
    async with Session(kubeconfig=str(kubeconfig)).open() as context:
        return {one.subject: one for one in await run_checks(context)}


@pytest.fixture
async def lead(api):
    """Whoever led before is away."""
    await deploy(api)
    before = await api.get(LEASES, CONTROLLER, SYSTEM)
    if before is not None:
        await api.delete(LEASES, before.metadata)


@pytest.fixture
async def no_images(api):
    """Those that other tests left on this cluster are away: doctor tells of each that nobody has verified."""
    for one in await api.list(DRIVER_IMAGES):
        await api.delete(DRIVER_IMAGES, one.metadata)


async def test_an_admin_finds_everything_well_but_the_controller(api, lead, no_images, kubeconfig):
    found = await diagnosed(kubeconfig)
    # Stacks that other tests left name images of a registry that there is not; of that it is told, and rightly.
    without_images = {subject: one for subject, one in found.items() if not subject.startswith("registry.example/")}
    bad = {subject: one.message for subject, one in without_images.items() if one.severity is not Severity.OK}
    assert bad == {"controller": f"no controller has ever held the Lease in namespace {SYSTEM}"}
    assert {f"{kind.resource.plural}.gpu-upgrader.io" for kind in KINDS} <= set(found)
    election = Election(api, name=CONTROLLER, namespace=SYSTEM, identity="pod-1")
    assert await election.attempt()
    found = await diagnosed(kubeconfig)
    assert found["controller"].message == "pod-1 leads"
    await election.release()
    assert (await diagnosed(kubeconfig))["controller"].message == "no controller runs: the last leader has ended"


async def test_the_controllers_account_may_look_and_not_ask_about_others(controllers_kubeconfig):
    found = await diagnosed(controllers_kubeconfig)
    assert found["your read access"].severity is Severity.OK
    assert found["your write access"].message.startswith("2 of 4 rights are missing: create gpustacks")
    assert found["the controller's rights"].check == "CannotLook"
    assert "cannot create resource" in found["the controller's rights"].message
