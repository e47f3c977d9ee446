"""What a probe answers: yes, no, or could not tell; why; and what to do about it."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Verdict(enum.Enum):
    """UNKNOWN is an answer of its own: the attempt itself was refused or impossible."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "could not tell"


@dataclass(frozen=True)
class Answer:
    """`why` is what was seen; `do` is the remedy, or "nothing"."""

    verdict: Verdict
    why: str
    do: str


def yes(why: str) -> Answer:
    """It is there and was seen to work."""
    return Answer(Verdict.YES, why, "nothing")


def no(why: str, do: str) -> Answer:
    """The attempt failed for want of it."""
    return Answer(Verdict.NO, why, do)


def unknown(why: str, do: str) -> Answer:
    """The attempt failed for another reason."""
    return Answer(Verdict.UNKNOWN, why, do)
