"""``python -m rarehmm``."""

from rarehmm.cli import app

app()
