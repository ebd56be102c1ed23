"""Statistics that several families use."""
