"""What help shows beside the options themselves: groups of options, examples, and the guides."""
