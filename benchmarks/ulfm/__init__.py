"""A death told by Open MPI's ULFM, next to one told by bmgd."""
