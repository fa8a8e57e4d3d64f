"""One page of HTML for finished runs: tables, curves, figures, completions, and the commands behind each row."""
