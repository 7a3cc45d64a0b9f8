"""``python -m rarehmm``."""

from rarehmm.cli import main

main()
