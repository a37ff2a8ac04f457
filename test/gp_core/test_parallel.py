"""Blocks on threads: in order, with errors passed on, within the limits set."""

import os

import pytest

from gp_core.parallel import available_threads, map_blocks


def test_results_come_in_order():
    assert map_blocks(lambda i: i * i, range(50)) == [i * i for i in range(50)]
    assert map_blocks(lambda i: i, []) == []


def test_an_error_in_a_block_is_raised():
    def fail(i):
        if i == 3:
            raise ValueError("block 3")
        return i

    with pytest.raises(ValueError, match="block 3"):
        map_blocks(fail, range(8))


@pytest.mark.parametrize(("limit", "most"), [("1", 1), ("0", None), ("many", None), ("", None)])
def test_the_limit_is_respected(monkeypatch, limit, most):
    monkeypatch.setenv("OMP_NUM_THREADS", limit)
    assert 1 <= available_threads() <= (most or os.cpu_count() or 1)
