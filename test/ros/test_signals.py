"""SIGINT and SIGTERM: recorded, and an interruption only where that is allowed."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from gpgmap_ros.nodes.signals import SignalGuard

NUMBERS = (signal.SIGINT, signal.SIGTERM)


@pytest.fixture
def guard() -> Iterator[SignalGuard]:
    """Handles the signals of this process until the test ends."""
    before = {number: signal.getsignal(number) for number in NUMBERS}
    yield SignalGuard()
    for number, handler in before.items():
        signal.signal(number, handler)


def test_nobody_has_asked_at_first(guard: SignalGuard) -> None:
    assert not guard.asked


@pytest.mark.parametrize("number", NUMBERS)
def test_a_signal_is_recorded_and_what_runs_goes_on(guard: SignalGuard, number: signal.Signals) -> None:
    signal.raise_signal(number)
    assert guard.asked


@pytest.mark.parametrize("number", NUMBERS)
def test_what_is_interruptible_is_interrupted(guard: SignalGuard, number: signal.Signals) -> None:
    with pytest.raises(KeyboardInterrupt), guard.interruptible():
        signal.raise_signal(number)
    assert guard.asked
    signal.raise_signal(number)  # what follows goes on


def test_one_that_came_before_interrupts_too(guard: SignalGuard) -> None:
    signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), guard.interruptible():
        raise AssertionError("it begins")
