"""The configuration before a run: where its files are, how it is composed, and what is wrong with it by itself."""
