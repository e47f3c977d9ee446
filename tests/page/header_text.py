# SPDX-License-Identifier: MIT
"""The structures of a header as its text has them, with the writer that each comment names."""

import re
from dataclasses import dataclass
from pathlib import Path

WRITERS = ("creator", "supervisor", "ingress", "egress", "executor")

_STRUCTURE = re.compile(
    r"(?P<comment>/\*(?:(?!\*/).)*\*/)?\s*^struct (?P<name>\w+) \{(?P<body>.*?)^\};",
    re.DOTALL | re.MULTILINE,
)
_PIECE = re.compile(
    r"/\*(?P<comment>.*?)\*/|(?P<type>(?:struct )?\w+)\s+(?P<name>\w+)(?:\[\w+\])?;", re.DOTALL
)
_MARK = re.compile(rf"\[({'|'.join(WRITERS)})\]")


@dataclass
class Member:
    """A member, and the writers that the comment beside or above it names."""

    name: str
    type: str
    marks: set[str]


@dataclass
class Structure:
    """A structure, and the writers that the comment above it names."""

    name: str
    marks: set[str]
    members: list[Member]


def structures(header: Path) -> dict[str, Structure]:
    """Every structure of the header by name, in order."""
    found = {}
    for match in _STRUCTURE.finditer(header.read_text()):
        marks = set(_MARK.findall(match["comment"] or ""))
        found[match["name"]] = Structure(match["name"], marks, _members(match["body"]))
    return found


def _members(body: str) -> list[Member]:
    members: list[Member] = []
    waiting: set[str] = set()
    end = 0
    for piece in _PIECE.finditer(body):
        if piece["comment"] is None:
            members.append(Member(piece["name"], piece["type"], waiting))
            waiting, end = set(), piece.end()
        elif members and "\n" not in body[end : piece.start()]:
            members[-1].marks |= set(_MARK.findall(piece["comment"]))
        else:
            waiting |= set(_MARK.findall(piece["comment"]))
    return members
