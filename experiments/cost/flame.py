"""A flame graph as SVG: width is samples, height the stack, colour the layer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from experiments.cost import layers
from experiments.cost.shares import side

WIDTH, HEIGHT = 1400, 17  # of all, and of a frame, in pixels
LEAST = 1.0  # pixels; narrower frames are left out
LETTER = 6.6
HEAD = 24


@dataclass
class Frame:
    """A function where it was called, with what it called."""

    name: str
    layer: str
    samples: int = 0
    callees: dict[str, Frame] = field(default_factory=dict)

    def callee(self, name: str, layer: str) -> Frame:
        """The frame above; made when it is new."""
        return self.callees.setdefault(name, Frame(name, layer))


def tree(stacks: Sequence[Sequence[Any]]) -> Frame:
    """All that is not rest, by whom it is for."""
    root = Frame("all", "")
    for group, user, stack, count in stacks:
        if layers.rests(stack):
            continue
        root.samples += count
        frame = root.callee(f"for the {side(group, stack)}", "")
        frame.samples += count
        layer = layers.USER if user else layers.UNKNOWN
        for name in [*reversed(stack), *([layers.USER] if user else [])]:
            layer = layers.layer_of(name) or layer
            frame = frame.callee(name, layer)
            frame.samples += count
    return root


def render(stacks: Sequence[Sequence[Any]], title: str) -> str:
    """The SVG. Pointing at a frame shows its name, layer and share."""
    root = tree(stacks)
    boxes = list(_boxes(root, 0.0, 0, WIDTH / max(root.samples, 1)))
    depth = 1 + max((level for _, _, level, _ in boxes), default=0)
    height = HEAD + depth * HEIGHT
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'font-family="monospace" font-size="11">',
        f'<text x="4" y="16" font-size="14">{escape(title)}</text>',
    ]
    for frame, x, level, width in boxes:
        lines.append(_box(frame, x, height - (level + 1) * HEIGHT, width, root.samples))
    return "\n".join([*lines, "</svg>\n"])


def _boxes(
    frame: Frame, x: float, level: int, scale: float
) -> Iterator[tuple[Frame, float, int, float]]:
    width = frame.samples * scale
    if width < LEAST:
        return
    yield frame, x, level, width
    for callee in sorted(frame.callees.values(), key=lambda one: one.name):
        yield from _boxes(callee, x, level + 1, scale)
        x += callee.samples * scale


def _box(frame: Frame, x: float, y: float, width: float, samples: int) -> str:
    share = f"{frame.samples / samples:.1%}"
    layer = f", {frame.layer}" if frame.layer else ""
    letters = int((width - 4) / LETTER)
    text = frame.name if len(frame.name) <= letters else frame.name[: max(letters - 1, 0)] + "…"
    label = f'<text x="{x + 2:.1f}" y="{y + 12}">{escape(text)}</text>' if letters > 2 else ""
    return (
        f"<g><title>{escape(frame.name)}{layer}: {share}</title>"
        f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{HEIGHT - 1}" rx="2" '
        f'fill="{colour(frame.layer)}"/>{label}</g>'
    )


def colour(layer: str) -> str:
    """Of a layer, the same in every picture; grey for none."""
    if layer not in layers.LAYERS:
        return "#ddd"
    return f"hsl({360 * layers.LAYERS.index(layer) // len(layers.LAYERS)} 65% 72%)"
