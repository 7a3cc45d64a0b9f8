"""What ends its process: in a module of its own, for workers of a cluster import it by name."""

import os
import signal


def killed_once(block, marker):
    """A chunk whose first reading ends its worker."""
    if block.size and not os.path.exists(marker):
        with open(marker, "w"):
            os.kill(os.getpid(), signal.SIGKILL)
    return block
