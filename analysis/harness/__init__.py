"""Result files of lm-evaluation-harness: read and written."""
