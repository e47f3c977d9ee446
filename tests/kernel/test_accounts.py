"""The CPU accounts of Linux 7.3 against known burns: those of an io_uring's threads included."""

from tests.experiments.test_experiments_selftest import (  # noqa: F401
    result,
    test_an_io_urings_threads_are_in_the_cgroup_and_not_in_the_threads_account,
    test_exact_accounts_find_what_was_burnt,
    test_softirq_of_a_task_is_in_its_account,
    test_softirq_of_an_idle_cpu_is_in_no_tasks_account,
)
