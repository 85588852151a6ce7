import threading
from pathlib import Path

from upgrader.node.__main__ import main
from upgrader.node.host.waiting import wait_for_operand


class Played:
    """Each second that is waited something happens."""

    def __init__(self, *happens):
        self.happens, self.waited = list(happens), 0

    def wait(self, _seconds):
        self.waited += 1
        self.happens.pop(0)()

    def monotonic(self):
        return float(self.waited)


def test_it_waits_until_every_file_is_there(tmp_path):
    first, second = tmp_path / "loaded.json", tmp_path / "runtime.json"
    clock = Played(first.touch, first.unlink, second.touch, first.touch)
    wait_for_operand("Driver", [first, second], clock)
    assert clock.waited == 4


def test_it_is_a_command(tmp_path):
    there = tmp_path / "loaded.json"
    waits = threading.Thread(target=main, args=[["wait", "--for", "Driver", "--file", str(there)]], daemon=True)
    waits.start()
    waits.join(0.5)
    assert waits.is_alive()
    Path(there).touch()
    waits.join(10)
    assert not waits.is_alive()
