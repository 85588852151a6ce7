"""Repairs of the product, each with the change that brings its defect back, and the chaos run that finds it then.

A change is text of today's source and what stands there instead. It brings back what the defect did, not always the
lines of that day: where two places keep a defect away, both are changed.
"""

from tests.support.repairs import Change, Repair, Run
from tests.support.reverted_repairs_of_readers import UNTRUSTED
from upgrader_dev.chaos.faults import Fault

REPAIRS = (
    *UNTRUSTED,
    Repair(
        name="pods-after-the-drain",
        defect="Nobody looked at pods again once a node was drained: what tolerates every taint was rebooted over.",
        laws=(1,),
        finds=Run(seed=765, nodes=1),
        faults=(Fault.TOLERANT_POD,),
        changes=(
            Change(
                path="core/node_upgrade/clearing.py",
                old="    any_pod = view.phase in _ENDING\n    if is_untouched(view) and not any_pod:\n",
                new="    any_pod = view.phase in _ENDING\n    if any_pod or not any_pod:\n",
            ),
        ),
    ),
    Repair(
        name="half-a-group",
        defect="A node of a group for which no upgrade could be made was left out: the gang was asked all the same.",
        laws=(2, 5),
        finds=Run(seed=1921, nodes=3),
        faults=(Fault.FORCE_DELETED,),
        changes=(
            Change(
                path="reconcile/upgrade_plan/revalidation.py",
                old="        if name not in with_upgrade and await context.cluster.get(NODES, name) is not None:\n",
                new="        if name not in with_upgrade and False:\n",
            ),
            Change(
                path="reconcile/upgrade_plan/revalidation.py",
                old="        if node.name not in with_upgrade and catalogue.has_unknown_driver(node):\n",
                new="        if node.name not in with_upgrade and False:\n",
            ),
        ),
    ),
    Repair(
        name="stops-removed-by-force",
        defect="A gang whose checkpoint request was removed by force was stopped a second time.",
        laws=(5,),
        finds=Run(seed=3992, nodes=2),
        faults=(Fault.FORCE_DELETED,),
        changes=(
            Change(
                path="reconcile/observe/stopped_gangs.py",
                old="    return frozenset(plan.status.stopped_owners) | told\n",
                new="    return frozenset(told)\n",
            ),
        ),
    ),
    Repair(
        name="claims-that-come-late",
        defect="A claim that a frozen leader had sent closed a node after its upgrade had ended: more than the budget.",
        laws=(4,),
        finds=Run(seed=6497, nodes=2),
        faults=(Fault.FROZEN_LEADER,),
        changes=(
            Change(
                path="core/node_upgrade/upgrade_machine.py",
                old="    unclaimed = node is not None and not node.claimed_by and node.released_by != view.uid\n",
                new="    unclaimed = False\n",
            ),
        ),
    ),
    Repair(
        name="requests-removed-by-force",
        defect="A gang whose checkpoint request was removed by force was never restarted.",
        laws=(9,),
        finds=Run(seed=291, nodes=1),
        faults=(Fault.FORCE_DELETED,),
        changes=(
            Change(
                path="reconcile/checkpoint_request/abandoned_owners.py",
                old="    owners = await _without_request(context, recorded)\n",
                new="    owners: list[StoppedOwner] = []\n",
            ),
        ),
    ),
    Repair(
        name="plans-removed-by-force",
        defect="Node upgrades and gangs of a plan that was removed by force stayed as they were.",
        laws=(6, 9),
        finds=Run(seed=103, nodes=1),
        faults=(Fault.FORCE_DELETED,),
        changes=(
            Change(
                path="reconcile/upgrade_plan/plan_reconciler.py",
                old="    left = await leftovers.take_back(context, upgrades, requests, faults)\n"
                "    metrics.show_faults(UPGRADE_PLANS.kind, name, len(faults.errors))\n",
                new="    left = False\n",
            ),
        ),
    ),
    Repair(
        name="gangs-that-grow",
        defect="A gang that grew since its batch was started was stopped: more GPUs than the budget has.",
        laws=(4,),
        because="none in some thousand runs: it has to grow in the seconds before it is asked; test_whole_groups.py",
        faults=(Fault.GANG_GROWS,),
        changes=(
            Change(
                path="reconcile/upgrade_group/group_view.py",
                old='    if live.view.phase is not RequestPhase.STOPPING:\n        return ""\n    members',
                new='    if live.view.phase:\n        return ""\n    members',
            ),
            Change(
                path="reconcile/upgrade_plan/revalidation.py",
                old="    if grown := _find_growth(read, group, here):\n",
                new="    if (grown := _find_growth(read, group, here)) and False:\n",
            ),
        ),
    ),
    Repair(
        name="settings-of-a-kubelet",
        defect="One node's unreadable annotation ended each step of its plan: what was begun on others had no step.",
        laws=(6,),
        finds=Run(seed=7752, nodes=2),
        faults=(Fault.MALFORMED_NODE, Fault.BATCH_INTERRUPTED),
        changes=(
            Change(
                path="core/constraints/node_blockers.py",
                old="    _has_skip_label,\n    _not_readable,\n",
                new="    _has_skip_label,\n",
            ),
            Change(
                path="reconcile/upgrade_plan/batches.py",
                old='            with faults.contained(f"upgrade of node {node.name}"):\n',
                new="            if node:\n",
            ),
            Change(
                path="reconcile/upgrade_plan/batch_steps.py",
                old='            with self.faults.contained("upgrades to create"):\n',
                new="            if plan:\n",
            ),
        ),
    ),
    Repair(
        name="unknown-driver",
        defect="A node whose DriverImage is gone was taken for one without a driver: an upgrade would go back to none.",
        laws=(8,),
        finds=Run(seed=39, nodes=1),
        faults=(Fault.FORCE_DELETED,),
        changes=(
            Change(
                path="core/driver_image/catalogue.py",
                old='        return node.driver_key not in {"", NO_DRIVER} and self.image_of(node) is None\n',
                new="        return False\n",
            ),
        ),
    ),
    Repair(
        name="two-upgrades-at-once",
        defect="The way back began while the upgrade Job of the way there still worked on the node.",
        laws=(8,),
        finds=Run(seed=97, nodes=1),
        faults=(Fault.UPGRADE_HANGS,),
        changes=(
            Change(
                path="core/node_upgrade/clearing.py",
                old="    if not view.upgrade_jobs.first:\n        return None\n",
                new="    if view:\n        return None\n",
            ),
            Change(
                path="core/node_upgrade/clearing.py", old="    left = view.upgrade_jobs.pods\n", new="    left = 0\n"
            ),
        ),
    ),
    Repair(
        name="stop-before-the-drain",
        defect="A gang was stopped while another pod could not be evicted from its node: its only stop, for nothing.",
        laws=(5,),
        finds=Run(seed=213, nodes=2),
        faults=(Fault.PDB_TIGHTENS,),
        changes=(
            Change(
                path="core/checkpoint_request/request_machine.py",
                old="    if group.pods_left:\n        # If they stay",
                new="    if group.pods_left and group.undo:\n        # If they stay",
            ),
            Change(
                path="core/checkpoint_request/request_machine.py",
                old="    if group.pods_left:\n        return _keep_phase",
                new="    if group.pods_left and group.undo:\n        return _keep_phase",
            ),
        ),
    ),
    Repair(
        name="fellow-withdrawn",
        defect="Of two gangs of a group one had its request withdrawn and the other was stopped in the same step.",
        laws=(5,),
        because="none in two dozen runs: one has to fail in the very second of the stop; test_stop_order.py",
        changes=(
            Change(
                path="reconcile/upgrade_group/group_reconciler.py",
                old="            forbidden = next((why for fellow, why in refusals.items() if",
                new='            forbidden = next(("" for fellow, why in refusals.items() if',
            ),
        ),
    ),
    Repair(
        name="owners-of-replicas",
        defect="What a ReplicaSet declares was not read: its pods were evicted although they can be asked.",
        laws=(1,),
        finds=Run(seed=75, nodes=1),
        changes=(
            Change(
                path="core/workloads/owner_kinds.py",
                old='    ReadKind(kind="ReplicaSet", group="apps"',
                new='    ReadKind(kind="ReplicaSet", group="nobody"',
            ),
        ),
    ),
    Repair(
        name="renamed-resource",
        defect="GPUs of the former resource name counted for nothing: gangs that hold them lost their nodes unasked.",
        laws=(1, 4),
        finds=Run(seed=14, nodes=2),
        changes=(
            Change(
                path="core/node_protocol/gpu_resources.py",
                old="        return (self.resource, *self.former)\n",
                new="        return (self.resource,)\n",
            ),
        ),
    ),
    Repair(
        name="upgrades-made-anew",
        defect="A node upgrade made anew after its gang had stopped waited for an acknowledgement that could not come.",
        laws=(6,),
        because="none in some thousand runs since upgrades go on at once (before: 21585, 3); test_orphans.py",
        faults=(Fault.FORCE_DELETED,),
        changes=(
            Change(
                path="core/node_upgrade/upgrade_machine.py",
                old="if request.phase not in _ASKED | _GOING]",
                new="if request.phase is RequestPhase.WITHDRAWN]",
            ),
            Change(
                path="core/node_upgrade/upgrade_machine.py",
                old="silent = [request.gang for request in group.requests if request.phase not in _GOING]",
                new="silent = [each.gang for each in group.requests if each.phase.value not in {'Parked', 'Ended'}]",
            ),
        ),
    ),
    Repair(
        name="nodes-out-of-step",
        defect="What was decided from nodes that got out of step during a slow read was begun all the same.",
        laws=(8,),
        finds=Run(seed=2011, nodes=2),
        faults=(Fault.READ_SLOW,),
        changes=(
            Change(
                path="reconcile/runtime/context.py",
                old="    if context.nodes.snapshot() is None:\n        raise UnreachableError(",
                new="    if context is None:\n        raise UnreachableError(",
            ),
            Change(
                path="reconcile/observe/cluster_snapshot.py",
                old="    if context.nodes.snapshot() is None:\n        return None\n",
                new="    known = context.nodes.snapshot()\n    if known is None:\n        return None\n",
            ),
            Change(
                path="reconcile/observe/cluster_snapshot.py",
                old="    known = context.nodes.snapshot()\n    if known is None:  # they got out of step while",
                new="    if known is None:  # they got out of step while",
            ),
        ),
    ),
)
