"""Sending in a thread of its own: nobody waits for it, only the newest is kept, and it ends cleanly."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

pytest.importorskip("rclpy", reason="gpgmap_ros.nodes needs rclpy: run `make setup`")

from limits import PATIENCE

from gpgmap_ros.nodes.map_sender import MapSender


class SlowNetwork:
    """Sends when it is let to."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.begun = threading.Semaphore(0)
        self.free = threading.Semaphore(0)
        self.errors: list[Exception] = []

    def send(self, item: str) -> None:
        self.begun.release()
        assert self.free.acquire(timeout=PATIENCE)
        if item == "bad":
            raise OSError("no network")
        self.sent.append(item)


@pytest.fixture
def network() -> Iterator[tuple[SlowNetwork, MapSender[str]]]:
    slow = SlowNetwork()
    sender = MapSender(slow.send, slow.errors.append)
    yield slow, sender
    slow.free.release(100)
    sender.close()


def test_only_the_newest_waits(network: tuple[SlowNetwork, MapSender[str]]) -> None:
    slow, sender = network
    sender.put("first")
    assert slow.begun.acquire(timeout=PATIENCE)
    for item in ("second", "third", "fourth"):
        sender.put(item)  # returns, although nothing is sent
    slow.free.release(2)
    assert slow.begun.acquire(timeout=PATIENCE)
    sender.forget()  # waits until the last is out
    assert slow.sent == ["first", "fourth"]
    assert sender.replaced == 2


def test_what_is_forgotten_is_not_sent(network: tuple[SlowNetwork, MapSender[str]]) -> None:
    slow, sender = network
    sender.put("first")
    assert slow.begun.acquire(timeout=PATIENCE)
    sender.put("second")
    slow.free.release(1)
    sender.forget()
    slow.free.release(1)
    sender.put("third")
    assert slow.begun.acquire(timeout=PATIENCE)
    sender.forget()
    assert slow.sent == ["first", "third"]


def test_a_failure_is_told_and_the_next_is_sent(network: tuple[SlowNetwork, MapSender[str]]) -> None:
    slow, sender = network
    slow.free.release(2)
    sender.put("bad")
    assert slow.begun.acquire(timeout=PATIENCE)
    sender.forget()
    sender.put("good")
    assert slow.begun.acquire(timeout=PATIENCE)
    sender.forget()
    assert slow.sent == ["good"]
    assert [str(error) for error in slow.errors] == ["no network"]
