"""How images are made, without making any: keys, command lines, the lock file. The real builds: tests/cluster."""

import multiprocessing
import sys
from pathlib import Path

import pytest
from click import Context

from tests.support.image_registry import write_layout
from tests.support.programs import soon
from tests.support.repository import ROOT
from upgrader import __version__
from upgrader.cli.base.program import Program
from upgrader.core.errors import ConfigurationError
from upgrader.images import image_parts, product, python, store
from upgrader.images.buildah import OVERLAY, Storage
from upgrader.images.store import Store
from upgrader.process import run


def test_a_build_is_reproducible_runs_nothing_and_asks_no_registry():
    storage = Storage(folder=Path("/s"), driver=OVERLAY)
    words = storage.build_command(context=Path("/c"), file=Path("/f"), labels=[("a", "b")])
    assert words == [
        *("buildah", "--root", "/s/overlay/root", "--runroot", "/s/overlay/run", "--storage-driver", "overlay"),
        *("build", "--quiet", "--isolation", "chroot", "--timestamp", "0", "--identity-label=false"),
        *("--layers=false", "--format", "oci", "--pull=never", "--label", "a=b"),
        *("--tag", "localhost/upgrader-built", "--file", "/f", "/c"),
    ]
    for file in [*ROOT.glob("Containerfiles/*/Containerfile"), *ROOT.glob("driver-images/*/Containerfile")]:
        assert not any(line.startswith("RUN") for line in file.read_text().splitlines()), file


def test_parts_of_a_key_cannot_run_into_each_other():
    assert store.content_key(["ab", "c"]) != store.content_key(["a", "bc"])
    assert store.content_key([b"a"]) == store.content_key(["a"])


def test_contents_see_names_modes_and_bytes_and_not_what_python_leaves(tmp_path):
    (tmp_path / "a").write_text("1")
    before = store.content_key(store.folder_contents(tmp_path))
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__/a.pyc").write_text("x")
    assert store.content_key(store.folder_contents(tmp_path)) == before
    (tmp_path / "a").chmod(0o755)
    changed = store.content_key(store.folder_contents(tmp_path))
    assert changed != before
    (tmp_path / "a").rename(tmp_path / "b")
    assert store.content_key(store.folder_contents(tmp_path)) not in {before, changed}


def test_contents_are_the_same_under_any_umask(tmp_path):
    keys = set()
    for mode in (0o644, 0o664, 0o600):
        (tmp_path / "a").write_text("1")
        (tmp_path / "a").chmod(mode)
        keys.add(store.content_key(store.folder_contents(tmp_path)))
    assert len(keys) == 1


def test_an_image_is_built_once_per_contents(tmp_path):
    said, built = [], []

    def build(layout):
        built.append(layout)
        write_layout(layout, b"layer", b"{}")

    images = Store(tmp_path, said.append)
    first = images.build_once("node", "aaaa", build)
    assert images.build_once("node", "aaaa", build).image == first.image
    assert len(built) == 1
    images.build_once("node", "bbbb", build)
    assert len(built) == 2
    assert said[:2] == ["image node: building", "image node: 0.0 MB compressed"]


def test_a_build_that_failed_leaves_nothing_that_looks_built(tmp_path):
    def fail(layout):
        write_layout(layout, b"half", b"{}")
        raise OSError("disk full")

    images = Store(tmp_path, lambda _line: None)
    with pytest.raises(OSError, match="disk full"):
        images.build_once("node", "aaaa", fail)
    built = images.build_once("node", "aaaa", lambda layout: write_layout(layout, b"whole", b"{}"))
    assert built.blob_path(built.blobs[0]).read_bytes() == b"whole"


def _build_slowly(folder, started, go):
    def build(layout):
        started.set()
        go.wait(20)
        write_layout(layout, b"other", b"{}")

    Store(folder, lambda _line: None).build_once("node", "aaaa", build)


def test_two_processes_build_it_once(tmp_path):
    spawn = multiprocessing.get_context("fork")
    started, go = spawn.Event(), spawn.Event()
    other = spawn.Process(target=_build_slowly, args=(tmp_path, started, go))
    other.start()
    soon(started.is_set)
    said = []

    def progress(line):
        said.append(line)
        go.set()

    mine = Store(tmp_path, progress).build_once("node", "aaaa", lambda layout: pytest.fail(f"built again at {layout}"))
    other.join()
    assert mine.blob_path(mine.blobs[0]).read_bytes() == b"other"
    assert said == ["image node: waiting for another build"]


LOCK = """--find-links /somewhere
# a comment
a-b==1.0 \\
    --hash=sha256:aa \\
    --hash=sha256:ab
    # via c
PyYAML==6.0 \\
    --hash=sha256:cc
zed==2 \\
    --hash=sha256:dd
"""


def test_a_subset_of_the_lock_keeps_its_hashes():
    assert python.select_entries(LOCK, ["pyyaml", "a-b"]) == (
        "a-b==1.0 \\\n    --hash=sha256:aa \\\n    --hash=sha256:ab\n    # via c\n"
        "PyYAML==6.0 \\\n    --hash=sha256:cc\n"
    )


def test_a_package_that_is_not_locked_is_an_error():
    with pytest.raises(ValueError, match="not in the lock file: nothing"):
        python.select_entries(LOCK, ["nothing", "zed"])


def test_options_of_the_machine_that_locked_stay_out():
    assert "--find-links" not in python.lock_entries(LOCK)


