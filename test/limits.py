"""How long a test waits at most for what must happen: one limit for all of them.

A test that passes never waits this long; one whose subject hangs fails, with a message, before pytest ends it. No
test may depend on anything happening sooner: the machine may be slow, loaded, or compile first.
"""

from typing import Final

PATIENCE: Final = 900.0
"""Seconds; below `faulthandler_timeout` in pyproject.toml."""
