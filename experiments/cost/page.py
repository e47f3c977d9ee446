"""The picture: a request's way through the kernel, each layer as large as its share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments.cost import flame, layers, table
from experiments.cost.shares import DIRECTIONS, Summary, total
from experiments.errors import ExperimentError

TEMPLATE = Path(__file__).with_name("cost.html.j2")
PIXELS = 900  # the height of the most expensive way
LEAST_TEXT = 13  # pixels that a line of text needs


def render(found: dict[str, Summary], flames: dict[str, str], facts: dict[str, Any]) -> str:
    """The page's text. Raises ExperimentError where a package for it is missing."""
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError as error:
        remedy = "install it with `pip install 'bpf-gpu-server[report]'`"
        raise ExperimentError("make the picture", str(error), remedy) from None
    template = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True,
                           lstrip_blocks=True).from_string(TEMPLATE.read_text())  # fmt: skip
    return template.render(
        facts=facts, flames=flames, boxes=boxes(found), titles=table.TITLES, found=found,
        rows=table.rows(found),
        events=[
            (title, [table.counts_text(count) for count in counts.values()])
            for title, counts in table.event_rows(found)
        ],
    )  # fmt: skip


def boxes(found: dict[str, Summary]) -> dict[str, list[tuple[str, list[dict[str, Any]]]]]:
    """By transport and direction the server's layers: text, height, colour. Receiving goes
    up from the driver, sending down to it."""
    sums = {name: total(of["parts"]["server"]) for name, of in found.items()}
    scale = PIXELS / max(sums.values())
    return {
        name: [(way, _pile(of["parts"]["server"][way], sums[name], scale)) for way in DIRECTIONS]
        for name, of in found.items()
    }


def _pile(part: dict[str, float], whole: float, scale: float) -> list[dict[str, Any]]:
    return [
        {
            "text": f"{layer}: {part[layer]:,.0f}, {part[layer] / whole:.1%}",
            "height": max(round(part[layer] * scale), 1),
            "colour": flame.colour(layer), "fits": part[layer] * scale >= LEAST_TEXT,
        }
        for layer in layers.LAYERS
        if layer in part
    ]  # fmt: skip
