"""SIGINT and SIGTERM: recorded, and an interruption only where nobody is patient."""

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
def test_without_patience_a_signal_interrupts(guard: SignalGuard, number: signal.Signals) -> None:
    guard.patient = False
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(number)
    assert guard.asked