SHOW = (
    "print(*(m.__file__ for name, m in sys.modules.items() if name.split('.')[0] == 'upgrader' and m.__file__))\n"
    "packages = {m.split('.')[0] for m in sys.modules} - set(sys.stdlib_module_names)\n"
    "print(*(name for name in packages if not name.startswith('_')))"
)


def loaded_by(program, parts):
    """Whether the parts are what a program loads, in an isolated Python: (modules outside of them, parts not used)."""
    site = next(path for path in sys.path if path.endswith("site-packages"))
    words = [sys.executable, "-I", "-S", "-c", f"import sys; sys.path[:0] = sys.argv[1:]\n{program}\n{SHOW}"]
    modules, packages = run([*words, str(ROOT), site], timeout=60).text.splitlines()
    loaded = {str(Path(module).relative_to(ROOT / "upgrader")) for module in modules.split()}
    used = {part: {name for name in loaded if name == part or name.startswith(f"{part}/")} for part in parts}
    return (loaded - set().union(*used.values()), [part for part in parts if not used[part]]), set(packages.split())


ALL_OF_NODE = """import importlib, pkgutil, upgrader.node
for module in pkgutil.walk_packages(upgrader.node.__path__, "upgrader.node."):
    importlib.import_module(module.name)
"""
CONTROLLER = """import upgrader.__main__, upgrader.controller.run, upgrader.images.trust, upgrader.images.registry.login
from click import Context
from upgrader.cli.main import program
for name, (module, _) in program.lazy.items():
    folder = module.split(".")[2]
    if folder not in {"first_node", "images", "simulate"} and name != "node-labels":
        program.load(Context(program), name)
"""


def test_the_node_image_has_what_the_node_imports_and_nothing_else():
    difference, packages = loaded_by(ALL_OF_NODE, image_parts.NODE_PARTS)
    assert difference == (set(), [])
    modules = {"google": "protobuf", "grpc": "grpcio", "msgspec": "msgspec", "typing_extensions": "typing-extensions"}
    optional = {"cython_runtime", "grpc_tools", "upgrader"}  # of grpc, which imports grpc_tools if it is installed
    assert packages - optional == set(modules)
    assert set(image_parts.NODE_PACKAGES) == {*modules.values(), "pyyaml"}  # which msgspec loads to read a kubeconfig


def test_the_controllers_image_has_what_its_commands_import_and_nothing_else():
    difference, packages = loaded_by(CONTROLLER, image_parts.CONTROLLER_PARTS)
    assert difference == (set(), [])
    assert packages & {"grpc", "elftools", "upgrader_dev"} == set()


def run_in_image(folder, parts, added, program):
    """Output of a program that has these parts of the product, files of the other distribution, and all packages."""
    app, site = folder / "app", folder / "site"
    for target, source in (image_parts.product_parts(parts) | added).items():
        product._copy_part(ROOT / source, app / target)
    site.mkdir()
    packages = next(Path(path) for path in sys.path if path.endswith("site-packages"))
    for entry in packages.iterdir():
        if not entry.name.startswith("gpu_upgrader"):
            (site / entry.name).symlink_to(entry)
    text = f"import sys; sys.path[:0] = sys.argv[1:]\n{program}"
    return run([sys.executable, "-I", "-S", "-c", text, str(app), str(site)], timeout=60).text


def test_the_controllers_image_may_have_the_simulated_vendor(tmp_path):
    program = "from upgrader.stack.vendors import load_vendors\nprint(*sorted(load_vendors()))"
    program += "\nfrom importlib.metadata import version\nprint(version('gpu-upgrader-dev'))"
    output = run_in_image(tmp_path, image_parts.CONTROLLER_PARTS, image_parts.SIMULATED_VENDOR, program)
    assert output.splitlines() == ["nvidia sim", __version__]


ALL_OF_SIMULATED_GPUS = """import importlib, pkgutil, upgrader_dev.node
for module in pkgutil.walk_packages(upgrader_dev.node.__path__, "upgrader_dev.node."):
    importlib.import_module(module.name)
packages = {name.split('.')[0] for name in sys.modules} - set(sys.stdlib_module_names)
print(*sorted(name for name in packages if not name.startswith('_')))
"""


def test_the_image_of_simulated_gpus_has_what_their_operands_import(tmp_path):
    loaded = run_in_image(tmp_path, image_parts.NODE_PARTS, image_parts.SIMULATED_GPUS, ALL_OF_SIMULATED_GPUS).split()
    optional = {"cython_runtime", "grpc_tools"}
    of_node = {"google", "grpc", "msgspec", "typing_extensions"}
    assert set(loaded) - optional - of_node == {"prometheus_client", "upgrader", "upgrader_dev"}
    assert image_parts.SIMULATED_GPU_PACKAGES == ("prometheus-client",)


def test_a_command_that_the_controllers_image_lacks_is_refused_with_a_way_out():
    program = Program("upgrader", lazy={"build": ("upgrader.cli.not_there:build", "Build.")})
    with pytest.raises(ConfigurationError, match="`upgrader build` is not part of this image"):
        program.load(Context(program), "build")


def test_packages_are_left_out_of_the_lock():
    assert "pyyaml" not in python.lock_entries(LOCK, without=["pyyaml"]).lower()
    with pytest.raises(ValueError, match="not in the lock file: nothing"):
        python.lock_entries(LOCK, without=["nothing"])
