"""What can go wrong in an experiment, for people."""

from __future__ import annotations


class ExperimentError(Exception):
    """What was tried, what was said about it, and what to do."""

    def __init__(self, tried: str, said: str, do: str) -> None:
        super().__init__(f"{tried}: {said}")
        self.tried, self.said, self.do = tried, said, do

    def render(self) -> str:
        """The message as it is printed, without a final newline."""
        parts = {"said:": self.said, "do:": self.do}
        lines = [f"error: could not {self.tried}"]
        for label, text in parts.items():
            first, *rest = text.strip().splitlines() or [""]
            lines += [f"  {label:5} {first}", *(f"        {line}" for line in rest)]
        return "\n".join(lines)
