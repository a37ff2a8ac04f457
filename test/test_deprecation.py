"""Old names resolve to new ones, with a warning that names the replacement."""

from __future__ import annotations

import math

import pytest

from gpgmap_ros.deprecation import deprecated_names

RESOLVE = deprecated_names("some.module", {"root": "math:sqrt", "maths": "math"})


def test_an_old_name_gives_the_new_object_and_says_so() -> None:
    with pytest.warns(DeprecationWarning, match=r"some\.module\.root is deprecated.*use math\.sqrt"):
        assert RESOLVE("root") is math.sqrt


def test_an_old_module_gives_the_new_module() -> None:
    with pytest.warns(DeprecationWarning, match="use math"):
        assert RESOLVE("maths") is math


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"'some\.module' has no attribute 'nothing'"):
        RESOLVE("nothing")
