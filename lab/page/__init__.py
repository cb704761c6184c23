"""What every notebook shares: style, header, notes, the model control, plots that follow the theme."""

from lab.page.links import open_in
from lab.page.models import chosen, model_picker
from lab.page.parts import cost, count, duration, guard, header, live, note, problem, size, start
from lab.page.share import share_button
from lab.page.watch import watch

__all__ = [
    "chosen", "cost", "count", "duration", "guard", "header", "live", "model_picker", "note", "open_in", "problem",
    "share_button", "size", "start", "watch",
]  # fmt: skip
