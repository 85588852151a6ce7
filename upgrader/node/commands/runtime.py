"""`runtime`: the simulated vendor's runtime hook."""

import os
from collections.abc import Sequence
from pathlib import Path

from upgrader.node.commands.options import CHECK, parser
from upgrader.node.host.clock import SystemClock


def main(arguments: Sequence[str]) -> int:
    """Serves until it is ended; with --ready and --check the exit code is the answer."""
    known = parser("runtime", "the simulated vendor's runtime hook")
    known.add_argument("--folder", type=Path, default=Path("/var/run/cdi"))
    known.add_argument("--proc", type=Path, default=Path("/proc"))
    known.add_argument(
        "--ready", action="store_true", help="exit 0 if this pod's hook has done its work on this boot, else 1"
    )
    known.add_argument("--check", action="store_true", help=CHECK)
    options = known.parse_args(arguments)
    if options.check:
        return 0
    # As of the device plugin: a check of the options needs none of it.
    from upgrader.core.node_protocol.orders import POD_VARIABLE  # noqa: PLC0415
    from upgrader.node.host.programs import SystemPrograms  # noqa: PLC0415
    from upgrader.node.sim.runtime import RuntimeHook, serve  # noqa: PLC0415

    hook = RuntimeHook(
        folder=options.folder,
        run=options.run,
        proc=options.proc,
        programs=SystemPrograms(),
        pod=os.environ.get(POD_VARIABLE, ""),
    )
    if options.ready:
        return 0 if hook.done(options.driver) is not None else 1
    serve(hook, options.count, options.driver, SystemClock())
    return 0
