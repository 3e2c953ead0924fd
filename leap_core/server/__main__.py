"""``python -m leap_core.server``: the host's process."""

import logging
import os

from .host_process import main

if __name__ == "__main__":
    code = main()
    logging.shutdown()
    os._exit(code)  # at once: what is left to tidy up is memory
