"""Ctrl-C and SIGTERM wait until nothing is half done."""

import os
import signal
import threading

import pytest

from vsam.lab.interrupt import deferred_interrupt, treat_sigterm_like_ctrl_c


@pytest.fixture(autouse=True)
def _interruptible():
    """Handle Ctrl-C and SIGTERM as in a terminal, also in a shell's background process."""
    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, signal.default_int_handler),
        signal.SIGTERM: signal.signal(signal.SIGTERM, signal.SIG_DFL),
    }
    treat_sigterm_like_ctrl_c()
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def press(*numbers):
    """Send the signals within a block, and return its progress and its requests to stop."""
    done = []
    with deferred_interrupt() as is_interrupted:
        done.append(is_interrupted())
        with deferred_interrupt() as inner:
            for number in numbers:
                os.kill(os.getpid(), number)
            done.append(inner())
        done.append(is_interrupted())
        _done.append(done)


_done: list[list[bool]] = []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_is_noted_and_raised_at_the_end_of_the_outermost_block(number):
    _done.clear()
    with pytest.raises(KeyboardInterrupt):
        press(number)
    assert _done == [[False, True, True]]
    assert signal.getsignal(number) is signal.default_int_handler


def test_the_second_does_not_wait():
    _done.clear()
    with pytest.raises(KeyboardInterrupt):
        press(signal.SIGTERM, signal.SIGINT)
    assert _done == []


def test_handlers_of_others_stay():
    heard = []
    signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
    treat_sigterm_like_ctrl_c()
    with deferred_interrupt() as is_interrupted:
        os.kill(os.getpid(), signal.SIGTERM)
        assert not is_interrupted()
    assert heard == [signal.SIGTERM]


def test_another_thread_may_use_it():
    done = []

    def work():
        with deferred_interrupt() as is_interrupted:
            done.append(is_interrupted())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [False]
