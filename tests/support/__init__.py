"""What several tests make: small random files and questions whose answers are known. Nothing of it ships."""

import os

LONG = bool(os.environ.get("LEAP_TEST_LONG"))
"""Whether tests at random take as many turns as they can use, instead of the fewest that have found faults."""
