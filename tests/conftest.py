"""For all test folders."""

from __future__ import annotations

import signal

import pytest

pytest.register_assert_rewrite("tests.support")

# A shell starts what runs in its background with SIGINT ignored, and nohup with SIGHUP; all that is
# started from there inherits it, and no such signal of a test would arrive.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
