"""Messages per second of four patterns, as a cluster grows, next to a star through one broker."""
