"""The machine under leap: configuration, directories, files, locks, SQLite, processes, and the version."""

__version__ = "0.1.0"
