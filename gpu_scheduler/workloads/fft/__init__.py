"""Fourier transforms: `work` in a row of `points` complex64; the first `bins` values answer."""

from __future__ import annotations

from gpu_scheduler.workloads.spec import Parameter, Spec, Workload
from shared_page import constants


def _check(spec: Spec) -> None:
    points, bins = spec["points"], spec["bins"]
    if points & (points - 1):
        spec.fail(f"points is {points}", "Give a power of two: the transform is radix 2")
    if bins > points:
        said = f"bins is {bins}, more than points, {points}"
        spec.fail(said, "Give at most as many bins as points")
    spec.limit("a request", "points*8", points * 8, constants.REQUEST_MAX, "Make points smaller")


WORKLOAD = Workload(
    name="fft",
    kind=constants.KIND_FFT,
    parameters={
        "points": Parameter(32, 2, 65536),
        "bins": Parameter(30, 1, 65536),
        "work": Parameter(1, 1, 65536),
    },
    check=_check,
)
