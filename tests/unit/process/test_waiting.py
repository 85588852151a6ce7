import pytest

from upgrader.process.waiting import wait_until_true


def test_it_is_looked_at_until_it_holds():
    looks = iter([False, False, True])
    assert wait_until_true(lambda: next(looks), seconds=60, every=0)
    assert list(looks) == []


def test_what_never_holds_is_false_and_not_an_error():
    assert not wait_until_true(lambda: False, seconds=0, every=0)


def test_what_looking_raises_is_raised():
    with pytest.raises(ZeroDivisionError):
        wait_until_true(lambda: bool(1 / 0), seconds=60, every=0)
