"""``python -m rarehmm``."""

from rarehmm.app.cli import main

main()
