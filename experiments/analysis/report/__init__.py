"""One HTML page for finished runs: tables, curves, figures, completions, and the command that reproduces each row."""
