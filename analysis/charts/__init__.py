"""Charts of results, drawn by Altair: one chart serves the page, the notebook and the paper."""
