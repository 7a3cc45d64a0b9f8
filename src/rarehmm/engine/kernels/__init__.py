"""The compiled loops of the library."""
