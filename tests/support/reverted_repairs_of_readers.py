"""Repairs of readers of text and labels that tenants write; see tests/support/reverted_repairs.py."""

from tests.support.repairs import Change, Repair, Run
from upgrader_dev.chaos.faults import Fault

# Errors of one gang, node or list end the whole step again, as they did when the readers below were not total.
_ISOLATION = (
    Change(
        path="reconcile/runtime/isolation.py",
        old="if not isinstance(error, Exception) or isinstance(error, LostLeadershipError):",
        new="if not isinstance(error, UpgraderError) or isinstance(error, LostLeadershipError):",
    ),
    Change(
        path="reconcile/upgrade_plan/plan_reconciler.py",
        old='        faults.record_error("the reading of the cluster", error)\n',
        new="        raise\n",
    ),
    Change(
        path="core/workloads/gangs.py",
        old="    except Exception as error:  # noqa: BLE001 - one pod must not",
        new="    except KeyboardInterrupt as error:  # noqa: BLE001 - one pod must not",
    ),
    Change(
        path="core/workloads/gangs.py",
        old="    except Exception as error:  # noqa: BLE001 - one gang must not",
        new="    except KeyboardInterrupt as error:  # noqa: BLE001 - one gang must not",
    ),
    Change(
        path="reconcile/facts/owner_reading.py",
        old="    except Exception as error:  # noqa: BLE001 - one owner must not",
        new="    except KeyboardInterrupt as error:  # noqa: BLE001 - one owner must not",
    ),
    Change(
        path="reconcile/facts/pod_facts.py",
        old="    except Exception as error:  # noqa: BLE001 - one pod must not",
        new="    except KeyboardInterrupt as error:  # noqa: BLE001 - one pod must not",
    ),
)

UNTRUSTED = (
    Repair(
        name="durations-of-any-length",
        defect="A pod's expected-runtime of thousands of years raised OverflowError in each look: no plan went on.",
        laws=(6, 9),
        finds=Run(seed=31, nodes=2),
        faults=(Fault.MALFORMED_TEXT,),
        changes=(
            *_ISOLATION,
            Change(
                path="core/untrusted.py",
                old="for number, unit in _PART.findall(text))\n"
                "    return length if length is not None and length <= longest else None",
                new="for number, unit in _PART.findall(text))\n    return length",
            ),
            Change(
                path="core/timing.py",
                old="    except OverflowError:\n",
                new="    except KeyboardInterrupt:\n",
            ),
        ),
    ),
    Repair(
        name="documents-of-any-depth",
        defect="A JSON text of thousands of brackets in an annotation raised RecursionError in each look.",
        laws=(6, 9),
        finds=Run(seed=9, nodes=1),
        faults=(Fault.MALFORMED_TEXT,),
        changes=(
            *_ISOLATION,
            Change(
                path="core/untrusted.py",
                old="    except RecursionError as error:\n",
                new="    except KeyboardInterrupt as error:\n",
            ),
        ),
    ),
    Repair(
        name="times-outside-the-calendar",
        defect="A time that is not in the calendar once it is shown in UTC raised OverflowError in each look.",
        laws=(6, 9),
        finds=Run(seed=29, nodes=1),
        faults=(Fault.MALFORMED_TEXT,),
        changes=(
            *_ISOLATION,
            Change(
                path="core/untrusted.py",
                old="    except (ValueError, OverflowError):\n",
                new="    except ValueError:\n",
            ),
        ),
    ),
    Repair(
        name="requests-by-label",
        defect="A CheckpointRequest that others had made counted for the plan that its label names: no plan ended.",
        laws=(6, 9),
        finds=Run(seed=2, nodes=2),
        faults=(Fault.FORGED_REQUEST,),
        changes=(
            Change(
                path="reconcile/observe/own_requests.py",
                old="    if not name or not uid or meta.labels.get(names.LABEL_PLAN) != name:\n        return False\n",
                new="    if name:\n        return True\n",
            ),
        ),
    ),
    Repair(
        name="own-pods-by-label",
        defect="A tenant's pod with the operator's label was taken for one of its own, and rebooted over.",
        laws=(1, 5, 6),
        finds=Run(seed=8, nodes=1),
        faults=(Fault.FORGED_POD,),
        changes=(
            Change(
                path="reconcile/facts/pod_facts.py",
                old="    return pod.metadata.namespace == namespace and names.LABEL_COMPONENT in pod.metadata.labels\n",
                new="    return names.LABEL_COMPONENT in pod.metadata.labels\n",
            ),
        ),
    ),
    Repair(
        name="answers-of-any-pod",
        defect="A tenant's pod with the right labels answered for the prepare pod of a node upgrade.",
        laws=(2,),
        finds=Run(seed=472, nodes=1),
        faults=(Fault.FORGED_POD,),
        changes=(
            Change(
                path="reconcile/facts/pod_facts.py",
                old="    return pod.metadata.namespace == namespace and names.LABEL_COMPONENT in pod.metadata.labels\n",
                new="    return names.LABEL_COMPONENT in pod.metadata.labels\n",
            ),
            Change(
                path="stack/node_pods/pod_results.py",
                old="    return [pod for pod in pods if pod.metadata.name == name and _is_controlled_by(pod, owner)]\n",
                new='    label, component = "gpu-upgrader.io/component", name.partition("-")[0]\n'
                "    mine = [pod for pod in pods if _is_controlled_by(pod, owner)]\n"
                "    return [pod for pod in mine if pod.metadata.labels.get(label) == component]\n",
            ),
        ),
    ),
)
