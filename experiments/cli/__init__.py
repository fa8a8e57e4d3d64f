"""What a person types: commands and their words, names there are, and what answers a mistake."""
