"""UnQover: subjects and attributes in questions that do not tell."""
