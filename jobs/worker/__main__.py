"""``python -m jobs.worker``: the worker of one data directory."""

from .worker import main

main()
