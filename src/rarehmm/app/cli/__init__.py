"""Command-line interface: demo, fit, resume, events, forecast, report, simulate, watch, reproduce, convert, warm-up,
cache.
"""

from rarehmm.app.cli import demonstrating, kernels, reproducing, running, watching
from rarehmm.app.cli.app import app, main

__all__ = ["app", "demonstrating", "kernels", "main", "reproducing", "running", "watching"]
