"""Finding, starting and asking the host of warm models. Imports no HTTP server."""
