"""Results of a study: tables, files, sentences."""
