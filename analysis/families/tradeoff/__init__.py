"""Trade-offs: a bias against an ability, checkpoint by checkpoint."""
