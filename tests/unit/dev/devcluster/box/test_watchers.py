"""How many inotify instances boxes find."""

from pathlib import Path

import pytest

from upgrader_dev.devcluster.box.watchers import ENOUGH, allow_watchers


@pytest.mark.parametrize(("before", "after"), [(128, ENOUGH), (ENOUGH, ENOUGH), (8192, 8192)])
def test_there_are_enough_and_never_fewer(tmp_path, before, after):
    limit = tmp_path / "max_user_instances"
    limit.write_text(f"{before}\n")
    raised = f"inotify instances of a user were {before}, now {after}: a box takes 7"
    assert allow_watchers(limit) == ("" if before >= ENOUGH else raised)
    assert int(limit.read_text()) == after


def test_a_limit_that_cannot_be_set_is_said():
    file = "/proc/sys/kernel/cap_last_cap"  # a number that nobody may set, root neither
    said = f"only {int(Path(file).read_text())} inotify instances for all boxes, a box takes 7: {file} cannot be set"
    assert allow_watchers(Path(file)) == f"{said} to 1024 (Permission denied)"
