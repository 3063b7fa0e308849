"""Messages in order from one node to another: segments, windows, acknowledgements, questions."""
