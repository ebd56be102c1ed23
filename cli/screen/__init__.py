"""Tables, progress and plots in a terminal."""
