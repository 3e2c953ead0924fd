"""Starting, finding and stopping the worker."""
