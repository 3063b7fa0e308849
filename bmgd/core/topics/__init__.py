"""What waits at a node for its readers: queues, credit, long messages, questions."""
