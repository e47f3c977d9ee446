# SPDX-License-Identifier: MIT
"""Files and functions stay small; and the ruler measures right."""

from pathlib import Path

import pytest

from tests.layout import sizes

SAMPLE = """\
#include <vector>
#define MACRO(x) do { if (x) { return; } } while (0)
namespace one::two {
struct Range { int low, high; bool empty() const { return low >= high; } };
static const char *const names[] = {"}", "{ (", u8R"x(}}})x"}; /* } */
enum class Kind : int { a = '{', b = '}' };

template <typename T>
T largest(const std::vector<T> &of)
{
    auto longer = [&](int x) { return x > 1'000; };
    for (int i = 0; i < 3; i++) {
        longer(i);
    }
    return of[0];
}

Range::Range(int a)
    : low{a}, high(a + 1)
{
}
} // namespace one::two
extern "C" {
SEC("sk_skb/verdict") static struct Range *
made(struct Range *range) __attribute__((unused))
{
    return range;
}
}
struct { int x; } scratch SEC(".bss.scratch");
"""


def test_c_functions_are_measured(tmp_path: Path) -> None:
    (tmp_path / "sample.cpp").write_text(SAMPLE)
    found = [(one.name, one.line, one.lines) for one in sizes.functions(tmp_path / "sample.cpp")]
    assert found == [("empty", 4, 1), ("largest", 8, 9), ("Range::Range", 18, 4), ("made", 24, 5)]


def test_python_functions_are_measured_without_docstring(tmp_path: Path) -> None:
    text = 'def one():\n    """Two\n    lines."""\n    def two(): pass\n    return two\n'
    (tmp_path / "sample.py").write_text(text)
    found = {one.name: (one.line, one.lines) for one in sizes.functions(tmp_path / "sample.py")}
    assert found == {"one": (1, 3), "two": (4, 1)}


@pytest.mark.parametrize(
    ("files", "lines", "expected"),
    [
        ({"native/a.cpp": 401}, [80], "over 400 lines: native/a.cpp (401)"),
        ({"bpf/a.bpf.c": 151}, [80], "the median file of bpf/"),
        ({"native/a.cpp": 9}, [81, *[1] * 99], "f() has 81 lines, over 80"),
        ({"native/a.cpp": 9}, [46, 46, *[1] * 8], "a tenth of the functions over 45"),
    ],
)
def test_each_limit_can_be_broken(files: dict[str, int], lines: list[int], expected: str) -> None:
    functions = [sizes.Function("native/a.cpp", 1, "f", length) for length in lines]
    problems = sizes.broken({sizes.ROOT / name: size for name, size in files.items()}, functions)
    assert any(expected in problem for problem in problems)
    small = [sizes.Function("native/a.cpp", 1, "f", 45)] * 10
    many = {sizes.ROOT / f"native/{at}.cpp": 400 + (at == 0) for at in range(20)}
    assert sizes.broken(many, small) == []


def test_this_repository_keeps_the_limits() -> None:
    files = {path: len(path.read_text().splitlines()) for path in sizes.sources()}
    found = [function for path in files for function in sizes.functions(path)]
    assert len(files) > 20
    assert len(found) > 100
    assert sizes.broken(files, found) == []
