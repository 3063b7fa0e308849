"""Who is in the cluster: records of ids, their notices and comparison, and what is forgotten."""
