"""How ids are asked for, given, claimed and taken away."""
