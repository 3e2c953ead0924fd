"""A model in this process: loaded, prompted, scheduled, sampled."""
