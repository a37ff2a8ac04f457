"""Arrays that grow by rows."""

from __future__ import annotations

import numpy as np

from gpgmap_ros.closure.rows import Rows


def test_rows_are_those_that_were_appended() -> None:
    rng = np.random.default_rng(0)
    expected = rng.normal(size=(200, 4, 4))
    rows = Rows(expected[:3])
    for row in expected[3:100]:
        rows.append(row)
    rows.extend(expected[100:])
    assert len(rows) == 200
    np.testing.assert_array_equal(rows.values, expected)


def test_what_was_given_out_stays_as_it_was() -> None:
    start = np.arange(4)
    rows = Rows(start)
    before = rows.values
    for value in range(100):
        rows.append(value)
    np.testing.assert_array_equal(before, [0, 1, 2, 3])
    rows.values[0] = 9
    assert start[0] == 0, "the first rows are copied"
