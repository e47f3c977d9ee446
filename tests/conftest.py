"""For all test folders."""

from __future__ import annotations

import signal

import pytest

pytest.register_assert_rewrite("tests.support")

# A shell starts what runs in its background with SIGINT ignored, and all that is started from
# there inherits it: no Ctrl-C of a test would arrive.
signal.signal(signal.SIGINT, signal.default_int_handler)
