"""The command line: commands, their arguments, the names to choose from, and messages for invalid input."""
