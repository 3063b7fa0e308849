"""The other ends of links: who is dialled and greeted, who is watched, and when the graph is healed."""
