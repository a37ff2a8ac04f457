"""When a backlog of comparisons is worth a warning."""

from __future__ import annotations

from gpgmap_ros.slam.backlog import MIN_BACKLOG, WINDOW, Backlog


def said(sizes: list[int], step: float = 5.0) -> list[bool]:
    backlog = Backlog()
    return [bool(backlog.problem(size, step * k)) for k, size in enumerate(sizes)]


def test_a_backlog_that_grows_or_stands_is_said() -> None:
    growing = said([MIN_BACKLOG + k for k in range(10)])
    assert not growing[0]
    assert growing[-1]
    assert said([100] * 10)[-1]
    text = Backlog()
    text.problem(400, 0.0)
    assert "408 submaps wait to be compared, 400 did" in text.problem(408, WINDOW)


def test_one_that_shrinks_or_is_small_is_not() -> None:
    assert not any(said([400 - k for k in range(50)]))
    assert not any(said([MIN_BACKLOG - 1] * 50))
    assert not said([*range(20, 30), *range(30, 0, -1)])[-1]
