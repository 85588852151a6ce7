"""`runtime`: the runtime hook of the simulated vendor."""

import os
from collections.abc import Sequence
from pathlib import Path

from upgrader.node.host.clock import MonotonicClock
from upgrader_dev.node.commands.options import CHECK, create_parser


def main(arguments: Sequence[str]) -> int:
    """Serve until the process ends; with --ready or --check, only return an exit code."""
    parser = create_parser("runtime", "the runtime hook of the simulated vendor")
    parser.add_argument("--folder", type=Path, default=Path("/var/run/cdi"))
    parser.add_argument("--proc", type=Path, default=Path("/proc"))
    parser.add_argument(
        "--ready",
        action="store_true",
        help="exit with code 0 if the hook of this pod is done on this boot, else with 1",
    )
    parser.add_argument("--check", action="store_true", help=CHECK)
    options = parser.parse_args(arguments)
    if options.check:
        return 0
    # As in the device plugin: a check of the options does not need these imports.
    from upgrader.core.node_protocol.orders import POD_VARIABLE  # noqa: PLC0415
    from upgrader.node.host.programs import SystemPrograms  # noqa: PLC0415
    from upgrader_dev.node.runtime import RuntimeHook, serve_hook  # noqa: PLC0415

    hook = RuntimeHook(
        folder=options.folder,
        run=options.run,
        proc=options.proc,
        programs=SystemPrograms(),
        pod=os.environ.get(POD_VARIABLE, ""),
    )
    if options.ready:
        return 0 if hook.finished_record(options.driver) is not None else 1
    serve_hook(hook, options.count, options.driver, MonotonicClock())
    return 0
