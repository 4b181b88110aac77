"""What each op is tried, timed and judged on: a file for each file of bindings/ops."""

from __future__ import annotations

import importlib

from bindings.registry import OPS
from bindings.trial import Trial

# A file has the trial of its op as FORWARD, and of its backward as BACKWARD.
TRIALS: dict[str, Trial] = {
    op.name: getattr(
        importlib.import_module(f"bindings.trials.{op.source}"), op.direction.upper()
    )
    for op in OPS.values()
}
