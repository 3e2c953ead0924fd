"""``python -m leap_cli`` is the ``leap`` command."""

from .main import run

if __name__ == "__main__":
    run()
