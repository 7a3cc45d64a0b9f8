"""Every numba loop of the library."""
