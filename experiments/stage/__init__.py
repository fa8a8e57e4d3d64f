"""One stage of an experiment: what it is recognised by, what it does, and how it stops, goes on and ends."""
