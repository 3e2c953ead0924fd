"""What leap keeps on disk: its directories, locks, atomic files, hashes and SQLite databases."""
