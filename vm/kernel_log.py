"""Faults in a Linux kernel log: lines that mean that the kernel itself found something wrong."""

from __future__ import annotations

import re

# Prefixes printed by the kernel's own checkers: WARN()/BUG()/die(), lockdep, RCU, KASAN/KCSAN/
# UBSAN, the lockup detectors, the hung task detector, the page allocator and slab checks.
_FAULT = re.compile(
    r"""
      \bWARNING:\s                      # WARN_ON and lockdep
    | \bBUG:\s | kernel\ BUG\ at
    | \bOops\b | general\ protection\ fault | double\ fault:
    | Kernel\ panic\ -\ not\ syncing
    | \bK[AC]SAN:\s | \bKMSAN:\s | \bUBSAN:\s | \bKFENCE:\s
    | \bINFO:\ (?:rcu\w*|possible|suspicious|trying\ to\ register|task\ .*\ blocked\ for\ more)
    | possible\ (?:circular|recursive)\ locking | inconsistent\ lock\ state
    | \bunregister_netdevice:\ waiting\ for | refcount_t: | list_(?:add|del)\ corruption
    | unreferenced\ object\ 0x | Unable\ to\ handle\ kernel | Out\ of\ memory:\ Killed
    """,
    re.VERBOSE,
)


def kernel_log_faults(text: str) -> list[str]:
    """The fault lines of a kernel log, in order, each once with its time stamp.

    An OOM kill inside a memory cgroup (`Memory cgroup out of memory`) is what that cgroup was asked
    for, and no fault; the machine's own OOM kill is one.
    """
    return [line.strip() for line in text.splitlines() if _FAULT.search(line)]
