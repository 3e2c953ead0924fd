"""An evaluation as a page, as JUnit's XML and as Markdown."""
