"""A model in this process: loaded, prompted, generating."""
