"""Undo steps: all run, in reverse, and the first error survives them."""

from __future__ import annotations

import errno

import pytest

from loader.errors import LoaderError, Transaction, errno_name, trying


def failing(text: str) -> None:
    raise OSError(errno.EBUSY, "busy", text)


def test_steps_run_in_reverse_order() -> None:
    done: list[int] = []
    with Transaction() as undo:
        undo.undo("undo one", lambda: done.append(1))
        undo.undo("undo two", lambda: done.append(2))
        assert done == []
    assert done == [2, 1]


def test_first_error_survives_a_failing_clean_up() -> None:
    done: list[int] = []
    with pytest.raises(LoaderError) as caught, Transaction() as undo:
        undo.undo("undo one", lambda: done.append(1))
        undo.undo("remove the cgroup", lambda: failing("/cgroup"))
        undo.undo("remove the pins", lambda: failing("/pins"))
        raise LoaderError("start", "EPERM", "run as root")
    assert done == [1]
    assert caught.value.render().splitlines() == [
        "error: could not start",
        "  said: EPERM",
        "  do:   run as root",
        "  also: could not remove the pins either: EBUSY (Device or resource busy): /pins",
        "  also: could not remove the cgroup either: EBUSY (Device or resource busy): /cgroup",
    ]


def test_without_an_error_the_first_failing_step_is_raised() -> None:
    done: list[int] = []
    with pytest.raises(LoaderError) as caught, Transaction() as undo:
        undo.undo("undo one", lambda: done.append(1))
        undo.undo("remove the cgroup", lambda: failing("/cgroup"))
        undo.undo("remove the pins", lambda: failing("/pins"))
    assert done == [1]
    assert caught.value.render().splitlines() == [
        "error: could not remove the pins",
        "  said: EBUSY (Device or resource busy): /pins",
        "  do:   remove by hand what is left of it",
        "  also: could not remove the cgroup either: EBUSY (Device or resource busy): /cgroup",
    ]


def test_a_keyboard_interrupt_also_undoes() -> None:
    done: list[int] = []
    with pytest.raises(KeyboardInterrupt), Transaction() as undo:
        undo.undo("undo one", lambda: done.append(1))
        raise KeyboardInterrupt
    assert done == [1]


def test_errno_names() -> None:
    assert errno_name(errno.EADDRINUSE) == "EADDRINUSE (Address already in use)"
    assert errno_name(-errno.EPERM) == "EPERM (Operation not permitted)"
    assert errno_name(-4001) == "LIBBPF_ERRNO__FORMAT"
    assert errno_name(4095).startswith("errno 4095 (")
    assert errno_name(None) == "no errno"


def test_trying_names_the_file_only_once() -> None:
    with pytest.raises(LoaderError) as caught, trying("open /pins", "mount bpffs"):
        failing("/pins")
    assert caught.value.said == "EBUSY (Device or resource busy)"


def test_parts_of_several_lines_are_indented() -> None:
    text = LoaderError("load", "first\nsecond", "do this").render()
    assert text.splitlines()[1:3] == ["  said: first", "        second"]
