"""Tests of experiments/: from raw text to report, and the whole demo in the VM."""
