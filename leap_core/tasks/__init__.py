"""What people do with a small model: extract, translate, summarize, redact, classify, decide. Wording is data."""
