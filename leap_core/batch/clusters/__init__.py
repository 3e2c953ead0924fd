"""Lines and rows that other engines hand out: answered in their processes, one model loaded in each."""
